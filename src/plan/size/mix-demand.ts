/** What a step takes from each source, phase by phase, as the mixture says it ahead of time. Pure. */
import { type MixSchedule, mixPosition, type Weights } from "../mix/mix-schedule.js";

/** A stretch of steps and the shares in it. */
export interface DemandPhase {
  readonly name: string;
  /** First step. */
  readonly from: number;
  /** By source, in the order asked for; they add up to 1. */
  readonly shares: readonly number[];
}

/** Steps beyond which no phase is looked for. */
const stepsMax = 2 ** 40;

/** Shares of `names` at a step. Weights that a callback will decide are unknown: `otherwise` stands for them. */
function sharesAt(mix: MixSchedule, names: readonly string[], step: number, otherwise: Weights): number[] {
  const position = mixPosition(mix, step);
  const weights = mix.kind === "callback" ? otherwise : mix.weightsAt({ step, position, metrics: {} });
  const own = names.map((name) => weights[name] ?? 0);
  const sum = own.reduce((a, b) => a + b, 0);
  return own.map((weight) => (sum > 0 ? weight / sum : 0));
}

/** First step at which a schedule is in phase `phase` or a later one; undefined when that is after `end`. */
export function phaseStart(mix: MixSchedule, phase: number, end: number = stepsMax): number | undefined {
  const isThere = (step: number): boolean => mix.phaseAt(mixPosition(mix, step)) >= phase;
  let high = 1;
  while (high < end && !isThere(high)) high *= 2;
  high = Math.min(high, end - 1);
  if (!isThere(high)) return undefined;
  let low = -1;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (isThere(middle)) high = middle;
    else low = middle;
  }
  return high;
}

/**
 * Where shares change, up to `steps`. A phase in which they move (a warm-up) counts with its first and its last step: in between they lie in between.
 */
export function demandPhases(
  mix: MixSchedule,
  names: readonly string[],
  otherwise: Weights,
  steps: number = stepsMax,
): DemandPhase[] {
  const end = Math.min(steps, stepsMax);
  const starts = mix.phases.map((_, phase) => (phase === 0 ? 0 : phaseStart(mix, phase, end)));
  const phases: DemandPhase[] = [];
  mix.phases.forEach((name, phase) => {
    const from = starts[phase];
    if (from === undefined) return;
    const shares = sharesAt(mix, names, from, otherwise);
    phases.push({ name, from, shares });
    const next = starts.slice(phase + 1).find((start) => start !== undefined) ?? (steps < stepsMax ? end : undefined);
    if (next === undefined || next - 1 <= from) return;
    const last = sharesAt(mix, names, next - 1, otherwise);
    if (last.some((share, i) => Math.abs(share - (shares[i] as number)) > 1e-9))
      phases.push({ name: `${name}, its end`, from: next - 1, shares: last });
  });
  return phases;
}
