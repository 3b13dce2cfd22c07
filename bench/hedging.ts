/**
 * What a slow read costs a rank: on an S3 server behind a proxy that answers range reads after 20 to 40 ms, as a cloud would, and one in a
 * hundred of them a second later. The rank reads one share after another and nothing ahead, so every slow read shows in its wait; once
 * with hedged reads, as every namespace has them, and once without. `extraRequests` is the share of range reads that hedging added.
 */

import { FaultProxy } from "../harness/fault-proxy.js";
import { s3Access } from "../harness/s3-servers.js";
import { startTinyS3 } from "../harness/tiny-s3.js";
import { createNamespace, type Namespace, openNamespace, openStore, systemEnv, withRetry } from "../src/index.js";
import { number, readOptions } from "./parts/options.js";
import { makePayloads } from "./parts/payload.js";
import { Report } from "./parts/report.js";
import { quantile } from "./parts/statistics.js";

export const summary =
  "a rank's wait when one range read in a hundred takes a second, with hedging and without [--steps 1500]";

const uri = "s3://bench/hedging";
const sliceBytes = 100_000;

async function write(endpoint: string, steps: number): Promise<void> {
  const { settings } = s3Access(endpoint);
  const namespace = await createNamespace(uri, { grid: { rows: 1, chunks: 1 } }, { storeSettings: { s3: settings } });
  const payloads = makePayloads(4, sliceBytes, 1);
  const producer = await namespace.producer({ id: "p" });
  for (let step = 0; step < steps; step++) await producer.append([payloads[step % 4] as Uint8Array]);
  await producer.close();
  await namespace.endLog();
}

/** Every wait of one rank for its next share. */
async function waits(namespace: Namespace): Promise<number[]> {
  const consumer = await namespace.consumer({ mesh: { dp: 1 }, rank: 0, environment: {}, prefetchIterationsMax: 1 });
  const ms: number[] = [];
  for (;;) {
    const begun = performance.now();
    const { done } = await consumer.next();
    if (done) return ms;
    ms.push(performance.now() - begun);
  }
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["steps"]);
  const steps = number(options.steps, 1_500);
  const report = new Report("hedging", options.json);
  const server = await startTinyS3();
  const proxy = await FaultProxy.start(server.endpoint);
  try {
    await write(server.endpoint, steps);
    let reads = 0;
    proxy.plan = ({ method, path, headers }) => {
      if (method !== "GET" || headers.range === undefined || !path.includes("/batch/")) return undefined;
      reads++;
      const isSlow = Math.random() < 0.01;
      return { kind: "delay", ms: 20 + 20 * Math.random() + (isSlow ? 1_000 : 0) };
    };
    const storeSettings = { s3: s3Access(proxy.endpoint).settings };
    const plain = withRetry(await openStore(uri, storeSettings), systemEnv);
    let needed = 0;
    for (const hedged of [false, true]) {
      reads = 0;
      const namespace = await openNamespace(uri, hedged ? { storeSettings } : { store: plain });
      const ms = await waits(namespace);
      if (!hedged) needed = reads;
      const [p50Ms, p99Ms] = [quantile(ms, 0.5), quantile(ms, 0.99)];
      report.row({ hedged, shares: ms.length, p50Ms, p99Ms, ratio: p99Ms / p50Ms, extraRequests: reads / needed - 1 });
    }
  } finally {
    await proxy.stop();
    await server.stop();
  }
  report.end();
}
