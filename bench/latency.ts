/**
 * How soon a batch is visible to others, and how soon after that its producer knows: `--store file` (default) with real processes on a
 * folder, `--store s3-model` in virtual time with S3 Standard's latencies. Every ticket is awaited. Times in ms: `visible` from `append` to the
 * creation of the manifest that holds the batch, `ack` from there to the ticket. The second row is of producers that live shortly,
 * one after another: each opens the namespace, appends once, flushes and closes.
 */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { inScratchFolder } from "../harness/scratch-folder.js";
import { WorkerProcess } from "../harness/worker-process.js";
import { runCadence, runShortLived } from "../sim/index.js";
import { createNamespace, openNamespace } from "../src/index.js";
import type { LatencyAnswer } from "./parts/latency-worker.js";
import { number, readOptions, Usage } from "./parts/options.js";
import { Report } from "./parts/report.js";
import { quantile } from "./parts/statistics.js";

export const summary = "from append to visible and to acknowledged, on a folder or simulated on S3 latencies";

interface Wanted {
  readonly producers: number;
  /** Batches a second of each producer. */
  readonly rate: number;
  readonly seconds: number;
  readonly shortLived: number;
  readonly bytes: number;
  readonly seed: number;
  readonly folder: string | undefined;
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, [
    "store",
    "producers",
    "rate",
    "seconds",
    "short-lived",
    "payload",
    "seed",
    "folder",
  ]);
  const { store = "file" } = options;
  if (store !== "file" && store !== "s3-model") throw new Usage(`--store is ${store}; use file or s3-model.`);
  const isModel = store === "s3-model";
  const wanted: Wanted = {
    producers: number(options.producers, isModel ? 8 : 4),
    rate: number(options.rate, isModel ? 1 : 20),
    seconds: number(options.seconds, isModel ? 600 : 15),
    shortLived: number(options["short-lived"], isModel ? 32 : 320),
    bytes: number(options.payload, isModel ? 1_000_000 : 10_000),
    seed: number(options.seed, 1),
    folder: options.folder,
  };
  const report = new Report("latency", options.json);
  await (isModel ? measureModel(wanted, report) : measureFolder(wanted, report));
  report.end();
}

async function measureModel({ producers, rate, seconds, bytes, seed, shortLived }: Wanted, report: Report) {
  const run = await runCadence({
    cadence: { kind: "cooperative" },
    producers,
    minutes: seconds / 60,
    batchesPerSecond: rate,
    payloadBytes: bytes,
    seed,
    isAwaited: true,
  });
  const ms = (s: number): number => 1_000 * s;
  report.row({
    store: "s3-model",
    producers,
    visibleP50Ms: ms(run.appendedP50),
    visibleP99Ms: ms(run.appendedP99),
    ackP50Ms: ms(run.ackP50),
    ackP99Ms: ms(run.ackP99),
    requestsPerBatch: run.requestsPerBatch,
  });
  showShortLived("s3-model", await runShortLived(shortLived, seed), report);
}

async function measureFolder(wanted: Wanted, report: Report): Promise<void> {
  await inScratchFolder(wanted.folder, async (folder) => {
    await measureSteady(join(folder, "steady"), wanted, report);
    showShortLived("file", await measureShortLived(join(folder, "short"), wanted), report);
  });
}

async function measureSteady(
  folder: string,
  { producers, rate, seconds, bytes }: Wanted,
  report: Report,
): Promise<void> {
  const uri = pathToFileURL(folder).href;
  await createNamespace(uri, { grid: { rows: 1, chunks: 1 } });
  const url = new URL(`./parts/latency-worker${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`, import.meta.url);
  const workers = Array.from(
    { length: producers },
    (_, i) => new WorkerProcess(url, { uri, id: `p${i}`, rate, bytes, offset: i / producers }),
  );
  try {
    await Promise.all(workers.map((worker) => worker.ask({ kind: "open" })));
    // The first seconds are of starting processes and of finding a carrier.
    await Promise.all(workers.map((worker) => worker.ask({ kind: "produce", seconds: Math.min(3, seconds) })));
    const answers = await Promise.all(workers.map((worker) => worker.ask<LatencyAnswer>({ kind: "produce", seconds })));
    const visible = visibleTimes(folder);
    const visibleMs: number[] = [];
    const ackMs: number[] = [];
    for (const { id, batches } of answers) {
      for (const { seq, appendedMs, committedMs } of batches) {
        const at = visible(id, seq);
        visibleMs.push(at - appendedMs);
        ackMs.push(committedMs - at);
      }
    }
    report.row({
      store: "file",
      producers,
      visibleP50Ms: quantile(visibleMs, 0.5),
      visibleP99Ms: quantile(visibleMs, 0.99),
      ackP50Ms: quantile(ackMs, 0.5),
      ackP99Ms: quantile(ackMs, 0.99),
    });
  } finally {
    await Promise.all(workers.map((worker) => worker.stop()));
  }
}

/** When each batch came into a manifest: a file that is made under another name and linked changes its status then. */
function visibleTimes(folder: string): (id: string, seq: number) => number {
  const manifests = readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && entry.parentPath.endsWith("manifest") && entry.name.endsWith(".json"))
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
  const times = new Map<string, number>();
  const seen = new Map<string, number>();
  for (const path of manifests) {
    const { producers } = JSON.parse(readFileSync(path, "utf8")) as {
      producers: Record<string, [number, string, number]>;
    };
    const { ctimeMs } = statSync(path);
    for (const [id, [, , next]] of Object.entries(producers)) {
      for (let seq = seen.get(id) ?? 0; seq < next; seq++) times.set(`${id}/${seq}`, ctimeMs);
      seen.set(id, next);
    }
  }
  return (id, seq) => times.get(`${id}/${seq}`) ?? Number.NaN;
}

async function measureShortLived(folder: string, { shortLived, bytes }: Wanted): Promise<number[]> {
  const uri = pathToFileURL(folder).href;
  await createNamespace(uri, { grid: { rows: 1, chunks: 1 } });
  const took: number[] = [];
  for (let i = 0; i < shortLived; i++) {
    const begun = performance.now();
    const namespace = await openNamespace(uri);
    const producer = await namespace.producer({ id: `short-${i}` });
    await producer.append([new Uint8Array(bytes)], { resumePoint: i });
    await producer.flush();
    await producer.close();
    took.push(performance.now() - begun);
  }
  return took;
}

function showShortLived(store: string, tookMs: readonly number[], report: Report): void {
  report.row({
    store,
    producers: tookMs.length,
    kind: "one after another",
    eachP50Ms: quantile(tookMs, 0.5),
    eachP99Ms: quantile(tookMs, 0.99),
    eachMeanMs: tookMs.reduce((a, b) => a + b, 0) / tookMs.length,
  });
}
