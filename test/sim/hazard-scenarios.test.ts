/**
 * Property: each hazard that a simulation can bring about happens, and every promise holds. Method: the scenario named after it, run for
 * a few seeds until everything it is about has happened. `npm run sim -- --scenario NAME --seeds 100` runs more.
 */
import { expect, test } from "vitest";
import { hazardScenarios } from "../../sim/scenarios/hazard-scenarios.js";
import { runSeed } from "../../sim/scenarios/seed-run.js";

/** Seeds within which everything must have happened. */
const seedsMax = 5;

test.each(hazardScenarios)("$name: $about", async (scenario) => {
  const missing = new Set(scenario.mustHappen);
  for (let seed = 1; seed <= seedsMax; seed++) {
    const { failure, counters } = await runSeed(scenario, seed);
    expect(failure, `npm run sim -- --scenario ${scenario.name} --replay ${seed}`).toBeUndefined();
    for (const name of missing) if (counters[name]) missing.delete(name);
    if (missing.size === 0) return;
  }
  expect([...missing], "never happened").toEqual([]);
});
