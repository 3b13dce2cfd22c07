/** Verify: walk a namespace and prove every reference, checksum and sequence. Changes nothing unless asked to repair. */
import { isBatchWeaveError } from "../errors.js";
import { inParallel } from "../flow/index.js";
import {
  asVersion,
  batchPrefix,
  boundaryKey,
  boundaryPrefix,
  decodeBoundary,
  indexPrefix,
  type Manifest,
  manifestKey,
  manifestPrefix,
  type Pin,
  parseBatchKey,
  parseIndexKey,
  parseManifestKey,
  type Version,
} from "../format/index.js";
import { type Log, sameRef } from "../log/index.js";
import type { ListedObject } from "../store/index.js";
import { indexObjects, visitSteps } from "./index-walk.js";
import { computeLive, firstIndexedStep, readRoot } from "./live-set.js";
import { type FindNamespace, needsPins, type OpenLog } from "./pins.js";
import { sweepDead } from "./reclaim.js";
import { type BatchCheck, verifyBatch, verifySteps } from "./verify-batches.js";
import { NewestVersion } from "./verify-newest.js";
import { Findings, type VerifyReport } from "./verify-report.js";

/** Settings of {@link verifyLog}. */
export interface VerifySettings {
  /** "footers" (default): every object is there and is the one committed. "bytes": every byte is read and checked. */
  readonly level?: "footers" | "bytes" | undefined;
  /** Remove what is provably unreachable: what a reclaim announced and did not get to. Nothing is changed in the log. */
  readonly repair?: boolean | undefined;
  /** Problems listed at most. Default 1,000. */
  readonly problemsMax?: number | undefined;
  /** Requests at a time. Default 16. */
  readonly requestsInFlightMax?: number | undefined;
}

/** How verify reaches other namespaces; without it forks and ancestors are not looked at. */
interface VerifyParts {
  readonly openLog?: OpenLog | undefined;
  readonly find?: FindNamespace | undefined;
  readonly signal?: AbortSignal | undefined;
}

const attemptsMax = 3;
/** Manifests and markers that are read and compared at most, the newest. */
const chainReadMax = 10_000;

/** Verifies the newest version. While reclaimers run, what they took away meanwhile is looked at again, not reported. */
export async function verifyLog(
  log: Log,
  settings: VerifySettings = {},
  parts: VerifyParts = {},
): Promise<VerifyReport> {
  const { signal } = parts;
  const level = settings.level ?? "footers";
  const check: BatchCheck = { level, inFlightMax: settings.requestsInFlightMax ?? 16, signal };
  for (let attempt = 1; ; attempt++) {
    const manifest = await log.head.jump({ signal });
    const findings = new Findings(settings.problemsMax ?? 1_000);
    await verifySteps(log, manifest, check, findings);
    await verifyState(log, manifest, findings, signal);
    await verifyPins(log, manifest, check, findings, parts);
    await verifyChain(log, manifest, findings, check);
    await countUnreferenced(log, manifest, findings, check);
    noteUnchecked(findings);
    const newer = await log.head.jump({ signal });
    const isOvertaken = newer.steps.trim > manifest.steps.trim || newer.orphanCutoff > manifest.orphanCutoff;
    if (findings.errors > 0 && isOvertaken && attempt < attemptsMax) continue;
    // Damage makes liveness uncertain: nothing is removed beside it.
    const repaired =
      settings.repair === true && findings.errors === 0 ? await sweepDead(log, newer, { signal }) : undefined;
    return {
      ok: findings.errors === 0,
      level,
      version: manifest.version,
      steps: { trim: manifest.steps.trim, end: manifest.steps.end },
      counts: findings.counts,
      problems: findings.problems,
      problemsOmitted: findings.omitted,
      repaired,
    };
  }
}

function noteUnchecked(findings: Findings): void {
  const { uncheckedSlices } = findings.counts;
  if (uncheckedSlices === 0) return;
  findings.add({
    severity: "warning",
    code: "unchecked",
    message: `${uncheckedSlices} slices are compressed with zstd, which this Node cannot decode: their stored bytes match their checksums, what is in them was NOT CHECKED. Verify with Node 22.15 or newer.`,
  });
}

