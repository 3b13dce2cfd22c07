/** Shrinks the faults of a failing seed while it keeps failing in the same way. */
import type { FaultInstance } from "../world/faults.js";
import type { Scenario } from "./scenario.js";
import { runSeed, type SeedResult } from "./seed-run.js";

/** Options of {@link minimizeFaults}. */
export interface MinimizeOptions {
  /** Runs spent at most; 300 unless told. */
  readonly runsMax?: number | undefined;
}

/** What {@link minimizeFaults} found. */
export interface Minimized {
  /** The faults that are still needed. */
  readonly faults: readonly FaultInstance[];
  readonly result: SeedResult;
  readonly runs: number;
}

/**
 * Delta debugging over fault instances: drops halves, then quarters, and so on down to single ones, for as long as the run still
 * breaks the same property. The answer is small, not always the smallest.
 */
export async function minimizeFaults(
  scenario: Scenario,
  failing: SeedResult,
  options: MinimizeOptions = {},
): Promise<Minimized> {
  const runsMax = options.runsMax ?? 300;
  const property = failing.failure?.property;
  let kept = failing.faults.map((fault) => fault.id);
  let best = failing;
  let runs = 0;
  for (let pieces = 2; kept.length > 0 && runs < runsMax; ) {
    const size = Math.ceil(kept.length / pieces);
    let shrunk = false;
    for (let from = 0; from < kept.length && runs < runsMax; from += size) {
      const candidate = [...kept.slice(0, from), ...kept.slice(from + size)];
      const result = await runSeed(scenario, failing.seed, { filter: { only: new Set(candidate) } });
      runs++;
      if (result.failure?.property !== property) continue;
      best = result;
      kept = candidate;
      shrunk = true;
      break;
    }
    if (shrunk) pieces = Math.max(2, pieces - 1);
    else if (size <= 1) break;
    else pieces = Math.min(kept.length, pieces * 2);
  }
  return { faults: best.faults, result: best, runs };
}
