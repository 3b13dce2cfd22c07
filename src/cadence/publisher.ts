/** Publishers: what brings uploaded batches into the log. */
import { type Descriptor, hasLeft, type Manifest } from "../format/index.js";
import type { BatchVerdict, Holder } from "../log/index.js";

/** What a producer shows its publisher. */
export interface Outbox {
  readonly holder: Holder;
  /** Uploaded batches not yet seen committed, contiguous from the first such seq. */
  pending(): readonly Descriptor[];
  /** A verified manifest: batches that its producer state has are acknowledged. Throws FENCED when another holds the id. */
  settle(manifest: Manifest): Promise<void>;
  /** A caller awaits the ticket of a pending batch: it is to be acknowledged soon after it is visible. */
  isAwaited(): boolean;
  /** Uploads that fell behind the orphan cutoff must be made again under a new name. */
  expire(batches: readonly Descriptor[]): void;
}

/** Runs until aborted. Throws what the producer must die of: FENCED, CLOSED, SEQUENCE_CONFLICT, a store that fails. */
export interface Publisher {
  run(outbox: Outbox, signal: AbortSignal): Promise<void>;
  /** Something new is pending, or a caller waits (`urgent`): do not wait out the gap for more batches to come. */
  nudge(urgent: boolean): void;
  /** The producer is closed, and `run` has ended: says so, so that no producer waits for it. Never fails, and takes a few round trips at most. */
  leave(outbox: Outbox): Promise<void>;
}

/** Tells the outbox what staging said of each batch. */
export function reportExpired(
  outbox: Outbox,
  batches: readonly Descriptor[],
  verdicts: readonly BatchVerdict[] | undefined,
): void {
  const expired = batches.filter((_, i) => verdicts?.[i] === "expired");
  if (expired.length > 0) outbox.expire(expired);
}

/** A producer counts as active when it committed within this many versions. */
const activeVersions = 1_024;

const counted = new WeakMap<Manifest, number>();

/**
 * Producers that committed lately and have not closed: recency in versions, not every id that ever lived. For questions where too many is safe and too few is not:
 * whether this one is alone, how many may try at once. Counted once per manifest.
 */
export function activeProducers(manifest: Manifest): number {
  let active = counted.get(manifest);
  if (active === undefined) {
    const since = manifest.version - activeVersions;
    active = 0;
    for (const state of manifest.producers.values()) if (state.at >= since && !hasLeft(state)) active++;
    counted.set(manifest, active);
  }
  return Math.max(1, active);
}

/** A producer that has not committed for so many rounds of the pool has left it; and how small a pool is told from a smaller one. */
const poolRounds = 3;
const poolProducersMin = 8;

const pools = new WeakMap<Manifest, number>();

/**
 * N, the producers that share the pace: those that have not closed and committed within the last 3 N versions, N being how many they are (the smallest such
 * number). A fixed number of versions is many rounds of a small pool, which would take itself for the large one it was for hours, and less than one of a very
 * large pool, which would take itself for a smaller one. docs/design/0003-cooperative-commit.md says why 3. Counted once per manifest.
 */
export function poolProducers(manifest: Manifest): number {
  let pool = pools.get(manifest);
  if (pool === undefined) {
    const states = [...manifest.producers.values()].filter((state) => !hasLeft(state));
    const ages = Float64Array.from(states, (state) => manifest.version - state.at).sort();
    // The least n so that no more than n producers are younger than n rounds of n.
    let n = poolProducersMin;
    while (n < ages.length && (ages[n] as number) < poolRounds * n) n++;
    pool = ages.findIndex((age) => age >= poolRounds * n);
    if (pool < 0) pool = ages.length;
    pools.set(manifest, pool);
  }
  return Math.max(1, pool);
}

/** Whether a carrier made this version. Old logs do not say: there, a version with batches is taken for a carrier's. */
export function isCarriers({ commit, version, producers }: Manifest): boolean {
  if (commit.kind !== undefined) return commit.kind === "carrier";
  for (const { at, epoch, incarnation, resume } of producers.values()) {
    const isOwn = resume.kind === "batch" && resume.batch.epoch === epoch && resume.batch.incarnation === incarnation;
    if (at === version && isOwn) return true;
  }
  return false;
}
