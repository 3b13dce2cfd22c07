/**
 * Reclaim: physically deleting what the trim released. It never races, because it goes through the chain:
 *
 *   1. commit the new trim and the orphan cutoff     (from here on nothing below the cutoff can become live)
 *   2. compute what is live in that very version     (anything missing: stop, delete nothing)
 *   3. announce the boundary                         (from here on old manifest names mean nothing)
 *   4. delete, lowest first: what the trim released, by name; what lies below the cutoff and is not live, by listing
 *
 * A crash between any two leaves work for the next run, which finds it by listing. Two at once do the same work twice.
 */
import { BatchWeaveError, isBatchWeaveError } from "../errors.js";
import {
  asVersion,
  decodeTable,
  type Manifest,
  type NodeRef,
  type SilentProducer,
  type Version,
} from "../format/index.js";
import { Draft, type Log, sameRef, stageCutoff, stageTrim } from "../log/index.js";
import { chooseCutoff, type Grace } from "./cutoff.js";
import { computeLive, type LiveSet } from "./live-set.js";
import {
  type DeadObject,
  type Sweep,
  sweepBatches,
  sweepIndex,
  sweepIntents,
  sweepManifests,
  sweepUploads,
} from "./sweep.js";
import { type SweptBefore, sweepNewlyTrimmed, sweptNow } from "./sweep-window.js";
import { addCounts, type DeadCounts, type ReclaimObserver, Tally } from "./tally.js";

/** Settings of {@link reclaim}. */
export interface ReclaimSettings {
  /** How long an upload may take before its commit. Default 15 minutes. */
  readonly graceMs?: number | undefined;
  /** Versions that stay, whatever the clock says. Default 16. */
  readonly keepVersions?: number | undefined;
  /** Change nothing; say exactly what would be deleted, and why. */
  readonly dryRun?: boolean | undefined;
  /** Requests at a time. Default 8. */
  readonly requestsInFlightMax?: number | undefined;
}

/** What a reclaim did, or in a dry run would do. */
export interface ReclaimReport extends DeadCounts {
  readonly dryRun: boolean;
  /** The version that liveness was computed from. */
  readonly version: number;
  readonly trim: { readonly before: number; readonly after: number };
  readonly cutoff: { readonly before: number; readonly after: number };
  readonly boundary: { readonly before: number; readonly after: number };
  /** Versions between the boundary and the head. */
  readonly lagVersions: number;
  /** Age of the oldest version that is not announced, in ms. */
  readonly lagMs: number;
  /** True: everything below the cutoff was listed. False: only what can have died since the run before. */
  readonly full: boolean;
  /** Set when something was left undone that does no harm but costs storage. */
  readonly warning: string | undefined;
  /** Dry run: every object that would go. */
  readonly dead: readonly DeadObject[] | undefined;
}

const defaults = { graceMs: 900_000, keepVersions: 16, requestsInFlightMax: 8 };
const liveAttemptsMax = 3;

/** Components of a reclaim. */
interface ReclaimParts {
  readonly observer?: ReclaimObserver | undefined;
  readonly signal?: AbortSignal | undefined;
}

interface Reclaimed {
  readonly report: ReclaimReport;
  readonly swept: SweptBefore | undefined;
}

/** Deletes what no reader, producer or fork can need any more. Safe to interrupt, to repeat and to run twice at once. */
export async function reclaim(
  log: Log,
  settings: ReclaimSettings = {},
  parts: ReclaimParts = {},
): Promise<ReclaimReport> {
  return (await reclaimSince(log, settings, parts, undefined)).report;
}

/** As {@link reclaim}, going on from what an earlier run of this process remembers. Only a hint: without it more is listed. */
export async function reclaimSince(
  log: Log,
  settings: ReclaimSettings,
  parts: ReclaimParts,
  earlier: SweptBefore | undefined,
): Promise<Reclaimed> {
  try {
    return await reclaimOnce(log, settings, parts, earlier);
  } catch (error) {
    if (!isBatchWeaveError(error, "STORE_FULL")) throw error;
    // It commits before it deletes, and there is no room for that. What the chain has let go of already may be deleted without writing anything.
    const freed = await sweepDead(log, await log.head.jump(parts), parts);
    if (!Object.values(freed).some(({ objects }) => objects > 0)) throw noRoom(log, error);
    const { report, swept } = await reclaimOnce(log, settings, parts, undefined).catch((again) => {
      throw isBatchWeaveError(again, "STORE_FULL") ? noRoom(log, again) : again;
    });
    return { report: { ...report, ...addCounts(report, freed) }, swept };
  }
}

