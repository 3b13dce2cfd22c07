/**
 * How fast the bare world is: eight toy processes that put, get, create and list as fast as answers come.
 * `node dist/sim/speed.js [calls]` prints store calls per second of one core, without and with the text of events.
 */
import { Simulation } from "./simulation.js";

/** What {@link measureWorldSpeed} found. */
export interface WorldSpeed {
  readonly calls: number;
  readonly events: number;
  readonly seconds: number;
  readonly callsPerSecond: number;
}

/** Runs eight toy processes until they have made this many calls between them. */
export async function measureWorldSpeed(callsTotal: number, ringEvents: number): Promise<WorldSpeed> {
  const sim = new Simulation({ seed: 1, latency: "s3", trace: { ringEvents } });
  const body = new Uint8Array(200);
  for (let p = 0; p < 8; p++) {
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
  const start = performance.now();
  await sim.world.run();
  const seconds = (performance.now() - start) / 1000;
  const { calls } = sim;
  return { calls, events: sim.world.trace.count, seconds, callsPerSecond: Math.round(calls / seconds) };
}

if (process.argv[1]?.endsWith("speed.js")) {
  const calls = Number(process.argv[2] ?? 500_000);
  await measureWorldSpeed(50_000, 40);
  for (const ringEvents of [0, 40]) {
    const speed = await measureWorldSpeed(calls, ringEvents);
    const what = ringEvents === 0 ? "hash only" : `${ringEvents} last events an actor`;
    console.log(`${what}: ${speed.callsPerSecond} calls/s, ${speed.events} events in ${speed.seconds.toFixed(2)} s`);
  }
}
