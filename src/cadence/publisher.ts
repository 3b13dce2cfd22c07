/** Publishers: what brings uploaded batches into the log. */
import type { Descriptor, Manifest } from "../format/index.js";
import type { BatchVerdict, Holder } from "../log/index.js";

/** What a producer shows its publisher. */
export interface Outbox {
  readonly holder: Holder;
  /** Uploaded batches not yet seen committed, contiguous from the first such seq. */
  pending(): readonly Descriptor[];
  /** A verified manifest: batches that its producer state has are acknowledged. Throws FENCED when another holds the id. */
  settle(manifest: Manifest): void;
  /** Uploads that fell behind the orphan cutoff must be made again under a new name. */
  expire(batches: readonly Descriptor[]): void;
}

/** Runs until aborted. Throws what the producer must die of: FENCED, CLOSED, SEQUENCE_CONFLICT, a store that fails. */
export interface Publisher {
  run(outbox: Outbox, signal: AbortSignal): Promise<void>;
  /** Something new is pending, or somebody waits (`urgent`): do not wait out the gap for more batches to come. */
  nudge(urgent: boolean): void;
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
export const activeVersions = 1_024;

const counted = new WeakMap<Manifest, number>();

/** Producers that committed lately: recency in versions, not every id that ever lived. Counted once per manifest. */
export function activeProducers(manifest: Manifest): number {
  let active = counted.get(manifest);
  if (active === undefined) {
    const since = manifest.version - activeVersions;
    active = 0;
    for (const state of manifest.producers.values()) if (state.at >= since) active++;
    counted.set(manifest, active);
  }
  return Math.max(1, active);
}
