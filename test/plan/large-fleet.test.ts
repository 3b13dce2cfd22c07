/**
 * Property: whatever the numbers of processes and logs, every lane finds a holder, every log ends and is closed with every batch in its place, while
 * processes die and stand still. Method: the real holder in the simulator, a few dozen processes; `BATCHWEAVE_FLEET=306x1000 npx vitest run
 * test/plan/large-fleet.test.ts` runs 306 logs and 1,000 processes, which takes a while.
 */
import { expect, test } from "vitest";
import type { Scenario } from "../../sim/scenarios/scenario.js";
import { runSeed } from "../../sim/scenarios/seed-run.js";
import { lanesCast } from "./lanes-cast.js";

const [logs = 12, processes = 40] = (process.env["BATCHWEAVE_FLEET"] ?? "12x40").split("x").map(Number);

const scenario: Scenario = {
  name: "large fleet",
  about: "processes that hold lanes of logs, some killed, some suspended",
  cast: lanesCast,
  settings: { logs, processes, lanes: 4, batches: 3, lanesMax: 3, workMs: 1_000 },
  latency: "wide",
  processFaults: [
    { kind: "crash", meanGapMs: 150_000 / processes, victims: "process-" },
    { kind: "pause", meanGapMs: 300_000 / processes, victims: "process-", durationMs: [1_000, 15_000] },
  ],
  faultMs: 15_000,
  liveMs: 300_000,
  leastPerSeed: { batches: logs },
  eventsMax: 200_000_000,
};

test(`${processes} processes and ${logs} logs`, { timeout: 3_600_000 }, async () => {
  const { failure, counters, virtualMs, calls } = await runSeed(scenario, 1, { rings: false });
  expect(failure).toBeUndefined();
  expect(counters["closedLogs"]).toBe(logs);
  expect(counters["taken-over"]).toBeGreaterThan(0);
  const perSecond = calls / processes / (virtualMs / 1_000);
  // Of one process, in a second; the beginning, when all take lanes, included.
  expect(perSecond).toBeLessThan(40);
  if (processes >= 1_000)
    console.log(
      `${processes} processes, ${logs} logs: ${Math.round(virtualMs / 1_000)} s of virtual time, ${perSecond.toFixed(1)} requests a second and process, ${JSON.stringify(counters)}`,
    );
});