/** STORE_FULL, from a reclaimer that was asked to make room. */
function noRoom(log: Log, cause: BatchWeaveError): BatchWeaveError {
  return new BatchWeaveError(
    "STORE_FULL",
    `${log.store.uri} is full, and reclaim must write two small objects, a manifest and a boundary marker, before it may delete anything more. Make a little room beside the namespace (1 MB is plenty), or enlarge the store, and run it again; do not delete objects by hand.`,
    cause.details,
    cause,
  );
}

async function reclaimOnce(
  log: Log,
  settings: ReclaimSettings,
  parts: ReclaimParts,
  earlier: SweptBefore | undefined,
): Promise<Reclaimed> {
  const { signal } = parts;
  const dryRun = settings.dryRun === true;
  const inFlightMax = settings.requestsInFlightMax ?? defaults.requestsInFlightMax;
  const grace: Grace = {
    graceMs: settings.graceMs ?? defaults.graceMs,
    keepVersions: settings.keepVersions ?? defaults.keepVersions,
  };
  await log.presence.ask({ signal });
  const base = await log.head.jump({ signal });
  const before = { base, boundary: log.head.boundary.newest.upTo };
  const wanted = await chooseCutoff(log, base, grace, { signal });
  let manifest = dryRun ? await planVersion(log, base, wanted, signal) : await commitRelease(log, wanted, signal);
  // Hints hold only for the very state they were made from.
  const since = earlier && isNext(earlier, base, manifest) ? earlier : undefined;
  let live: LiveSet | undefined;
  for (let attempt = 1; !live; attempt++) {
    try {
      const fromStep = since?.endAtCutoff ?? 0;
      live = await computeLive(log, manifest, { basesBelow: manifest.orphanCutoff, fromStep, inFlightMax }, { signal });
    } catch (error) {
      // Another reclaimer may have deleted what this version still needed, after a further trim or the release of a pin. Otherwise it is a
      // loss: stop here.
      if (dryRun || !isBatchWeaveError(error, "MISSING_OBJECT") || attempt === liveAttemptsMax) throw error;
      const newer = await log.head.jump({ signal });
      if (newer.version <= manifest.version) throw error;
      manifest = newer;
    }
  }
  const boundary = dryRun
    ? asVersion(Math.max(before.boundary, lastReleased(manifest)))
    : await announce(log, manifest, signal);
  const tally = new Tally(log, dryRun, parts.observer, signal);
  const sweep: Sweep = {
    log,
    manifest,
    live,
    cutoff: manifest.orphanCutoff,
    fromBase: since?.cutoff ?? 0,
    boundary,
    fromBoundary: since?.boundary ?? 0,
    inFlightMax,
    ...tally.ways,
    signal,
  };
  const kept = await sweepNewlyTrimmed(sweep, since, base).catch((error) => {
    // Another reclaimer deleted the index of those steps, after their batches or before; then they are listed, as soon as they are old
    // enough: by this run if it lists everything, by the next one otherwise.
    if (!isBatchWeaveError(error, "MISSING_OBJECT")) throw error;
    return since ? undefined : [];
  });
  await tally.flush();
  await sweepAll(sweep, tally);
  const report: ReclaimReport = {
    dryRun,
    version: manifest.version,
    trim: { before: base.steps.trim, after: manifest.steps.trim },
    cutoff: { before: base.orphanCutoff, after: manifest.orphanCutoff },
    boundary: { before: before.boundary, after: boundary },
    ...tally.counts(),
    ...(await boundaryLag(log, manifest, boundary, signal)),
    full: since === undefined,
    warning: tally.warning,
    dead: tally.dead,
  };
  return { report, swept: dryRun || !kept ? undefined : await sweptNow(sweep, kept) };
}

/** Deletes what the newest version already says is dead, without changing the log: what `verify --repair` may do. */
export async function sweepDead(log: Log, manifest: Manifest, parts: ReclaimParts = {}): Promise<DeadCounts> {
  const { signal } = parts;
  const inFlightMax = defaults.requestsInFlightMax;
  const cutoff = manifest.orphanCutoff;
  await log.presence.ask({ signal });
  const live = await computeLive(log, manifest, { basesBelow: cutoff, fromStep: 0, inFlightMax }, { signal });
  const boundary = await log.head.boundary.look({ signal });
  const tally = new Tally(log, false, parts.observer, signal);
  await sweepAll(
    { log, manifest, live, cutoff, fromBase: 0, boundary, fromBoundary: 0, inFlightMax, ...tally.ways, signal },
    tally,
  );
  return tally.counts();
}

async function sweepAll(sweep: Sweep, tally: Tally): Promise<void> {
  for (const phase of [sweepBatches, sweepUploads, sweepIndex, sweepManifests, sweepIntents]) {
    await phase(sweep);
    await tally.flush();
  }
}

