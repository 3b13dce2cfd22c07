/** Verifying batches: every object there, of the right length, with matching checksums; every sequence contiguous. */
import { BatchWeaveError } from "../errors.js";
import { inParallel } from "../flow/index.js";
import {
  asStep,
  auditBatchObject,
  batchKey,
  checkStride,
  type Descriptor,
  decodeFooter,
  type Extent,
  type ExtentPlace,
  type Manifest,
  storedJsonBytesMax,
} from "../format/index.js";
import { type BatchPlace, firstOwnStep, type Log, laneNumber, seqInLog, unreadableUntil } from "../log/index.js";
import type { CallOptions } from "../store/index.js";
import type { Findings } from "./verify-report.js";

/** How closely batches are looked at. */
export interface BatchCheck {
  readonly level: "footers" | "bytes";
  readonly inFlightMax: number;
  readonly signal?: AbortSignal | undefined;
}

const windowSteps = 1_024;

/** Every step in `[trim, end)`, in order, and what waits above; then the sequences of all producers. */
export async function verifySteps(log: Log, manifest: Manifest, check: BatchCheck, findings: Findings): Promise<void> {
  const sequences = new Sequences(log, findings);
  const { trim, end } = manifest.steps;
  // What an unreadable index object covered is said once and passed over: work is bounded by what is stored, whatever the numbers say.
  let lostUntil = 0;
  for (let from = trim as number; from < end; from = Math.max(from + windowSteps, lostUntil)) {
    const places: (BatchPlace | undefined)[] = [];
    const steps = Array.from({ length: Math.min(windowSteps, end - from) }, (_, i) => from + i);
    await inParallel(steps, check.inFlightMax, async (step) => {
      check.signal?.throwIfAborted();
      if (step < lostUntil) return;
      await findings.check(async () => {
        try {
          places[step - from] = await log.locate(manifest, asStep(step), { signal: check.signal });
        } catch (error) {
          const until = unreadableUntil(error);
          // Steps beside this one may have met the same object at the same time.
          if (until !== undefined && step < lostUntil) return;
          if (until !== undefined) lostUntil = Math.min(until, end);
          throw until === undefined ? error : namingSteps(error as BatchWeaveError, step, lostUntil);
        }
        findings.counts.steps++;
        await verifyBatch(places[step - from] as BatchPlace, log.spec.grid, check, findings);
      }, step);
    });
    for (const [i, step] of steps.entries()) {
      const place = places[i];
      if (place && place.origin === undefined) sequences.visit(place.descriptor, step);
      // The sequence begins anew behind a hole.
      if (!place && step < lostUntil) sequences.lose();
    }
  }
  const waiting = [...manifest.waiting].sort(([a], [b]) => a - b);
  for (const [step, descriptor] of waiting) {
    const place = { descriptor, store: log.store, namespace: log.spec.uuid };
    await findings.check(() => verifyBatch(place, log.spec.grid, check, findings), step);
    sequences.visit(descriptor, step);
  }
  await sequences.finish(manifest, check);
}

function namingSteps(error: BatchWeaveError, from: number, until: number): BatchWeaveError {
  const steps = until - from > 1 ? `Steps ${from} to ${until - 1} cannot be found` : `Step ${from} cannot be found`;
  return new BatchWeaveError(error.code, `${steps}: ${error.message}`, error.details, error.cause);
}

/** All objects of one batch. */
export async function verifyBatch(
  place: BatchPlace,
  grid: { readonly rows: number; readonly chunks: number },
  check: BatchCheck,
  findings: Findings,
): Promise<void> {
  const { descriptor } = place;
  let firstCell = 0;
  for (const [number, extent] of descriptor.extents.entries()) {
    findings.counts.uncheckedSlices += await verifyExtent(place, { extent: number, firstCell }, extent, check);
    findings.counts.batchObjects++;
    findings.counts.bytes += extent.size;
    firstCell += extent.cells;
  }
  if (firstCell === grid.rows * grid.chunks) return;
  const what = `it has ${firstCell} slices, and a batch of this namespace has ${grid.rows * grid.chunks}`;
  throw damaged("CORRUPT", batchKey(descriptor, 0), what);
}

