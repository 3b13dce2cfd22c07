/** Producers of a fork that go on from where they stood at the fork step. */
import { BatchWeaveError } from "../errors.js";
import { inParallel } from "../flow/index.js";
import {
  asSeq,
  asStep,
  asVersion,
  crc32,
  type Descriptor,
  encodeTable,
  indexKey,
  type LastBatch,
  type Manifest,
  type NodeRef,
  type ProducerState,
  type SilentProducer,
} from "../format/index.js";
import { firstOwnStep, type Log, laneNumber, laneSeqAt } from "../log/index.js";
import type { CallOptions, ObjectStore } from "../store/index.js";
import { visitSteps } from "./index-walk.js";

/** Producers that a fork can inherit at most. */
const inheritedProducersMax = 4_096;
/** Steps that are searched for the producers' last batches at most. */
const inheritedStepsMax = 262_144;
const windowSteps = 4_096;
const tableProducersMax = 64;
const readsInFlightMax = 16;

/** The state of every producer after step `at - 1`, with a copy of its resume point. Refused when one is gone. */
export async function producersAt(
  log: Log,
  manifest: Manifest,
  at: number,
  options?: CallOptions,
): Promise<Map<string, SilentProducer>> {
  if (at < firstOwnStep(log.spec)) {
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `Step ${at} was written before this namespace was forked itself. Fork the ancestor it came from, or let producers start afresh.`,
      { at, firstOwnStep: firstOwnStep(log.spec) },
    );
  }
  const known = await knownProducers(log, manifest, options);
  if (known.size > inheritedProducersMax) {
    throw new BatchWeaveError(
      "LIMIT",
      `${known.size} producers cannot be inherited, at most ${inheritedProducersMax}. Let producers start afresh.`,
      { producersMax: inheritedProducersMax },
    );
  }
  const isLanes = log.spec.order.kind === "lanes";
  const last = isLanes
    ? await lastOfLanes(log, manifest, at, known, options)
    : await lastBatches(log, manifest, at, known, options);
  // A producer without a batch of its own below `at` stands where this namespace, a fork itself, began.
  const inherited = [...last.values()].includes(undefined) ? await inheritedProducers(log, options) : undefined;
  const states = new Map<string, SilentProducer>();
  await inParallel(known, readsInFlightMax, async ([id, current]) => {
    const own: Current = last.has(id) ? { state: stateAfter(last.get(id)) } : current;
    const { state, ...copy } = own.state ? own : (inherited?.get(id) ?? {});
    if (!state) return;
    const resumePoint = "resumePoint" in copy ? copy.resumePoint : await log.readResumePoint(id, state, options);
    if (state.seq === 0 && resumePoint === undefined) return;
    // A lane's seq is its step, counted from the fork's first own one.
    const seq = isLanes ? asSeq(0) : state.seq;
    states.set(id, { state: { ...state, seq, at: asVersion(0), resume: { kind: "none" } }, resumePoint });
  });
  return new Map([...states].sort(([a], [b]) => (a < b ? -1 : 1)));
}

type Current = { readonly state: ProducerState | undefined; readonly resumePoint?: unknown };
type Known = { readonly state: ProducerState; readonly resumePoint?: unknown };

async function knownProducers(log: Log, manifest: Manifest, options?: CallOptions): Promise<Map<string, Known>> {
  const known = new Map<string, Known>();
  for (const ref of manifest.tables) for (const [id, entry] of await log.readTable(ref, options)) known.set(id, entry);
  for (const [id, state] of manifest.producers) known.set(id, { state });
  return known;
}

/** The states that this namespace itself inherited, as its `namespace.json` names them. */
async function inheritedProducers(log: Log, options?: CallOptions): Promise<Map<string, SilentProducer>> {
  const inherited = new Map<string, SilentProducer>();
  for (const ref of log.spec.fork?.tables ?? [])
    for (const [id, entry] of await log.readTable(ref, options)) inherited.set(id, entry);
  return inherited;
}

