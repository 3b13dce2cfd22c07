/**
 * Sweeping only what can have died since the run before, for a process that reclaims again and again. With a million live batches a full
 * sweep lists and reads a million; this one costs what was written and trimmed in between. Everything here is a hint: when it does not fit,
 * or is lost, a full sweep finds the rest.
 */
import { type BatchName, batchKey, type Descriptor, type Manifest } from "../format/index.js";
import { visitSteps } from "./index-walk.js";
import { firstIndexedStep } from "./live-set.js";
import type { DeadObject, Sweep } from "./sweep.js";

/** A batch that was dead but for a producer's resume point in it. */
interface KeptBatch {
  readonly name: BatchName;
  readonly extents: number;
}

/** What a finished sweep leaves for the next one. */
export interface SweptBefore {
  readonly trim: number;
  readonly cutoff: number;
  readonly boundary: number;
  /** End of the log at version `cutoff`: what was uploaded since can only be at or above it. */
  readonly endAtCutoff: number;
  /** Trimmed batches that still hold a resume point. */
  readonly kept: readonly KeptBatch[];
  readonly pins: readonly string[];
}

/** Newly trimmed steps that are looked up one by one at most; of more, those old enough are found by listing. */
const newlyTrimmedMax = 65_536;

/**
 * Deletes the batches that this trim released, by name: their descriptors are in the index of the version before. They need not be older
 * than the cutoff. The cutoff protects uploads that are not committed yet, and a listing cannot tell those from others; these were
 * committed, at a step that is gone, so their producer's state is past them and no producer can stage them again. So storage follows the
 * checkpoints and not the grace. With a hint also those that were kept for a resume point and are not any more. Returns what is still kept.
 */
export async function sweepNewlyTrimmed(
  sweep: Sweep,
  since: SweptBefore | undefined,
  before: Manifest,
): Promise<KeptBatch[]> {
  const { log, manifest, live, inFlightMax, signal } = sweep;
  const pinned = [...manifest.pins.values()];
  const candidates: DeadObject[] = [];
  const kept: KeptBatch[] = [];
  const consider = (name: BatchName, extents: readonly { size: number }[]): void => {
    if (live.isLast(name)) {
      // Of younger bases the listing decides what is kept.
      if (since && name.base < since.cutoff) kept.push({ name, extents: extents.length });
      return;
    }
    extents.forEach(({ size }, extent) => {
      candidates.push({ key: batchKey(name, extent), size, kind: "batch", reason: "trimmed" });
    });
  };
  const visit = (descriptor: Descriptor, step: number): void => {
    if (descriptor.origin !== undefined || pinned.some((pin) => step >= pin.from && step < pin.to)) return;
    consider(descriptor, descriptor.extents);
  };
  const from = Math.max(before.steps.trim, firstIndexedStep(log));
  const to = Math.min(manifest.steps.trim, before.steps.end);
  if (since || to - from <= newlyTrimmedMax)
    await visitSteps(log, { tree: before, from, to }, visit, inFlightMax, { signal });
  for (const { name, extents } of since?.kept ?? [])
    consider(
      name,
      Array.from({ length: extents }, () => ({ size: 0 })),
    );
  candidates.sort((a, b) => (a.key < b.key ? -1 : 1));
  for (let at = 0; at < candidates.length; at += 1_000) await sweep.take(candidates.slice(at, at + 1_000));
  return kept;
}

/**
 * What the next run may build on; `kept` is what {@link sweepNewlyTrimmed} returned. Undefined when the version at the cutoff cannot be
 * vouched for: then the next run sweeps in full.
 */
export async function sweptNow(sweep: Sweep, kept: readonly KeptBatch[]): Promise<SweptBefore | undefined> {
  const { log, manifest, live, cutoff, fromBase, signal } = sweep;
  const atCutoff = cutoff === 0 ? undefined : await log.head.read(cutoff, { signal });
  // A forged version could claim a later end and hide live batches from the next run: only a look begun after the read vouches for it.
  if (cutoff > 0 && (!atCutoff || (await log.head.boundary.look({ signal })) >= cutoff)) return undefined;
  const all = [...kept];
  for (const [producer, { resume }] of manifest.producers) {
    if (resume.kind !== "batch") continue;
    const name = { producer, ...resume.batch };
    // Of older bases this run knows only what `kept` says: such a batch may well be live for its step.
    const isSwept = name.base >= fromBase && name.base < cutoff;
    if (isSwept && live.isOnlyLast(name)) all.push({ name, extents: resume.batch.extent + 1 });
  }
  return {
    trim: manifest.steps.trim,
    cutoff,
    boundary: sweep.boundary,
    endAtCutoff: atCutoff?.steps.end ?? 0,
    kept: all,
    pins: [...manifest.pins.keys()],
  };
}