/** Index, resume points, checkpoints. */
async function verifyState(
  log: Log,
  manifest: Manifest,
  findings: Findings,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { trim, end } = manifest.steps;
  await findings.check(async () => {
    const range = { tree: manifest, from: Math.max(trim, firstIndexedStep(log)), to: end };
    findings.counts.indexObjects += (await indexObjects(log, range, { signal })).length;
  });
  await inParallel(manifest.producers, 16, async ([id, state]) => {
    await findings.check(async () => {
      await log.readResumePoint(id, state, { signal }).catch((error) => {
        // A batch that is damaged at its step is said once, not again because it is its producer's last.
        if (!(isBatchWeaveError(error) && findings.isNamed(error.details["key"]))) throw error;
      });
    });
  });
  const { rows } = log.spec.grid;
  for (const [group, { live }] of manifest.checkpoints) {
    for (const [id, { row }] of live) {
      findings.counts.checkpoints++;
      if (row < trim * rows || row > end * rows)
        findings.error(
          "checkpoint",
          `Checkpoint ${id} of group ${group} is at row ${row}, outside of the log's rows ${trim * rows} to ${end * rows}. Report this.`,
        );
    }
  }
}

/** What forks hold here, and what this fork holds in its ancestors. */
async function verifyPins(
  log: Log,
  manifest: Manifest,
  check: BatchCheck,
  findings: Findings,
  parts: VerifyParts,
): Promise<void> {
  const { signal } = parts;
  for (const [id, pin] of manifest.pins) {
    findings.counts.pins++;
    await findings.check(() => verifyPin(log, manifest, pin, check, findings));
    if (parts.find && (await parts.find(pin.uri, { signal })) !== id) {
      findings.add({
        severity: "warning",
        code: "pin",
        message: `${pin.uri} does not hold the fork ${id}, which ${pin.confirmed ? "was deleted" : "was never finished, or is being made"}; its pin keeps steps ${pin.from} to ${pin.to - 1} here. If the place is right and reachable, remove the pin with releaseFork().`,
      });
    }
  }
  const isPinned = parts.openLog !== undefined && needsPins(log.spec, manifest.steps.trim);
  for (const origin of isPinned ? (log.spec.fork?.origins ?? []) : []) {
    await findings.check(async () => {
      const ancestor = await (parts.openLog as OpenLog)(origin.uri, origin.uuid, { signal });
      const pin = (await ancestor.head.jump({ signal })).pins.get(log.spec.uuid);
      if (!pin || !sameRef(pin.root, origin.root))
        findings.error(
          "pin",
          `${origin.uri} holds no pin for this fork: batches it shares may be reclaimed. Fork again.`,
        );
    });
  }
}

/** The part of a pin that the log itself has trimmed; the rest is verified as steps. */
async function verifyPin(log: Log, manifest: Manifest, pin: Pin, check: BatchCheck, findings: Findings): Promise<void> {
  const options = { signal: check.signal };
  const tree = await readRoot(log, pin, options);
  const range = { tree, from: Math.max(pin.from, firstIndexedStep(log)), to: pin.to };
  findings.counts.indexObjects += 1 + (await indexObjects(log, range, options)).length;
  const places: { descriptor: Parameters<Parameters<typeof visitSteps>[2]>[0]; step: number }[] = [];
  const below = { ...range, to: Math.min(pin.to, manifest.steps.trim) };
  await visitSteps(log, below, (descriptor, step) => places.push({ descriptor, step }), check.inFlightMax, options);
  await inParallel(places, check.inFlightMax, async ({ descriptor, step }) => {
    // What an ancestor of ours holds is verified there.
    if (descriptor.origin !== undefined) return;
    const place = { descriptor, store: log.store, namespace: log.spec.uuid };
    await findings.check(() => verifyBatch(place, log.spec.grid, check, findings), step);
  });
}

/** Boundary markers and the versions above the boundary: contiguous, readable, and nothing in them ever falls. */
async function verifyChain(log: Log, manifest: Manifest, findings: Findings, check: BatchCheck): Promise<void> {
  const { signal } = check;
  const boundary = await verifyMarkers(log, findings, check);
  const versions: Version[] = [];
  for await (const { key } of listed(log, manifestPrefix, signal, manifestKey(boundary))) {
    const version = parseManifestKey(key);
    if (version !== undefined && version <= manifest.version) versions.push(version);
  }
  findings.counts.manifests = versions.length;
  // Another reclaimer may raise the boundary and delete from below meanwhile.
  const upTo = await log.head.boundary.look({ signal });
  const above = versions.filter((version) => version > upTo);
  const expected = manifest.version - Math.max(upTo, 0);
  if (above.length !== expected && manifest.version > upTo)
    findings.error(
      "chain",
      `Of the versions ${upTo + 1} to ${manifest.version}, ${expected - above.length} are missing. Restore them.`,
    );
  let before: Manifest | undefined;
  for (const version of above.slice(-chainReadMax)) {
    await findings.check(async () => {
      const next = await log.head.read(version, { signal });
      const fault = before && next && fallen(before, next);
      if (fault)
        findings.error("chain", `Version ${version} lowers ${fault}. Report this.`, { key: manifestKey(version) });
      before = next ?? before;
    });
  }
}

