/** The base in a batch's name: a version that was known when the upload began. */
import { asVersion, type Version } from "../format/index.js";
import type { Log } from "../log/index.js";

/** Versions that share one base at most. */
const baseVersionsMax = 1_024;
/** And for how long: reclaim's grace (15 minutes by default) counts from the base, so it must not be much older than the upload. */
const baseMsMax = 60_000;
/** The first base is given up early: how fast versions come is not known before there are two. */
const firstBaseMsMax = 2_000;

interface BaseInUse {
  readonly base: Version;
  /** When it was chosen, and the newest version then. */
  readonly sinceMs: number;
  readonly version: number;
  readonly holdMs: number;
}

const inUse = new WeakMap<Log, BaseInUse>();

/**
 * At most the version known now, and not below its cutoff. Keys with the same base share a prefix, and on a file store that is a folder whose
 * making costs more than a small batch; so it moves on only now and then, and to a round number, which other producers choose as well. A lower
 * base is always safe: it can only make the upload expire sooner. It must not be lower for long either: with few versions a minute, an upload
 * would expire before it is done, for ever.
 */
export function uploadBase(log: Log): Version {
  const known = log.head.known;
  if (!known) return asVersion(0);
  const last = inUse.get(log);
  const nowMs = log.env.monotonic();
  const isCurrent =
    last !== undefined &&
    known.version - last.base < baseVersionsMax &&
    (known.version === last.base || nowMs - last.sinceMs < last.holdMs) &&
    last.base >= known.orphanCutoff;
  if (isCurrent) return last.base;
  const step = last ? roundStep(known.version - last.version, nowMs - last.sinceMs) : 1;
  const base = asVersion(Math.max(known.version - (known.version % step), known.orphanCutoff));
  inUse.set(log, { base, sinceMs: nowMs, version: known.version, holdMs: last ? baseMsMax : firstBaseMsMax });
  return base;
}

/** The largest power of two of versions that come within the time a base may be old. */
function roundStep(versions: number, elapsedMs: number): number {
  const fresh = Math.min(baseVersionsMax / 2, (versions / Math.max(1, elapsedMs)) * baseMsMax);
  return 2 ** Math.floor(Math.log2(Math.max(1, fresh)));
}

/** The newest version there is: for uploads that take long, and for those that expired once already. */
export async function newestBase(log: Log, signal: AbortSignal): Promise<Version> {
  const { version } = await log.head.jump({ signal });
  inUse.set(log, { base: version, sinceMs: log.env.monotonic(), version, holdMs: baseMsMax });
  return version;
}
