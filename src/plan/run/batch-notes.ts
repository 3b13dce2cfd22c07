/** What is stored with a batch besides its slices: how it came about, and which samples it holds. Pure. */
import type { LineageSample } from "../../index.js";
import type { LoadPlan } from "../graph/load-plan.js";
import { countFaults, type Fault } from "../load/fault.js";
import type { SampleMeta } from "../load/sample-meta.js";
import type { Weights } from "../mix/mix-schedule.js";
import { shareUnit, wholeShares } from "../mix/mixer.js";

/** Who looks at a batch finds how it came about. */
export interface BatchNotes {
  readonly step: number;
  readonly phase: string;
  /** What a mix callback decided; making the batch again uses it instead of asking. */
  readonly mix?: Weights | undefined;
  readonly samples: number;
  readonly tokens: number;
  readonly slots: number;
  /** The schedule's share of each source at this step, and what it is a share of. */
  readonly schedule?: { readonly unit: "samples" | "tokens"; readonly shares: Weights } | undefined;
  /** Cost of each consumer (a row, or a chunk of one) as samples arrived and as planned, over the mean; up to 256 consumers. */
  readonly costs?: { readonly before: readonly number[]; readonly after: readonly number[] } | undefined;
  /** Max / mean cost over ranks and microbatches, as samples arrived and as planned. */
  readonly imbalance: { readonly before: LoadPlan["before"]; readonly after: LoadPlan["after"] };
  /** The batch of an earlier log that this one repeats. */
  readonly replayOf?: { readonly log: string; readonly step: number } | undefined;
  /** Samples, or rests of shards, that were left out or cut on the way; the first hundred by name. */
  readonly faults?: readonly Fault[] | undefined;
  readonly faultsMore?: number | undefined;
  /** All of them, counted by source and stage. */
  readonly faultCounts?: Readonly<Record<string, number>> | undefined;
  /** By source, tokens that were dropped because their samples are longer than a sequence. */
  readonly dropped?: Readonly<Record<string, number>> | undefined;
}

/** Faults named in a batch's notes at most; lineage names them all. */
const faultsNamedMax = 100;

/** Consumers whose costs are told one by one at most. */
const consumersMax = 256;

function costsOf({ arrived, buckets }: LoadPlan): BatchNotes["costs"] {
  const mean = arrived.reduce((sum, cost) => sum + cost, 0) / Math.max(1, arrived.length);
  // Four digits are enough to look at, and the notes stay small.
  const overMean = (cost: number): number => (mean === 0 ? 0 : Math.round((1_000 * cost) / mean) / 1_000);
  return { before: arrived.map(overMean), after: buckets.map(({ compute }) => overMean(compute)) };
}

/** Sources whose shares are told at most. */
const sourcesToldMax = 256;

/** What the schedule wants at a step, for people who compare: shares of one, to four digits. */
export function scheduleOf(
  weights: Weights,
  sources: readonly string[],
  unit: "samples" | "tokens",
): BatchNotes["schedule"] {
  if (sources.length > sourcesToldMax) return undefined;
  const shares = [...wholeShares(weights, sources)].map((part) => Math.round((10_000 * part) / shareUnit) / 10_000);
  const told = sources.map((name, i) => [name, shares[i] as number] as const).filter(([, share]) => share > 0);
  return { unit, shares: Object.fromEntries(told) };
}

/** The notes of a batch as it was planned. */
export function notesOf(
  { step, phase, mix, schedule }: Pick<BatchNotes, "step" | "phase" | "mix" | "schedule">,
  samples: readonly SampleMeta[],
  plan: LoadPlan,
  slots: number,
  faults: readonly Fault[],
): BatchNotes {
  const { before, after } = plan;
  const more = faults.length - faultsNamedMax;
  return {
    step,
    phase,
    samples: samples.length,
    tokens: samples.reduce((sum, { tokens }) => sum + tokens, 0),
    slots,
    imbalance: { before, after },
    ...(schedule ? { schedule } : {}),
    ...(plan.buckets.length > consumersMax ? {} : { costs: costsOf(plan) }),
    ...(mix ? { mix } : {}),
    ...(faults.length > 0 ? { faults: faults.slice(0, faultsNamedMax) } : {}),
    ...(more > 0 ? { faultsMore: more } : {}),
    ...(faults.length > 0 ? { faultCounts: countFaults(faults) } : {}),
    ...(faults.some(({ tokens }) => tokens) ? { dropped: droppedBy(faults) } : {}),
  };
}

function droppedBy(faults: readonly Fault[]): Record<string, number> {
  const dropped: Record<string, number> = {};
  for (const { source, tokens = 0 } of faults) if (tokens > 0) dropped[source] = (dropped[source] ?? 0) + tokens;
  return dropped;
}

/** Samples in the order of rows and bins; what was left out follows, without a row and without tokens. */
export function lineageOf(plan: LoadPlan, faults: readonly Fault[], chunks: number): LineageSample[] {
  const perRow = plan.axis === "dp" ? 1 : chunks;
  const placed = plan.buckets.flatMap(({ bins }, b) =>
    bins.flatMap((bin) =>
      bin.samples.map((i): LineageSample => {
        const { source, id, tokens } = plan.samples[i] as SampleMeta;
        return { source, id, tokens, row: Math.floor(b / perRow) };
      }),
    ),
  );
  const isGone = (fault: Fault): boolean => !(fault.stage === "length" && fault.reason.endsWith("truncated"));
  return [...placed, ...faults.filter(isGone).map(({ source, id }): LineageSample => ({ source, id, tokens: 0 }))];
}
