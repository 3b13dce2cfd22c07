/**
 * How fast the bare world is: toy processes that put, get, create and list as fast as answers come.
 * `node dist/sim/world/speed.js [calls]` prints store calls per second of CPU, without and with the text of events.
 */
import { fileURLToPath } from "node:url";
import { Simulation } from "./simulation.js";

/** What {@link measureWorldSpeed} found. */
export interface WorldSpeed {
  readonly calls: number;
  readonly events: number;
  /** Of one core; on a busy machine the clock on the wall says little. */
  readonly cpuSeconds: number;
  readonly callsPerSecond: number;
}

/** Runs toy processes until they have made this many calls between them. */
export async function measureWorldSpeed(
  callsTotal: number,
  ringEvents: number,
  processes: number,
): Promise<WorldSpeed> {
  const sim = new Simulation({ seed: 1, latency: "wide", trace: { ringEvents } });
  const body = new Uint8Array(200);
  for (let p = 0; p < processes; p++) {
    sim.spawn(`toy-${p}`, async ({ store }) => {
      for (let i = 0; sim.calls < callsTotal; i++) {
        const key = `batch/${p}/${String(i % 5000).padStart(20, "0")}.tgb`;
        await store.put(key, body);
        await store.get(key);
        await store.create(`manifest/${String(i).padStart(20, "0")}.json`, body);
        await store.getRange(key, 10, 100);
        if (i % 10 === 0) await store.list("manifest/", { startAfter: `manifest/${String(i).padStart(20, "0")}.json` });
      }
    });
  }
  sim.world.onExit = ({ exit }) => {
    if (exit?.reason === "threw") sim.world.fail(exit.error);
  };
  const start = process.cpuUsage();
  await sim.world.run();
  const used = process.cpuUsage(start);
  const cpuSeconds = (used.user + used.system) / 1e6;
  const { calls } = sim;
  return { calls, events: sim.world.trace.count, cpuSeconds, callsPerSecond: Math.round(calls / cpuSeconds) };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const calls = Number(process.argv[2] ?? 500_000);
  await measureWorldSpeed(50_000, 40, 8);
  for (const processes of [8, 128, 4096]) {
    for (const ringEvents of [0, 40]) {
      const { callsPerSecond, events, cpuSeconds } = await measureWorldSpeed(calls, ringEvents, processes);
      const what = `${processes} processes, ${ringEvents === 0 ? "hash only" : `last ${ringEvents} events of each`}`;
      console.log(`${what}: ${callsPerSecond} calls/s of CPU, ${events} events in ${cpuSeconds.toFixed(2)} s`);
    }
  }
}