/** Gives how many slices could not be decoded here. */
async function verifyExtent(
  { descriptor, store, namespace }: BatchPlace,
  place: ExtentPlace,
  extent: Extent,
  { level, signal }: BatchCheck,
): Promise<number> {
  const key = batchKey(descriptor, place.extent);
  if (level === "bytes") {
    const bytes = await store.get(key, { signal, bytesMax: Math.max(extent.size, storedJsonBytesMax) });
    if (!bytes) throw damaged("MISSING_OBJECT", key, `it is not in ${store.uri}`);
    return auditBatchObject(bytes, key, namespace, descriptor, place, extent).undecoded;
  }
  // One byte more than there should be: an object that is too long is noticed without another request.
  const bytes = await store.getRange(key, extent.table, extent.size - extent.table + 1, { signal });
  if (!bytes) throw damaged("MISSING_OBJECT", key, `it is not in ${store.uri}`);
  const footer = decodeFooter(bytes, key, namespace, descriptor, place, extent);
  for (let i = 0; i < footer.cells; i++) checkStride(key, descriptor.stride, i, footer.entry(i));
  return 0;
}

function damaged(code: "CORRUPT" | "MISSING_OBJECT", key: string, what: string): BatchWeaveError {
  return new BatchWeaveError(code, `${key} is referenced by the log, and ${what}. Restore it from a copy.`, { key });
}

/** Per producer: seq after seq, each once, ending where its state says. */
class Sequences {
  readonly #log: Log;
  readonly #findings: Findings;
  readonly #next = new Map<string, { seq: number; epoch: number }>();

  constructor(log: Log, findings: Findings) {
    this.#log = log;
    this.#findings = findings;
  }

  /** Steps are missing here, and with them any number of every producer's batches. */
  lose(): void {
    this.#next.clear();
  }

  visit(descriptor: Descriptor, step: number): void {
    const { producer, seq, epoch } = descriptor;
    const before = this.#next.get(producer);
    const key = batchKey(descriptor, 0);
    if (before && before.seq !== seq)
      this.#error(`Step ${step} is seq ${seq} of ${producer}, and ${before.seq} must come next`, key, step);
    if (before && epoch < before.epoch)
      this.#error(`Step ${step} is of epoch ${epoch} of ${producer}, after one of ${before.epoch}`, key, step);
    this.#next.set(producer, { seq: seq + 1, epoch });
    const { order } = this.#log.spec;
    if (order.kind !== "lanes") return;
    const expected = firstOwnStep(this.#log.spec) + seq * order.lanes + laneNumber(producer, order.lanes);
    if (expected !== step)
      this.#error(`Step ${step} holds seq ${seq} of ${producer}, which is step ${expected}`, key, step);
  }

  async finish(manifest: Manifest, { signal }: BatchCheck): Promise<void> {
    const options: CallOptions = { signal };
    const states = new Map<string, number>();
    for (const ref of manifest.tables) {
      await this.#findings.check(async () => {
        for (const [id, { state }] of await this.#log.readTable(ref, options)) states.set(id, state.seq);
        this.#findings.counts.tables++;
      });
    }
    for (const [id, state] of manifest.producers) states.set(id, state.seq);
    this.#findings.counts.producers = states.size;
    for (const [id, { seq }] of this.#next) {
      const found = states.get(id);
      // Closing with dropWaiting leaves committed batches out; the state of their lanes has counted them.
      if (found === undefined || seqInLog(this.#log.spec, manifest, id, found) !== seq)
        this.#error(`The last batch of ${id} in the log is seq ${seq - 1}, and its state says ${(found ?? 0) - 1}`);
    }
  }

  #error(message: string, key?: string, step?: number): void {
    const where = { ...(key === undefined ? {} : { key }), ...(step === undefined ? {} : { step }) };
    this.#findings.error("sequence", `${message}. Report this.`, where);
  }
}