/** The hint fits: no other reclaimer trimmed, unpinned or swept differently in between. */
function isNext(earlier: SweptBefore, base: Manifest, manifest: Manifest): boolean {
  return (
    earlier.trim === base.steps.trim &&
    earlier.cutoff <= manifest.orphanCutoff &&
    earlier.pins.every((id) => manifest.pins.has(id))
  );
}

/** The highest version that a manifest lets go of. */
function lastReleased(manifest: Manifest): Version {
  return asVersion(Math.max(0, manifest.orphanCutoff - 1));
}

/** Commits trim and cutoff, and drops tables that hold no producer's state any more. */
async function commitRelease(log: Log, wanted: Version, signal: AbortSignal | undefined): Promise<Manifest> {
  const { manifest } = await log.commit<readonly NodeRef[], undefined>(
    {
      by: "reclaim log",
      kind: "reclaim",
      prepare: (base) => supersededTables(log, base, signal),
      stage: (draft, superseded) => {
        stageRelease(draft, log, wanted, superseded);
        const { base } = draft;
        const done =
          draft.trim === base.steps.trim &&
          draft.orphanCutoff === base.orphanCutoff &&
          draft.tables.length === base.tables.length;
        return { done, result: undefined };
      },
    },
    { signal, fresh: true },
  );
  return manifest;
}

function stageRelease(draft: Draft, log: Log, wanted: Version, superseded: readonly NodeRef[]): void {
  stageTrim(draft, log.spec.grid.rows);
  stageCutoff(draft, wanted);
  draft.tables = draft.tables.filter((ref) => !superseded.some((other) => sameRef(ref, other)));
}

/** What {@link commitRelease} would commit, without committing it. */
async function planVersion(
  log: Log,
  base: Manifest,
  wanted: Version,
  signal: AbortSignal | undefined,
): Promise<Manifest> {
  const draft = new Draft(base, { ...base.commit, boundaryHint: base.boundaryHint });
  stageRelease(draft, log, wanted, await supersededTables(log, base, signal));
  return draft.finish();
}

/** Tables all of whose producers are inline or in a newer table. Read only when there are several: one cannot replace itself. */
async function supersededTables(log: Log, base: Manifest, signal: AbortSignal | undefined): Promise<NodeRef[]> {
  if (base.tables.length < 2) return [];
  const from = { store: log.store, namespace: log.spec.uuid };
  const seen = new Set<string>(base.producers.keys());
  const superseded: NodeRef[] = [];
  for (const ref of [...base.tables].reverse()) {
    const table: Map<string, SilentProducer> = await log.index.readObject(from, ref, decodeTable, { signal });
    if ([...table.keys()].every((id) => seen.has(id))) superseded.push(ref);
    for (const id of table.keys()) seen.add(id);
  }
  return superseded;
}

/** Announces before anything is deleted; returns what the chain then shows. */
async function announce(log: Log, manifest: Manifest, signal: AbortSignal | undefined): Promise<Version> {
  const upTo = lastReleased(manifest);
  const { boundary } = log.head;
  if (upTo === 0) return await boundary.look({ signal });
  return await boundary.announce(upTo, manifest.version, log.env, { signal });
}

/** How far the boundary is behind the head: large means that no reclaimer has run for long. */
async function boundaryLag(
  log: Log,
  head: Manifest,
  boundary: Version,
  signal?: AbortSignal | undefined,
): Promise<{ lagVersions: number; lagMs: number }> {
  const oldest = asVersion(boundary + 1);
  const first = oldest >= head.version ? head : await log.head.read(oldest, { signal });
  const time = first?.commit.time ?? head.commit.time;
  return { lagVersions: head.version - boundary, lagMs: Math.max(0, log.env.now() - time) };
}

/** Beyond both of these an operator should look whether a reclaimer runs. */
const lagVersionsWarned = 10_000;
const lagMsWarned = 6 * 3_600_000;

/** A sentence when no reclaimer can have run for long. Costs a request only when there are very many versions. */
export async function reclaimWarning(
  log: Log,
  head: Manifest,
  boundary: Version,
  signal?: AbortSignal | undefined,
): Promise<string | undefined> {
  if (head.version - boundary < lagVersionsWarned) return undefined;
  const { lagVersions, lagMs } = await boundaryLag(log, head, boundary, signal);
  if (lagMs < lagMsWarned) return undefined;
  return `The boundary is ${lagVersions} versions and ${Math.round(lagMs / 3_600_000)} hours behind the head: no reclaimer has run for that long, and storage grows. Run \`batchweave reclaim --watch\`, or let rank 0 reclaim.`;
}
