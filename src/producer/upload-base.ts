/** The base in a batch's name: a version that was known when the upload began. */
import { asVersion, type Version } from "../format/index.js";
import type { Log } from "../log/index.js";

/** Versions that share one base at most. */
const baseVersionsMax = 1_024;
/** And for how long: reclaim's grace (15 minutes by default) counts from the base, so it must not be much older than the upload. */
const baseMsMax = 20_000;

/** Per log: the base in use, and since when. */
const inUse = new WeakMap<Log, { readonly base: Version; readonly sinceMs: number }>();

/**
 * At most the version known now, and not below its cutoff. Keys with the same base share a prefix, and on a file store that is a folder whose
 * making costs more than a small batch; so it moves on only now and then. A lower base is always safe: it can only make the upload
 * expire sooner. It must not be lower for long either: with few versions a minute, an upload would expire before it is done, for ever.
 */
export function uploadBase(log: Log): Version {
  const known = log.head.known;
  if (!known) return asVersion(0);
  const last = inUse.get(log);
  const nowMs = log.env.monotonic();
  const isCurrent =
    last !== undefined &&
    known.version - last.base < baseVersionsMax &&
    (known.version === last.base || nowMs - last.sinceMs < baseMsMax) &&
    last.base >= known.orphanCutoff;
  if (isCurrent) return last.base;
  inUse.set(log, { base: known.version, sinceMs: nowMs });
  return known.version;
}

/** The newest version there is: for uploads that take long, and for those that expired once already. */
export async function newestBase(log: Log, signal: AbortSignal): Promise<Version> {
  const { version } = await log.head.jump({ signal });
  inUse.set(log, { base: version, sinceMs: log.env.monotonic() });
  return version;
}
