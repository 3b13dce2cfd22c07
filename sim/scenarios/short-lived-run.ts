/** Measuring producers that live shortly, one after another, on the simulated store with S3's latencies. */
import { createPublisher, openProducer } from "../../src/cadence/index.js";
import { encodeNamespace, type NamespaceSpec, namespaceKey } from "../../src/format/index.js";
import { Log } from "../../src/log/index.js";
import { Producer } from "../../src/producer/index.js";
import { withHedging, withRetry } from "../../src/store/index.js";
import { Simulation } from "../world/simulation.js";

const spec: NamespaceSpec = {
  format: 1,
  uuid: "00000000-0000-4000-8000-000000000002",
  grid: { rows: 1, chunks: 1 },
  order: { kind: "commit" },
  created: 0,
  rest: {},
};

/** How long each took, in ms: open, append once, flush, close. */
export async function runShortLived(producers: number, seed: number): Promise<number[]> {
  const simulation = new Simulation({ seed, latency: "s3", trace: { ringEvents: 0 } });
  await simulation.store.direct().put(namespaceKey, encodeNamespace(spec));
  const tookMs: number[] = [];
  const live = (k: number): void => {
    simulation.spawn(`p${k}`, async ({ env, store }) => {
      const begun = env.monotonic();
      const log = new Log({
        store: withHedging(withRetry(store, env), env),
        env,
        spec,
        openOrigin: () => Promise.reject(new Error("no forks here")),
      });
      const opening = await openProducer(log, `p${k}`);
      const producer = new Producer({ log, opening, publisher: createPublisher(log) });
      await producer.append([new Uint8Array(1_000)], { resumePoint: k });
      await producer.flush();
      await producer.close();
      tookMs.push(env.monotonic() - begun);
      if (k + 1 < producers) live(k + 1);
    });
  };
  live(0);
  await simulation.world.run({ untilMs: 60_000 * producers });
  return tookMs;
}
