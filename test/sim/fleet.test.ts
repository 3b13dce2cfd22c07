/**
 * Property: loaders and constructors that are killed, suspended, told to leave and added write the log that one undisturbed process writes, with every sample
 * once; a rank and a reclaimer beside them find everything they need. Method: a seed of the scenario `fleet`, run twice to the same trace;
 * `npm run sim -- --scenario fleet --seeds 200` runs more.
 */
import { expect, test } from "vitest";
import { type Scenario, scenarios } from "../../sim/scenarios/scenario.js";
import { runSeed } from "../../sim/scenarios/seed-run.js";

test("a fleet that is disturbed writes the log of one process", async () => {
  const seed = 1;
  const scenario = scenarios.get("fleet") as Scenario;
  const first = await runSeed(scenario, seed, { rings: false });
  expect(first.failure).toBeUndefined();
  expect(first.counters["taken-over"]).toBeGreaterThan(0);
  expect((await runSeed(scenario, seed, { rings: false })).hash).toBe(first.hash);
});
