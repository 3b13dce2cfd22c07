/**
 * From shares to samples: which source each draw of a batch takes. Pure and without chance: after any number of draws a source has been
 * taken within one of its share, so a mixture is met exactly wherever whole numbers allow it.
 *
 * A draw gives every source credit in proportion to its share and takes one that has any, the one whose next draw is due first. Such an
 * order (earliest deadline first on one resource) meets every deadline.
 */
import { BatchWeaveError } from "../../index.js";
import { assertWeights, type MixSchedule, mixPosition, type Weights } from "./mix-schedule.js";

/** Shares are whole parts of this, so that credit is exact and has a short text. */
export const shareUnit = 1_000_000;

/** Weights as whole parts of {@link shareUnit}, in the order of `sources`: largest remainders first. */
export function wholeShares(weights: Weights, sources: readonly string[]): Int32Array {
  assertWeights(weights);
  const unknown = Object.keys(weights).filter((name) => !sources.includes(name));
  if (unknown.length > 0) {
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `The mix names ${unknown.join(", ")}, which ${unknown.length === 1 ? "is" : "are"} not among the sources (${sources.slice(0, 8).join(", ")}${sources.length > 8 ? ", …" : ""}).`,
      { unknown },
    );
  }
  const sum = Object.values(weights).reduce((a, b) => a + b, 0);
  const exact = sources.map((name) => ((weights[name] ?? 0) / sum) * shareUnit);
  const shares = Int32Array.from(exact, (x) => Math.floor(x + 1e-6));
  let left = shareUnit - shares.reduce((a, b) => a + b, 0);
  const order = exact.map((x, i) => [x - (shares[i] as number), i] as const).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  for (const [, i] of order) {
    if (left <= 0) break;
    if ((exact[i] as number) === 0) continue;
    shares[i] = (shares[i] as number) + 1;
    left--;
  }
  return shares;
}

/** Draws of whole steps under a schedule. The state is one whole number per source. */
export class Mixer {
  readonly #sources: readonly string[];
  readonly #schedule: MixSchedule;
  readonly #drawsPerStep: number;
  readonly #credits: Float64Array;
  #phase: number;
  #weights: Weights | undefined;
  #shares: Int32Array = new Int32Array(0);

  /** `at` and `credits`: where an earlier mixer stood (its {@link credits} after the draws of step `at - 1`). */
  constructor(
    sources: readonly string[],
    schedule: MixSchedule,
    drawsPerStep: number,
    state: { readonly at: number; readonly credits: readonly number[] } = { at: 0, credits: [] },
  ) {
    this.#sources = sources;
    this.#schedule = schedule;
    this.#drawsPerStep = drawsPerStep;
    this.#credits = Float64Array.from(sources, (_, i) => state.credits[i] ?? 0);
    this.#phase =
      state.at === 0 ? -1 : schedule.phaseAt(mixPosition(schedule, state.at - 1, drawsPerStep - 1, drawsPerStep));
  }

  /** What has to be kept to go on after the last step drawn. */
  get credits(): number[] {
    return [...this.#credits];
  }

  /**
   * The sources of one step's draws, by index. Steps must be drawn in order, each once. `recorded`: weights that were stored with the batch
   * (a callback is then not asked). Returns the weights too, where a callback decided them.
   */
  drawStep(
    step: number,
    metrics: Readonly<Record<string, number>> = {},
    recorded?: Weights | undefined,
  ): { readonly draws: Uint16Array; readonly decided: Weights | undefined } {
    const count = this.#drawsPerStep;
    const draws = new Uint16Array(count);
    let position = Number.NaN;
    for (let i = 0; i < count; i++) {
      const here = mixPosition(this.#schedule, step, i, count);
      if (here !== position) this.#enter(step, here, metrics, recorded);
      position = here;
      draws[i] = this.#draw();
    }
    return { draws, decided: this.#schedule.kind === "callback" ? this.#weights : undefined };
  }

  #enter(
    step: number,
    position: number,
    metrics: Readonly<Record<string, number>>,
    recorded: Weights | undefined,
  ): void {
    const phase = this.#schedule.phaseAt(position);
    // A phase owes nothing to the one before: its own mixture is met on its own.
    if (phase !== this.#phase) this.#credits.fill(0);
    this.#phase = phase;
    const weights = recorded ?? this.#schedule.weightsAt({ step, position, metrics });
    if (weights === this.#weights) return;
    this.#weights = weights;
    this.#shares = wholeShares(weights, this.#sources);
  }

  #draw(): number {
    const [credits, shares] = [this.#credits, this.#shares];
    let best = -1;
    let bestDue = Number.POSITIVE_INFINITY;
    for (let i = 0; i < shares.length; i++) {
      const share = shares[i] as number;
      if (share === 0) continue;
      const credit = (credits[i] as number) + share;
      credits[i] = credit;
      if (credit <= 0) continue;
      const due = Math.ceil((shareUnit - credit) / share);
      if (due < bestDue) [best, bestDue] = [i, due];
    }
    // Credits of active sources sum to one draw, unless shares just changed; then the one with the most goes.
    if (best === -1)
      shares.forEach((share, i) => {
        if (share > 0 && (best === -1 || (credits[i] as number) > (credits[best] as number))) best = i;
      });
    credits[best] = (credits[best] as number) - shareUnit;
    return best;
  }
}

/** Draws by tokens: the next sample comes from the source that is furthest behind its share of the tokens so far. */
export class TokenMixer {
  readonly #behind: Float64Array;
  #shares: Int32Array = new Int32Array(0);

  constructor(sources: number, behind: readonly number[] = []) {
    this.#behind = Float64Array.from({ length: sources }, (_, i) => behind[i] ?? 0);
  }

  /** Tokens each source is behind (or, below zero, ahead): whole numbers, rounded so that a restart sees what a running mixer sees. */
  get behind(): number[] {
    this.#behind.forEach((tokens, i) => {
      this.#behind[i] = Math.round(tokens) || 0;
    });
    return [...this.#behind];
  }

  /** Begins a phase: nothing is owed from the one before. */
  reset(): void {
    this.#behind.fill(0);
  }

  /** The shares from now on. */
  setShares(shares: Int32Array): void {
    this.#shares = shares;
  }

  /** The source to draw from, among those for which `isOpen`; -1 when there is none. */
  next(isOpen: (source: number) => boolean): number {
    let best = -1;
    for (let i = 0; i < this.#shares.length; i++) {
      if (this.#shares[i] === 0 || !isOpen(i)) continue;
      const [mine, most] = [this.#behind[i] as number, best === -1 ? -Infinity : (this.#behind[best] as number)];
      if (mine > most || (mine === most && (this.#shares[i] as number) > (this.#shares[best] as number))) best = i;
    }
    return best;
  }

  /** Records that `source` gave a sample of `tokens`. */
  take(source: number, tokens: number): void {
    for (let i = 0; i < this.#shares.length; i++) {
      this.#behind[i] = (this.#behind[i] as number) + (tokens * (this.#shares[i] as number)) / shareUnit;
    }
    this.#behind[source] = (this.#behind[source] as number) - tokens;
  }
}
