/** What a run has done, added up batch by batch: mixture by phase, balance, packing, faults. */
import { countFaults, type Fault } from "../load/fault.js";
import { type MixSchedule, mixPosition } from "../mix/mix-schedule.js";
import { shareUnit, wholeShares } from "../mix/mixer.js";
import type { PlannedBatch } from "./lane-planner.js";

/** One source in one phase: what the schedule wants of it and what it got. Shares of samples, or of tokens. */
interface MixtureShare {
  readonly source: string;
  readonly wanted: number;
  readonly achieved: number;
  readonly samples: number;
  readonly tokens: number;
}

/** The mixture of one phase. `unit`: what shares are of. `off`: the largest distance from the schedule, in units. */
interface PhaseMixture {
  readonly phase: string;
  readonly steps: number;
  readonly unit: "samples" | "tokens";
  readonly total: number;
  readonly off: number;
  readonly shares: readonly MixtureShare[];
}

/** Sums over batches. */
export interface RunSummary {
  readonly batches: number;
  readonly samples: number;
  readonly tokens: number;
  readonly slots: number;
  /** Real tokens / slots. */
  readonly packing: number;
  /** Means over batches of max / mean cost. */
  readonly before: { readonly ranks: number; readonly microbatches: number };
  readonly after: { readonly ranks: number; readonly microbatches: number };
  readonly mixture: readonly PhaseMixture[];
  /** By source and stage. */
  readonly faults: Readonly<Record<string, number>>;
  /** By source, tokens that were dropped because their samples are longer than a sequence. */
  readonly dropped: Readonly<Record<string, number>>;
}

/** What a summary is made from: one batch. */
type SummarizedBatch = Pick<PlannedBatch, "step" | "notes"> & {
  readonly samples: readonly { readonly source: string; readonly tokens: number }[];
  readonly faults: readonly Pick<Fault, "source" | "stage">[];
};

interface PhaseCount {
  steps: number;
  readonly samples: number[];
  readonly tokens: number[];
  /** The schedule's expectation, in parts of {@link shareUnit} of the batch's own total. */
  readonly wanted: number[];
}

/** Adds up batches. */
export class RunReport {
  readonly #names: readonly string[];
  readonly #mix: MixSchedule;
  readonly #unit: "samples" | "tokens";
  readonly #phases = new Map<number, PhaseCount>();
  readonly #faults = new Map<string, number>();
  readonly #dropped = new Map<string, number>();
  #batches = 0;
  #samples = 0;
  #tokens = 0;
  #slots = 0;
  readonly #sums = { before: { ranks: 0, microbatches: 0 }, after: { ranks: 0, microbatches: 0 } };

  constructor(names: readonly string[], mix: MixSchedule, unit: "samples" | "tokens") {
    this.#names = names;
    this.#mix = mix;
    this.#unit = unit;
  }

  add({ step, notes, samples, faults }: SummarizedBatch): void {
    this.#batches++;
    this.#samples += samples.length;
    this.#tokens += notes.tokens;
    this.#slots += notes.slots;
    for (const when of ["before", "after"] as const) {
      this.#sums[when].ranks += notes.imbalance[when].ranks;
      this.#sums[when].microbatches += notes.imbalance[when].microbatches;
    }
    // Notes name the first hundred and count them all.
    for (const [key, count] of Object.entries(notes.faultCounts ?? countFaults(faults)))
      this.#faults.set(key, (this.#faults.get(key) ?? 0) + count);
    for (const [source, tokens] of Object.entries(notes.dropped ?? {}))
      this.#dropped.set(source, (this.#dropped.get(source) ?? 0) + tokens);
    this.#count(step, notes, samples);
  }

  #count(step: number, notes: SummarizedBatch["notes"], samples: SummarizedBatch["samples"]): void {
    const position = mixPosition(this.#mix, step);
    const phase = this.#mix.phaseAt(position);
    const zeros = (): number[] => this.#names.map(() => 0);
    const count = this.#phases.get(phase) ?? { steps: 0, samples: zeros(), tokens: zeros(), wanted: zeros() };
    this.#phases.set(phase, count);
    count.steps++;
    const index = new Map(this.#names.map((name, i) => [name, i]));
    for (const { source, tokens } of samples) {
      const i = index.get(source) as number;
      count.samples[i] = (count.samples[i] as number) + 1;
      count.tokens[i] = (count.tokens[i] as number) + tokens;
    }
    const weights =
      notes.mix ?? (this.#mix.kind === "callback" ? undefined : this.#mix.weightsAt({ step, position, metrics: {} }));
    if (!weights) return;
    const total = this.#unit === "samples" ? samples.length : notes.tokens;
    wholeShares(weights, this.#names).forEach((share, i) => {
      count.wanted[i] = (count.wanted[i] as number) + share * total;
    });
  }

  summary(): RunSummary {
    const mean = (sum: number): number => (this.#batches === 0 ? 1 : sum / this.#batches);
    const { before, after } = this.#sums;
    return {
      batches: this.#batches,
      samples: this.#samples,
      tokens: this.#tokens,
      slots: this.#slots,
      packing: this.#slots === 0 ? 1 : this.#tokens / this.#slots,
      before: { ranks: mean(before.ranks), microbatches: mean(before.microbatches) },
      after: { ranks: mean(after.ranks), microbatches: mean(after.microbatches) },
      mixture: [...this.#phases].sort(([a], [b]) => a - b).map(([phase, count]) => this.#phase(phase, count)),
      faults: Object.fromEntries([...this.#faults].sort()),
      dropped: Object.fromEntries([...this.#dropped].sort()),
    };
  }

  #phase(phase: number, count: PhaseCount): PhaseMixture {
    const got = this.#unit === "samples" ? count.samples : count.tokens;
    const total = got.reduce((a, b) => a + b, 0);
    const shares = this.#names.map((source, i) => ({
      source,
      wanted: total === 0 ? 0 : (count.wanted[i] as number) / shareUnit / total,
      achieved: total === 0 ? 0 : (got[i] as number) / total,
      samples: count.samples[i] as number,
      tokens: count.tokens[i] as number,
    }));
    const off = Math.max(0, ...shares.map(({ wanted, achieved }) => Math.abs(wanted - achieved) * total));
    const name = this.#mix.phases[phase] ?? "all";
    return { phase: name, steps: count.steps, unit: this.#unit, total, off: Math.round(off * 1e6) / 1e6, shares };
  }
}