function fallen(before: Manifest, next: Manifest): string | undefined {
  if (next.steps.trim < before.steps.trim) return "the trim";
  if (next.steps.end < before.steps.end) return "the end";
  if (next.orphanCutoff < before.orphanCutoff) return "the orphan cutoff";
  if (before.closed && !next.closed) return "a closed log to an open one";
  for (const [id, state] of before.producers) {
    const after = next.producers.get(id);
    if (after && (after.epoch < state.epoch || after.seq < state.seq)) return `the state of producer ${id}`;
  }
  return undefined;
}

async function verifyMarkers(log: Log, findings: Findings, { signal, inFlightMax }: BatchCheck): Promise<Version> {
  const keys: string[] = [];
  for await (const { key } of listed(log, boundaryPrefix, signal)) keys.push(key);
  findings.counts.boundaryMarkers = keys.length;
  keys.forEach((key, i) => {
    if (key !== boundaryKey(i + 1))
      findings.error("chain", `Boundary markers are not contiguous: ${key} is number ${i + 1}.`, { key });
  });
  const first = Math.max(1, keys.length - chainReadMax + 1);
  const upTo = new Map<number, Version>();
  const numbers = Array.from({ length: keys.length - first + 1 }, (_, i) => first + i);
  await inParallel(numbers, inFlightMax, async (n) => {
    await findings.check(async () => {
      const bytes = await log.store.get(boundaryKey(n), { signal });
      if (bytes) upTo.set(n, decodeBoundary(bytes, boundaryKey(n), log.spec.uuid, n).upTo);
    });
  });
  for (const n of numbers) {
    const [before, now] = [upTo.get(n - 1), upTo.get(n)];
    if (before !== undefined && now !== undefined && now <= before)
      findings.error("chain", `${boundaryKey(n)} does not raise the boundary.`, { key: boundaryKey(n) });
  }
  return upTo.get(keys.length) ?? asVersion(0);
}

/** Objects that nothing references: garbage for the next reclaim, or uploads under way. No problems, but good to know; and what all keys prove. */
async function countUnreferenced(log: Log, manifest: Manifest, findings: Findings, check: BatchCheck): Promise<void> {
  // Where something is damaged, what is referenced is not known.
  if (findings.errors > 0) return;
  const { signal, inFlightMax } = check;
  const scope = { basesBelow: Number.POSITIVE_INFINITY, fromStep: 0, inFlightMax };
  try {
    const live = await computeLive(log, manifest, scope, { signal });
    const count = (base: number | undefined, isLive: boolean): void => {
      if (base === undefined || isLive) return;
      if (base < manifest.orphanCutoff) findings.counts.reclaimableObjects++;
      else findings.counts.pendingObjects++;
    };
    const newest = new NewestVersion();
    for await (const { key } of listed(log, batchPrefix, signal)) {
      const name = parseBatchKey(key)?.name;
      count(name?.base, name !== undefined && live.hasBatch(name));
      if (name) newest.note(key, name.base, name);
    }
    for await (const { key } of listed(log, indexPrefix, signal)) {
      const base = parseIndexKey(key)?.base;
      count(base, live.hasIndexObject(key));
      if (base !== undefined) newest.note(key, base);
    }
    await newest.noteIntents(log, { signal });
    await newest.compare(log, findings, { signal });
  } catch (error) {
    // A reclaimer passed between the walk before and this one.
    if (!isBatchWeaveError(error, "MISSING_OBJECT")) throw error;
  }
}

async function* listed(
  log: Log,
  prefix: string,
  signal: AbortSignal | undefined,
  after?: string,
): AsyncGenerator<ListedObject> {
  for (let startAfter = after; ; ) {
    const page = await log.store.list(prefix, { startAfter, signal });
    yield* page.objects;
    startAfter = page.objects.at(-1)?.key;
    if (!page.more || startAfter === undefined) return;
  }
}
