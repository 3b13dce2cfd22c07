/** How far the cutoff may go: clocks choose a candidate here, the chain decides. */
import { asVersion, type Manifest, type Version } from "../format/index.js";
import type { Log } from "../log/index.js";
import type { CallOptions } from "../store/index.js";

/** How far the cutoff stays behind the head. */
export interface Grace {
  /** An upload that began on the newest version is safe for so long. */
  readonly graceMs: number;
  /** And for so many versions, whatever the clock says. */
  readonly keepVersions: number;
}

/**
 * The newest version that was committed at least `graceMs` ago, by the clocks of its writers, and is `keepVersions` behind the head. A
 * wrong clock makes uploads expire early, which costs a second upload, or keeps garbage for longer; it never endangers anything.
 * Versions are searched by halving: a few dozen reads for millions of them.
 */
export async function chooseCutoff(
  log: Log,
  head: Manifest,
  { graceMs, keepVersions }: Grace,
  options?: CallOptions,
): Promise<Version> {
  const before = log.env.now() - graceMs;
  let low: number = head.orphanCutoff;
  let high = head.version - keepVersions;
  if (high <= low) return asVersion(low);
  const isOld = async (version: number): Promise<boolean> => {
    const manifest = version === head.version ? head : await log.head.read(asVersion(version), options);
    // Another reclaimer deleted it meanwhile, so it was old enough; the committed cutoff shows that.
    return manifest === undefined || manifest.commit.time <= before;
  };
  if (await isOld(high)) return asVersion(high);
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (await isOld(middle)) low = middle;
    else high = middle;
  }
  return asVersion(low);
}
