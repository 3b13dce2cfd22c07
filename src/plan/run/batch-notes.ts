/** What is stored with a batch besides its slices: how it came about, and which samples it holds. Pure. */
import type { LineageSample } from "../../index.js";
import type { LoadPlan } from "../graph/load-plan.js";
import { countFaults, type Fault } from "../load/fault.js";
import type { SampleMeta } from "../load/sample-meta.js";
import type { Weights } from "../mix/mix-schedule.js";

/** Who looks at a batch finds how it came about. */
export interface BatchNotes {
  readonly step: number;
  readonly phase: string;
  /** What a mix callback decided; making the batch again uses it instead of asking. */
  readonly mix?: Weights | undefined;
  readonly samples: number;
  readonly tokens: number;
  readonly slots: number;
  /** Max / mean cost over ranks and microbatches, as samples arrived and as planned. */
  readonly imbalance: { readonly before: LoadPlan["before"]; readonly after: LoadPlan["after"] };
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

/** The notes of a batch as it was planned. */
export function notesOf(
  { step, phase, mix }: Pick<BatchNotes, "step" | "phase" | "mix">,
  samples: readonly SampleMeta[],
  { before, after }: LoadPlan,
  slots: number,
  faults: readonly Fault[],
): BatchNotes {
  const more = faults.length - faultsNamedMax;
  return {
    step,
    phase,
    samples: samples.length,
    tokens: samples.reduce((sum, { tokens }) => sum + tokens, 0),
    slots,
    imbalance: { before, after },
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
