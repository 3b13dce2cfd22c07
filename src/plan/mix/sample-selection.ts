/** Choosing the samples of a batch: the mix says from which source, the bins say until when. */
import { BatchWeaveError, type Env } from "../../index.js";
import type { FillBins } from "../graph/fill-bins.js";
import type { Fault } from "../load/fault.js";
import type { SampleSupply, SuppliedSample, SupplyPosition } from "../load/sample-supply.js";
import { type MixSchedule, mixPosition, type Weights } from "./mix-schedule.js";
import { Mixer, TokenMixer, wholeShares } from "./mixer.js";
import { SeededRandom } from "./random.js";

/** What a batch is chosen from. */
export interface SelectionParts {
  readonly names: readonly string[];
  readonly supplies: readonly SampleSupply[];
  readonly mix: MixSchedule;
  readonly seed: number | string;
  readonly env: Env;
}

/** One batch's samples, in the order in which they were drawn, and where their sources stand after them. */
interface Selection {
  readonly samples: readonly SuppliedSample[];
  readonly faults: readonly Fault[];
  /** Of the sources that were touched. */
  readonly positions: ReadonlyMap<number, SupplyPosition>;
  /** What a callback decided, to be stored with the batch. */
  readonly decided: Weights | undefined;
  readonly debt: readonly number[];
}

/** Collects samples into bins and remembers what happened on the way. */
class Collector {
  readonly samples: SuppliedSample[] = [];
  readonly faults: Fault[] = [];
  readonly positions = new Map<number, SupplyPosition>();
  readonly ended = new Set<number>();
  readonly blocked = new Set<number>();
  readonly #parts: SelectionParts;
  readonly #bins: FillBins;
  readonly #signal: AbortSignal | undefined;

  constructor(parts: SelectionParts, bins: FillBins, signal: AbortSignal | undefined) {
    this.#parts = parts;
    this.#bins = bins;
    this.#signal = signal;
  }

  /** Takes the next sample of a source, if there is one and it fits; returns its tokens. */
  async take(source: number): Promise<number | "ended" | "full"> {
    const supply = this.#parts.supplies[source] as SampleSupply;
    const next = await supply.peek(this.#signal);
    if (!next.meta) {
      this.faults.push(...next.faults);
      if (next.faults.length > 0) this.positions.set(source, next.after);
      supply.take();
      this.ended.add(source);
      return "ended";
    }
    if (!this.#bins.place(next.meta)) {
      this.blocked.add(source);
      return "full";
    }
    supply.take();
    this.samples.push(next);
    this.faults.push(...next.faults);
    this.positions.set(source, next.after);
    return next.meta.tokens;
  }
}

/** Whether none of these sources has a sample left. Those that have one ready are asked first: nothing is opened to find out. */
async function areAtEnd(supplies: readonly SampleSupply[], signal: AbortSignal | undefined): Promise<boolean> {
  const ready = [...supplies].sort((a, b) => b.buffered - a.buffered);
  for (const supply of ready) if ((await supply.peek(signal)).meta !== undefined) return false;
  return true;
}

/** Draws a fixed number of samples a step. State between batches: the mixer's credits, and draws that did not fit. */
export class SampleSelector {
  readonly #parts: SelectionParts;
  readonly #perStep: number;
  readonly #mixer: Mixer;
  #at: number;

  constructor(
    parts: SelectionParts,
    perStep: number,
    state: { readonly at: number; readonly owed: readonly number[] },
  ) {
    this.#parts = parts;
    this.#perStep = perStep;
    this.#at = state.at;
    this.#mixer = new Mixer(parts.names, parts.mix, perStep, { at: state.at, credits: state.owed });
  }

  get owed(): number[] {
    return this.#mixer.credits;
  }

  get owedAt(): number {
    return this.#at;
  }

