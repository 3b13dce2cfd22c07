/**
 * Properties: a seed replays to the event; what an oracle, liveness, a stray rejection or a lack of activity finds is a failure with
 * a report; minimizing keeps just the faults that are needed. Method: the toy log, and casts that fail on purpose.
 */
import { describe, expect, test } from "vitest";
import { Violation } from "../../sim/oracle/violation.js";
import { minimizeFaults } from "../../sim/scenarios/minimize.js";
import { type Cast, type CastBuilder, type Scenario, scenarios } from "../../sim/scenarios/scenario.js";
import { runSeed, runSeedTwice } from "../../sim/scenarios/seed-run.js";
import { soak } from "../../sim/scenarios/soak.js";

const chain = scenarios.get("chain") as Scenario;

/** A cast of one process that calls the store until healed, and fails as told. */
function cast(parts: Partial<Cast>, main?: Parameters<Parameters<CastBuilder>[0]["spawn"]>[1]): CastBuilder {
  return (sim) => {
    let healed = false;
    sim.spawn(
      "one",
      main ??
        (async ({ store, env }) => {
          for (let i = 0; !healed; i++) {
            await store.get(`k/${i}`).catch(() => {});
            await env.sleep(10);
          }
        }),
    );
    return {
      heal: () => {
        healed = true;
      },
      settled: () => true,
      waitsFor: () => "nothing",
      check: async () => {},
      counters: () => ({}),
      ...parts,
    };
  };
}

const base: Scenario = { name: "test", about: "", cast: "chain", faultMs: 10_000, liveMs: 10_000 };

describe("a seed", () => {
  test("of the toy log passes, the same to the event on every run and with every way of draining", async () => {
    const first = await runSeedTwice(chain, 5);
    expect(first.failure).toBeUndefined();
    const second = await runSeed(chain, 5, { drain: "immediate" });
    expect([second.hash, second.events]).toEqual([first.hash, first.events]);
    expect((await runSeed(chain, 6)).hash).not.toBe(first.hash);
  });

  test("whose trace differs between two runs fails for that alone", async () => {
    let runs = 0;
    const main = cast({}, async ({ env }) => env.sleep(++runs * 10));
    expect((await runSeedTwice({ ...base, cast: main }, 1)).failure?.property).toBe("determinism");
  });

  test("fails by its oracle, with the last events", async () => {
    const check = async (): Promise<void> => {
      throw new Violation("exactly-once", "twice");
    };
    const { failure } = await runSeed({ ...base, cast: cast({ check }) }, 1);
    expect(failure?.property).toBe("exactly-once");
    expect(failure?.lastEvents.join("\n")).toContain("get.apply");
  });

  test("fails when it does not settle", async () => {
    const stuck = cast({ settled: () => false, waitsFor: () => "producer-3" });
    const { failure } = await runSeed({ ...base, cast: stuck }, 1);
    expect(failure?.property).toBe("liveness");
    expect(failure?.message).toContain("producer-3");
  });

  test("fails when a rejection has no listener", async () => {
    const stray = cast({}, async ({ env }) => {
      void env.sleep(5).then(() => Promise.reject(new TypeError("stray")));
      await env.sleep(100);
    });
    expect((await runSeed({ ...base, cast: stray }, 1)).failure).toMatchObject({
      property: "TypeError",
      message: "stray",
    });
  });

  test("fails when too little happened", async () => {
    const { failure } = await runSeed({ ...base, cast: cast({}), leastPerSeed: { calls: 1_000_000 } }, 1);
    expect(failure?.property).toBe("activity");
  });
});

test("a soak fails when a fault that must happen never did", async () => {
  const report = await soak(chain, { firstSeed: 1, seeds: 10, workers: 0, twice: false });
  expect(report.failures).toEqual([]);
  expect(report.missing).toEqual([]);
  const calm = await soak(
    { ...chain, mustHappen: ["earthquake"] },
    { firstSeed: 1, seeds: 10, workers: 0, twice: false },
  );
  expect(calm.missing).toEqual(["earthquake"]);
});

test("minimizing keeps the two faults that matter out of many", async () => {
  const scenario: Scenario = {
    ...base,
    faultMs: 60_000,
    faults: { calls: { slow: 0.1, refused: 0.05, errorBeforeApply: 0.05 } },
    cast: (sim, settings) => ({
      ...cast({})(sim, settings),
      check: async () => {
        const { counts } = sim.faults;
        if ((counts.get("refused") ?? 0) > 0 && (counts.get("slow") ?? 0) > 0) throw new Violation("both", "both");
      },
    }),
  };
  const failing = await runSeed(scenario, 2);
  expect(failing.faults.length).toBeGreaterThan(10);
  const { faults, result } = await minimizeFaults(scenario, failing);
  expect(faults.map((fault) => fault.kind).sort()).toEqual(["refused", "slow"]);
  const only = new Set(faults.map((fault) => fault.id));
  expect((await runSeed(scenario, 2, { filter: { only } })).hash).toBe(result.hash);
});
