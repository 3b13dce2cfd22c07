/** Settings of a consumer, their defaults and limits. */
import { BatchWeaveError } from "../errors.js";
import type { MeshOptions } from "./job-environment.js";
import type { PrefetchSettings } from "./prefetch.js";
import type { ChunkLayout, Policy, RowsPerRank } from "./projection.js";
import type { ReaderSettings } from "./slice-reader.js";
import type { StartFrom } from "./start-position.js";

/** Settings of a consumer. `mesh` and `rank` default to what the environment says. */
export interface ConsumerSettings extends MeshOptions {
  /** Where to start. Default `"earliest"`. */
  readonly from?: StartFrom | undefined;
  /** Default `"per-rank"`. */
  readonly policy?: Policy | undefined;
  /** Default `"contiguous"`. */
  readonly layout?: ChunkLayout | undefined;
  /** Default 1. */
  readonly rowsPerRank?: RowsPerRank | undefined;
  /** Bytes read ahead at most; one share is always allowed, however large. Default 256 MiB. */
  readonly prefetchBytesMax?: number | undefined;
  /** Iterations read ahead at most. Default 32. */
  readonly prefetchIterationsMax?: number | undefined;
  /** Range reads in flight at most. Default 16. */
  readonly readsInFlightMax?: number | undefined;
  /** Slice tables kept in memory, in bytes, with what keeping them takes. Default 16 MiB. */
  readonly footerBytesMax?: number | undefined;
  /** First delay between two looks for a step that is not there yet; it grows while nothing comes. Default 50. */
  readonly pollDelayMs?: number | undefined;
  /** Longest such delay. Default 1,000. */
  readonly pollDelayMsMax?: number | undefined;
  /** How long `next()` waits for a step before it fails with WAIT_TIMEOUT. Default 10 minutes. */
  readonly waitTimeoutMs?: number | undefined;
}

/** Every limit, filled in. */
export interface ConsumerLimits extends PrefetchSettings, ReaderSettings {
  readonly waitTimeoutMs: number;
}

const defaults: ConsumerLimits = {
  prefetchBytesMax: 256 * 1024 * 1024,
  prefetchIterationsMax: 32,
  readsInFlightMax: 16,
  footerBytesMax: 16 * 1024 * 1024,
  pollDelayMs: 50,
  pollDelayMsMax: 1_000,
  waitTimeoutMs: 600_000,
};

/** Fills in the defaults and refuses what cannot work. */
export function consumerLimits(settings: ConsumerSettings): ConsumerLimits {
  const limits = { ...defaults };
  for (const name of Object.keys(defaults) as (keyof ConsumerLimits)[]) {
    const value = settings[name];
    if (value === undefined) continue;
    const min = name === "waitTimeoutMs" || name === "footerBytesMax" ? 0 : 1;
    if (typeof value !== "number" || !(value >= min)) {
      throw new BatchWeaveError("INVALID_ARGUMENT", `${name} must be a number of at least ${min}, not ${value}.`, {
        [name]: value,
      });
    }
    limits[name] = value;
  }
  return { ...limits, pollDelayMsMax: Math.max(limits.pollDelayMs, limits.pollDelayMsMax) };
}