  /** Chooses the samples of `step`; `debt` comes first. */
  async select(
    step: number,
    bins: FillBins,
    debt: readonly number[],
    context: { readonly metrics: Readonly<Record<string, number>>; readonly recorded?: Weights | undefined },
    signal: AbortSignal | undefined,
  ): Promise<Selection> {
    const { mix, names } = this.#parts;
    // Steps of other lanes are drawn too, and dropped: then all lanes together follow one mix. A callback cannot be asked for them.
    if (mix.kind !== "callback") for (; this.#at < step; this.#at++) this.#mixer.drawStep(this.#at);
    const { draws, decided } = this.#mixer.drawStep(step, context.metrics, context.recorded);
    this.#at = step + 1;
    const collector = new Collector(this.#parts, bins, signal);
    const left = names.map(() => 0);
    const owed = debt.flatMap((count, source) => new Array<number>(count).fill(source));
    for (const [i, drawn] of [...owed, ...draws].entries()) {
      let source = drawn;
      for (let turn = 0; ; turn++) {
        if (collector.ended.has(source)) source = this.#substitute(step, i, turn, draws, collector.ended);
        if (source === -1) break;
        if (collector.blocked.has(source) || (await collector.take(source)) === "full") {
          left[source] = (left[source] as number) + 1;
          break;
        }
        if (!collector.ended.has(source)) break;
      }
    }
    return { ...pick(collector), decided, debt: left };
  }

  /** Whether no sample is left for `step` and all after it. */
  async isOver(_step: number, signal: AbortSignal | undefined): Promise<boolean> {
    return await areAtEnd(this.#parts.supplies, signal);
  }

  /** A source has ended: another of this step's takes its draw, in proportion, decided by the seed. */
  #substitute(step: number, i: number, turn: number, draws: Uint16Array, ended: ReadonlySet<number>): number {
    const open = [...draws].filter((source) => !ended.has(source));
    const others = open.length > 0 ? open : this.#parts.names.map((_, s) => s).filter((s) => !ended.has(s));
    if (others.length === 0) return -1;
    return others[new SeededRandom(this.#parts.seed, "substitute", step, i, turn).below(others.length)] as number;
  }

  get perStep(): number {
    return this.#perStep;
  }
}

/** Fills the bins of a step, by shares of tokens. State between batches: tokens each source is behind. */
export class FillSelector {
  readonly #parts: SelectionParts;
  readonly #mixer: TokenMixer;
  readonly #slots: number;
  readonly #lookahead: number;
  #phase: number;
  #at: number;

  constructor(
    parts: SelectionParts,
    settings: { readonly slots: number; readonly lookahead: number },
    state: { readonly at: number; readonly owed: readonly number[] },
  ) {
    this.#parts = parts;
    this.#slots = settings.slots;
    this.#lookahead = settings.lookahead;
    this.#mixer = new TokenMixer(parts.names.length, state.owed);
    this.#at = state.at;
    this.#phase = state.at === 0 ? -1 : parts.mix.phaseAt(mixPosition(parts.mix, state.at - 1));
  }

  get owed(): number[] {
    return this.#mixer.behind;
  }

  get owedAt(): number {
    return this.#at;
  }

  /** Chooses the samples of `step`. */
  async select(
    step: number,
    bins: FillBins,
    context: { readonly metrics: Readonly<Record<string, number>>; readonly recorded?: Weights | undefined },
    signal: AbortSignal | undefined,
  ): Promise<Selection> {
    const { mix, names } = this.#parts;
    const collector = new Collector(this.#parts, bins, signal);
    let decided: Weights | undefined;
    let position = Number.NaN;
    let tokens = 0;
    for (;;) {
      const here = mixPosition(mix, step, Math.min(tokens, this.#slots - 1), this.#slots);
      if (here !== position) {
        position = here;
        const phase = mix.phaseAt(here);
        if (phase !== this.#phase) this.#mixer.reset();
        this.#phase = phase;
        const weights = context.recorded ?? mix.weightsAt({ step, position, metrics: context.metrics });
        if (mix.kind === "callback") decided = weights;
        this.#mixer.setShares(wholeShares(weights, names));
      }
      const source = this.#mixer.next((s) => !collector.ended.has(s) && !collector.blocked.has(s));
      if (source === -1) break;
      const taken = await collector.take(source);
      if (taken === "full" && collector.blocked.size > this.#lookahead) break;
      if (typeof taken !== "number") continue;
      tokens += taken;
      this.#mixer.take(source, taken);
    }
    if (collector.samples.length === 0 && collector.blocked.size > 0) throw this.#tooLong([...collector.blocked], step);
    this.#at = step + 1;
    // A restart reads rounded numbers, so a running selector goes on with rounded ones.
    void this.#mixer.behind;
    return { ...pick(collector), decided, debt: [] };
  }

  /** Bins are empty and the next sample of a source fits into none: that is no end of the source. */
  #tooLong(sources: readonly number[], step: number): BatchWeaveError {
    const names = sources.map((source) => this.#parts.names[source]).join(", ");
    return new BatchWeaveError(
      "LIMIT",
      `Step ${step} cannot be filled: the next sample of ${names} fits into no empty sequence. Its loader must split or cut long samples for this pipeline (seqLength, memoryMax).`,
      { step, sources: sources.length },
    );
  }

  /** Whether no sample is left for `step`: of the sources that have a share there. */
  async isOver(step: number, signal: AbortSignal | undefined): Promise<boolean> {
    const { mix, names, supplies } = this.#parts;
    // What a callback will say is not known: as long as any source has samples, it may want them.
    if (mix.kind === "callback") return await areAtEnd(supplies, signal);
    const shares = wholeShares(mix.weightsAt({ step, position: mixPosition(mix, step), metrics: {} }), names);
    return await areAtEnd(
      supplies.filter((_, i) => (shares[i] as number) > 0),
      signal,
    );
  }
}

function pick({ samples, faults, positions }: Collector): Pick<Selection, "samples" | "faults" | "positions"> {
  return { samples, faults, positions };
}
