/**
 * Property: nothing is lost, doubled, reordered or wrongly reclaimed, whichever process crashes, and afterwards everything moves on. Method: the real
 * code under the scenario `chaos` for a few seeds, each run twice and compared; `npm run sim -- --scenario chaos --seeds 1000` runs more.
 */
import { expect, test } from "vitest";
import { type Scenario, scenarios } from "../../sim/scenarios/scenario.js";
import { runSeed, runSeedTwice } from "../../sim/scenarios/seed-run.js";
import { callFaults } from "../../sim/world/faults.js";

const chaos = scenarios.get("chaos") as Scenario;
const seeds = [1, 3];

test.each(seeds)("chaos, seed %i: passes, and the same to the event when run again", async (seed) => {
  const result = await runSeedTwice(chaos, seed);
  expect(result.failure, `npm run sim -- --scenario chaos --replay ${seed}`).toBeUndefined();
  expect(result.calls).toBeGreaterThanOrEqual(2000);
  expect(result.counters.commits).toBeGreaterThanOrEqual(200);
});

test("nothing in the product waits on anything but virtual time", async () => {
  const quick = await runSeed(chaos, 7, { rings: false });
  const slow = await runSeed(chaos, 7, { rings: false, drain: "immediate" });
  expect([slow.hash, slow.events]).toEqual([quick.hash, quick.events]);
});

test("a soak of chaos or deep fails unless every kind of fault happened", () => {
  const deep = scenarios.get("deep") as Scenario;
  const onlyDeep = ["staleList", "damagedGet", "full"];
  expect(deep.mustHappen).toEqual(expect.arrayContaining(Object.keys(callFaults)));
  expect(chaos.mustHappen).toEqual(
    expect.arrayContaining(Object.keys(callFaults).filter((kind) => !onlyDeep.includes(kind))),
  );
  for (const { mustHappen, processFaults } of [chaos, deep])
    expect(mustHappen).toEqual(expect.arrayContaining((processFaults ?? []).map(({ kind }) => kind)));
});