/** The same for lanes, whose steps say where each batch is: also after a closing that dropped what waited, which their states have counted. */
async function lastOfLanes(
  log: Log,
  manifest: Manifest,
  at: number,
  known: ReadonlyMap<string, Known>,
  options?: CallOptions,
): Promise<Map<string, Descriptor | undefined>> {
  const last = new Map<string, Descriptor | undefined>();
  const lanes = log.spec.order.kind === "lanes" ? log.spec.order.lanes : 1;
  await inParallel(known, readsInFlightMax, async ([id, { state }]) => {
    const seq = laneSeqAt(log.spec, id, at) ?? state.seq;
    if (seq >= state.seq) return;
    const step = firstOwnStep(log.spec) + (seq - 1) * lanes + laneNumber(id, lanes);
    if (seq > 0 && step < manifest.steps.trim) throw resumePointGone(id, at);
    last.set(id, seq === 0 ? undefined : (await log.locate(manifest, asStep(step), options)).descriptor);
  });
  return last;
}

/** By producer: its last batch below `at`, or undefined when its first one comes later; absent when nothing has changed since. */
async function lastBatches(
  log: Log,
  manifest: Manifest,
  at: number,
  known: ReadonlyMap<string, unknown>,
  options?: CallOptions,
): Promise<Map<string, Descriptor | undefined>> {
  const last = new Map<string, Descriptor | undefined>();
  const later = new Map<string, Descriptor>();
  const note = (d: Descriptor): void => {
    if (d.origin === undefined && d.seq < (later.get(d.producer)?.seq ?? Number.POSITIVE_INFINITY))
      later.set(d.producer, d);
  };
  const bottom = Math.max(manifest.steps.trim, firstOwnStep(log.spec));
  assertSearchable(manifest.steps.end - at, at);
  await visitSteps(log, { tree: manifest, from: at, to: manifest.steps.end }, note, readsInFlightMax, options);
  // Nothing happened since: the current states are the ones wanted.
  if (later.size === 0) return last;
  for (let to = at; to > bottom && later.size > last.size; to -= windowSteps) {
    assertSearchable(at - to, at);
    const found = new Map<string, Descriptor>();
    const range = { tree: manifest, from: Math.max(bottom, to - windowSteps), to };
    const visit = (d: Descriptor): void => {
      if (later.has(d.producer) && !last.has(d.producer) && d.seq >= (found.get(d.producer)?.seq ?? 0))
        found.set(d.producer, d);
    };
    await visitSteps(log, range, visit, readsInFlightMax, options);
    for (const [id, descriptor] of found) last.set(id, descriptor);
  }
  for (const [id, first] of later) {
    if (last.has(id) || !known.has(id)) continue;
    if (first.seq > 0 && (await inheritedProducers(log, options)).get(id)?.state.seq !== first.seq)
      throw resumePointGone(id, at);
    last.set(id, undefined);
  }
  return last;
}

function stateAfter(d: Descriptor | undefined): ProducerState | undefined {
  const extent = d?.extents.at(-1);
  if (!d || !extent) return undefined;
  const { epoch, incarnation, seq, base, attempt } = d;
  const { size, check } = extent;
  const batch: LastBatch = { epoch, incarnation, seq, base, attempt, extent: d.extents.length - 1, size, check };
  return { epoch, incarnation, seq: asSeq(seq + 1), at: asVersion(0), resume: { kind: "batch", batch } };
}

function assertSearchable(steps: number, at: number): void {
  if (steps <= inheritedStepsMax) return;
  throw new BatchWeaveError(
    "LIMIT",
    `The state of all producers at step ${at} is spread over more than ${inheritedStepsMax} steps. Fork nearer to the end, or let producers start afresh.`,
    { at, stepsMax: inheritedStepsMax },
  );
}

function resumePointGone(producer: string, at: number): BatchWeaveError {
  return new BatchWeaveError(
    "RECLAIMED",
    `The resume point of producer ${producer} as of step ${at} was reclaimed with its batch. Fork at a later step, or let producers start afresh.`,
    { producer, at },
  );
}

/** Writes tables into a namespace that does not exist yet and returns the references for its `namespace.json`. */
export async function writeTables(
  store: ObjectStore,
  namespace: string,
  commitId: string,
  producers: ReadonlyMap<string, SilentProducer>,
  options?: CallOptions,
): Promise<NodeRef[]> {
  const entries = [...producers];
  const refs: NodeRef[] = [];
  for (let at = 0; at < entries.length; at += tableProducersMax) {
    const bytes = encodeTable(namespace, new Map(entries.slice(at, at + tableProducersMax)));
    const ref: NodeRef = { base: asVersion(0), commitId, k: refs.length, check: crc32(bytes) };
    await store.put(indexKey(ref.base, commitId, ref.k), bytes, options);
    refs.push(ref);
  }
  return refs;
}
