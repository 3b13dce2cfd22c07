/** The state of a namespace, as plain data for people. Reads only. */
import {
  asVersion,
  type Grid,
  hasLeft,
  type Manifest,
  type NamespaceSpec,
  type Order,
  type ProducerState,
} from "../format/index.js";
import { type LiveCheckpoint, liveCheckpoints, reclaimWarning } from "../lifecycle/index.js";
import { firstOwnStep, type Log, listIntents, seqInLog } from "../log/index.js";
import type { CallOptions } from "../store/index.js";

/** A version's commit: who made it, what for (undefined in old logs), and when, by its maker's clock. */
interface LastCommit {
  readonly by: string;
  readonly kind: string | undefined;
  readonly timeMs: number;
}

/** One producer as the newest manifest knows it. */
export interface ProducerInfo {
  readonly id: string;
  readonly epoch: number;
  /** The next seq: so many batches of this id are in the log or wait in it. */
  readonly seq: number;
  /** Version of the manifest in which it last changed. */
  readonly version: number;
  /** Its holder has closed it, and it was not opened since. */
  readonly hasLeft: boolean;
  /** How often it was opened since its last batch was made: 0 while the one who made that batch holds it. */
  readonly openings: number;
  /** With detail: who made that version (another producer, when the batches were carried) and when; undefined when it is reclaimed. */
  readonly lastCommit?: LastCommit | undefined;
  /** With detail: batches that are uploaded and announced, and not committed yet. */
  readonly pending?: number | undefined;
}

/** Options of {@link readInfo}. */
export interface InfoOptions extends CallOptions {
  /** Look up last commits and pending batches of the producers too: one listing, and one request for each producer, 64 at most. */
  readonly detail?: boolean | undefined;
}

/** The state of a namespace, as `batchweave info` shows it. */
export interface NamespaceInfo {
  readonly uri: string;
  readonly uuid: string;
  readonly grid: Grid;
  readonly order: Order;
  /** Wall clock in ms. */
  readonly createdMs: number;
  readonly version: number;
  readonly closed: boolean;
  /** `[trim, end)` can be read. */
  readonly steps: { readonly trim: number; readonly end: number };
  readonly lastCommit: LastCommit;
  /** Producers that are inline in the manifest, the one that changed last first. */
  readonly producers: readonly ProducerInfo[];
  /** Sealed tables that hold the producers which have long been silent. */
  readonly silentTables: number;
  /** Lanes order: committed batches that wait for a missing step, and whose step that is. */
  readonly waiting: { readonly batches: number; readonly missingStep: number; readonly lane: string } | undefined;
  readonly checkpoints: readonly LiveCheckpoint[];
  readonly forks: readonly {
    readonly fork: string;
    readonly uri: string;
    readonly from: number;
    readonly to: number;
  }[];
  readonly origins: readonly { readonly uri: string; readonly uuid: string; readonly steps: number }[];
  /** Steps that producers may be ahead of the slowest group's newest checkpoint; undefined: any. */
  readonly maxLag: number | undefined;
  readonly boundary: number;
  readonly orphanCutoff: number;
  /** Set when the boundary is so far behind that no reclaimer can have run for long. */
  readonly warning: string | undefined;
}

/** Producers whose last commit is looked up. */
const detailMax = 64;

