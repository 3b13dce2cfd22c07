/** What a run of the real code looks like, as data; every number may be a range from which the seed draws. */

import type { Takeover } from "../../src/cadence/index.js";
import type { Grid } from "../../src/format/index.js";
import type { Rng } from "../world/random.js";

/** A fixed value, a range of whole numbers (both ends may come), or a choice. */
export type Drawn<T> = T | readonly [number, number] | { readonly oneOf: readonly T[] };

/** Settings of the cast `weave`. */
export interface WeaveSettings {
  /** Producer processes that run all the time; in lanes order, the lanes. */
  readonly producers?: Drawn<number> | undefined;
  /** Ids that come for a batch or two, fall silent and return. Not in lanes order. */
  readonly guests?: Drawn<number> | undefined;
  /** Training jobs that read. */
  readonly jobs?: Drawn<number> | undefined;
  /** Ranks of a job at most. */
  readonly ranksMax?: Drawn<number> | undefined;
  /** And at least; there must be a mesh of such a size for every grid. */
  readonly ranksMin?: number | undefined;
  readonly reclaimers?: Drawn<number> | undefined;
  /** Jobs that read slowly and never register a checkpoint, so that reclaim overtakes them. */
  readonly stragglers?: Drawn<number> | undefined;
  /** Ways to open an id that somebody may hold. */
  readonly takeovers?: readonly Takeover[] | undefined;
  /** Clocks of processes are off by up to so much. */
  readonly skewMsMax?: number | undefined;
  /** After everything: what a last reclaim leaves, and what becomes of a bit that flips at rest. */
  readonly isAutopsied?: boolean | undefined;
  readonly order?: Drawn<"commit" | "lanes"> | undefined;
  readonly cadences?: readonly CadenceName[] | undefined;
  readonly rows?: Drawn<number> | undefined;
  readonly chunks?: Drawn<number> | undefined;
  /** Mean time between two batches of a producer. */
  readonly appendGapMs?: Drawn<number> | undefined;
  /** Mean time a rank computes. */
  readonly trainMs?: Drawn<number> | undefined;
  /** Iterations between two checkpoints. */
  readonly checkpointEvery?: Drawn<number> | undefined;
  readonly keepLast?: Drawn<number> | undefined;
  /** How long ago a version must have been the head before what is older may go. */
  readonly graceMs?: Drawn<number> | undefined;
  /** And how many versions ago. */
  readonly keepVersions?: Drawn<number> | undefined;
  readonly reclaimGapMs?: Drawn<number> | undefined;
  /** Share of runs in which the log is closed while producers still append. */
  readonly earlyCloseRate?: number | undefined;
}

/** Ways to commit. */
export type CadenceName = "interval" | "dac" | "cooperative";

/** Everything drawn. */
export interface WeavePlan {
  readonly producers: readonly string[];
  readonly guests: readonly string[];
  readonly jobs: number;
  readonly ranksMax: number;
  readonly ranksMin: number;
  readonly reclaimers: number;
  readonly stragglers: number;
  readonly takeovers: readonly Takeover[];
  readonly skewMsMax: number;
  readonly isAutopsied: boolean;
  readonly order: "commit" | "lanes";
  readonly cadences: readonly CadenceName[];
  readonly grid: Grid;
  readonly appendGapMs: number;
  readonly trainMs: number;
  readonly checkpointEvery: number;
  readonly keepLast: number;
  readonly graceMs: number;
  readonly keepVersions: number;
  readonly reclaimGapMs: number;
  readonly closesEarly: boolean;
}

function draw<T extends string | number>(rng: Rng, value: Drawn<T>): T {
  if (Array.isArray(value)) return (value[0] + rng.below(value[1] - value[0] + 1)) as T;
  if (typeof value === "object" && "oneOf" in value) return rng.pick(value.oneOf);
  return value as T;
}

/** Draws a run from its settings. */
export function drawPlan(settings: WeaveSettings, rng: Rng): WeavePlan {
  const order = draw<"commit" | "lanes">(rng, settings.order ?? "commit");
  const producers = draw(rng, settings.producers ?? 4);
  const guests = draw(rng, settings.guests ?? 0);
  const prefix = order === "lanes" ? "lane" : "producer";
  return {
    order,
    producers: Array.from({ length: producers }, (_, i) => `${prefix}-${i}`),
    guests: order === "lanes" ? [] : Array.from({ length: guests }, (_, i) => `guest-${i}`),
    jobs: draw(rng, settings.jobs ?? 1),
    ranksMax: draw(rng, settings.ranksMax ?? 4),
    ranksMin: settings.ranksMin ?? 1,
    reclaimers: draw(rng, settings.reclaimers ?? 0),
    stragglers: settings.stragglers === undefined ? 0 : draw(rng, settings.stragglers),
    takeovers: settings.takeovers ?? [true, true, true, true, true, true, true, true, true, false],
    skewMsMax: settings.skewMsMax ?? 600_000,
    isAutopsied: settings.isAutopsied ?? false,
    cadences: settings.cadences ?? ["interval"],
    grid: { rows: draw(rng, settings.rows ?? 2), chunks: draw(rng, settings.chunks ?? 2) },
    appendGapMs: draw(rng, settings.appendGapMs ?? 600),
    trainMs: draw(rng, settings.trainMs ?? 200),
    checkpointEvery: draw(rng, settings.checkpointEvery ?? 10),
    keepLast: draw(rng, settings.keepLast ?? 2),
    graceMs: draw(rng, settings.graceMs ?? 10_000),
    keepVersions: draw(rng, settings.keepVersions ?? 16),
    reclaimGapMs: draw(rng, settings.reclaimGapMs ?? 5000),
    closesEarly: rng.chance(settings.earlyCloseRate ?? 0),
  };
}