/** The state of a namespace at its head. */
export async function readInfo(uri: string, log: Log, options: InfoOptions = {}): Promise<NamespaceInfo> {
  const manifest = await log.head.jump({ signal: options.signal });
  const { spec } = log;
  const producers = [...manifest.producers]
    .map(([id, state]): ProducerInfo => {
      const seq = seqInLog(spec, manifest, id, state.seq);
      const openings = state.epoch - madeBy(state);
      return { id, epoch: state.epoch, seq, version: state.at, hasLeft: hasLeft(state), openings };
    })
    .sort((a, b) => b.version - a.version || (a.id < b.id ? -1 : 1));
  return {
    uri,
    uuid: spec.uuid,
    grid: spec.grid,
    order: spec.order,
    createdMs: spec.created,
    version: manifest.version,
    closed: manifest.closed,
    steps: manifest.steps,
    lastCommit: lastCommit(manifest.commit),
    producers: options.detail ? await withDetail(log, producers, options) : producers,
    silentTables: manifest.tables.length,
    waiting: waitingOf(log, manifest),
    checkpoints: liveCheckpoints(manifest, spec.grid.rows),
    forks: [...manifest.pins.values()].map(({ fork, uri: at, from, to }) => ({ fork, uri: at, from, to })),
    origins: originsOf(spec),
    maxLag: manifest.settings?.maxLag,
    boundary: log.head.boundary.newest.upTo,
    orphanCutoff: manifest.orphanCutoff,
    warning: await reclaimWarning(log, manifest, log.head.boundary.newest.upTo, options.signal),
  };
}

/** The epoch that made the last batch. Unknown when its state came back from a table: then the one before this. */
function madeBy({ resume, epoch }: ProducerState): number {
  if (resume.kind === "batch") return resume.batch.epoch;
  return resume.kind === "none" ? 0 : epoch - 1;
}

/** The ancestors of a fork, with how many of its steps' batches each holds: in sealed segments, and in the last run, which the fork keeps itself. */
function originsOf({ fork }: NamespaceSpec): NamespaceInfo["origins"] {
  if (!fork) return [];
  const inTail = fork.tail.batches.filter((_, i) => fork.tail.start + i >= (fork.trim ?? 0));
  return fork.origins.map(({ uri, uuid, ranges }, number) => ({
    uri,
    uuid,
    steps:
      ranges.reduce((sum, range) => sum + range.count, 0) + inTail.filter(({ origin }) => origin === number).length,
  }));
}

/** One version of the log, as its manifest tells of it. */
export interface CommitInfo extends LastCommit {
  readonly version: number;
  /** `[trim, end)` after it. */
  readonly steps: { readonly trim: number; readonly end: number };
}

/** A version's commit, for people: it is read without being verified. Undefined when it is reclaimed, or not there yet. */
export async function readCommit(log: Log, version: number, options?: CallOptions): Promise<CommitInfo | undefined> {
  if (!Number.isSafeInteger(version) || version < 1) return undefined;
  const manifest = await log.head.read(asVersion(version), options);
  return manifest && { version, steps: manifest.steps, ...lastCommit(manifest.commit) };
}

function lastCommit({ by, kind, time }: Manifest["commit"]): LastCommit {
  return { by, kind, timeMs: time };
}

/** Nothing is decided by this: manifests are read without being verified, and intents are hints. */
async function withDetail(
  log: Log,
  producers: readonly ProducerInfo[],
  { signal }: CallOptions,
): Promise<readonly ProducerInfo[]> {
  const { batches } = await listIntents(log.store, log.spec.uuid, { signal });
  const announced = [...batches.values()].flat();
  return await Promise.all(
    producers.map(async (producer, i) => {
      const pending = new Set(
        announced.filter((b) => b.producer === producer.id && b.seq >= producer.seq).map((b) => b.seq),
      ).size;
      if (i >= detailMax) return { ...producer, pending };
      const commit = (await log.head.read(asVersion(producer.version), { signal }))?.commit;
      return { ...producer, pending, lastCommit: commit && lastCommit(commit) };
    }),
  );
}

/** A log in lanes order that stands still: which lane all others wait for. */
function waitingOf({ spec }: Log, manifest: Manifest): NamespaceInfo["waiting"] {
  if (spec.order.kind !== "lanes" || manifest.waiting.size === 0) return undefined;
  const { end } = manifest.steps;
  const lane = `lane-${(end - firstOwnStep(spec)) % spec.order.lanes}`;
  return { batches: manifest.waiting.size, missingStep: end, lane };
}
