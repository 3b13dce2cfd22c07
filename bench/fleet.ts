/**
 * A fleet of real processes over files: bytes of sources read and bytes moved by the number of lanes (each in a process of its own), memory by the number of
 * processes, a source that is ten times as dear as the others, how long constructors wait when a loader is killed, and what is left of the throughput when one
 * is killed every half minute.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";
import { inScratchFolder } from "../harness/scratch-folder.js";
import { openNamespace } from "../src/index.js";
import { runConstructors, SeededRandom } from "../src/plan/index.js";
import { type FleetShape, fleetPipeline } from "./parts/fleet-pipeline.js";
import { number, numbers, readOptions } from "./parts/options.js";
import { parquetPaths, writeParquetSources } from "./parts/parquet-sources.js";
import { Report } from "./parts/report.js";

export const summary: string =
  "a fleet of processes: bytes, memory, a dear source, failover, kills [--only bytes,…] [--lanes 1,4,16,64] [--samples 400] [--processes 1,4,16] [--seconds 60] [--rounds 10]";

const script = fileURLToPath(new URL("./parts/fleet-process.js", import.meta.url));
const parts = ["bytes", "memory", "dear", "failover", "kills"] as const;

interface Ended {
  readonly readBytes: number;
  readonly requests: number;
  readonly sent: number;
  readonly received: number;
}

/** A process of the fleet. */
class FleetProcess {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended | undefined>;
  blocks = 0;

  constructor(shape: FleetShape, role: string, lane = 0) {
    const args = [script, JSON.stringify(shape), role, String(lane)];
    this.child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    let last: Ended | undefined;
    const lines = createInterface({ input: this.child.stdout as NodeJS.ReadableStream });
    lines.on("line", (line) => {
      const said = JSON.parse(line) as { blocks?: number } & Ended;
      if (said.blocks === undefined) last = said;
      else this.blocks = said.blocks;
    });
    this.ended = new Promise((resolve, reject) => {
      lines.once("close", () => {
        const { exitCode, signalCode } = this.child;
        if (exitCode && !signalCode) reject(new Error(`a ${role} process ended with status ${exitCode}`));
        else resolve(last);
      });
    });
  }

  get pssBytes(): number {
    const kib = /^Pss:\s+(\d+) kB/m.exec(readFileSync(`/proc/${this.child.pid}/smaps_rollup`, "utf8"))?.[1];
    return Number(kib ?? 0) * 1024;
  }

  async kill(): Promise<void> {
    this.child.kill("SIGKILL");
    await this.ended.catch(() => {});
  }
}

function writeLines(folder: string, name: string, shards: number, samples: number): void {
  for (let shard = 0; shard < shards; shard++) {
    const random = new SeededRandom(name, shard);
    const text = (): string => Array.from({ length: 20 + random.below(200) }, () => random.below(1e6)).join(" ");
    const lines = Array.from({ length: samples }, () => `${JSON.stringify({ text: text() })}\n`);
    writeFileSync(join(folder, `${name}-${String(shard).padStart(3, "0")}.jsonl`), lines.join(""));
  }
}

const bytesOf = (folder: string): number =>
  readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);

const plain = { format: "jsonl", epochs: 1, threads: 0, samples: 0 } as const;

async function measureBytes(
  report: Report,
  scratch: string,
  lanesList: readonly number[],
  samples: number,
): Promise<void> {
  const folder = join(scratch, "bytes");
  mkdirSync(folder);
  const names = ["web", "code"];
  for (const name of names) writeLines(folder, name, 64, samples);
  const sourceBytes = bytesOf(folder);
  const sources = Object.fromEntries(names.map((name) => [name, 0]));
  for (const lanes of lanesList)
    for (const exchange of ["direct", "log"] as const) {
      const uri = pathToFileURL(join(scratch, `bytes-${exchange}-${lanes}`)).href;
      const shape: FleetShape = {
        ...plain,
        folder,
        uri,
        sources,
        lanes,
        sourceLanes: lanes,
        exchange,
        blockBytes: 262_144,
        // As many processes as lanes: each has one of each source.
        lanesMax: names.length,
      };
      const processes = Array.from({ length: lanes }, (_, lane) =>
        exchange === "direct" ? [new FleetProcess(shape, "direct", lane)] : [new FleetProcess(shape, "load")],
      ).flat();
      if (exchange === "log")
        for (let i = 0; i < Math.min(lanes, 4); i++) processes.push(new FleetProcess(shape, "construct"));
      const ended = (await Promise.all(processes.map((process) => process.ended))).filter((one) => one !== undefined);
      const sum = (pick: (one: Ended) => number): number => ended.map(pick).reduce((a, b) => a + b, 0);
      const { steps } = await (await openNamespace(uri)).info();
      let trainingBytes = 0;
      for await (const { storedBytes } of (await openNamespace(uri)).batches()) trainingBytes += storedBytes;
      report.row({
        part: "bytes",
        exchange,
        lanes,
        processes: processes.length,
        sourceBytes,
        readPerByte: sum((one) => one.readBytes) / sourceBytes,
        movedPerTrainingByte: (sum((one) => one.sent) + sum((one) => one.received)) / trainingBytes,
        requestsPerBatch: sum((one) => one.requests) / steps.end,
        batches: steps.end,
      });
    }
}

async function measureMemory(
  report: Report,
  scratch: string,
  counts: readonly number[],
  sourceCount: number,
): Promise<void> {
  const folder = join(scratch, "memory");
  mkdirSync(folder);
  await writeParquetSources(folder, { sources: sourceCount, rowGroups: 4, rowsPerGroup: 64, rowChars: 2_000 });
  const names = parquetPaths(folder, sourceCount).map((path) => path.slice(folder.length + 1, -".parquet".length));
  const sources = Object.fromEntries(names.map((name) => [name, 0]));
  let one = 0;
  for (const count of counts) {
    const uri = pathToFileURL(join(scratch, `memory-${count}`)).href;
    const shape: FleetShape = {
      ...plain,
      format: "parquet",
      epochs: 0,
      folder,
      uri,
      sources,
      lanes: 4,
      sourceLanes: 1,
      exchange: "log",
      blockSamples: 32,
      aheadBlocks: 8,
    };
    const processes = Array.from({ length: count }, () => new FleetProcess(shape, "load"));
    // In steady state: all that loaders may be ahead is written, and each waits.
    let most = 0;
    for (let last = -1, calm = 0; calm < 5; ) {
      await sleep(1_000);
      most = Math.max(most, ...processes.map(({ pssBytes }) => pssBytes));
      const blocks = processes.reduce((sum, process) => sum + process.blocks, 0);
      calm = blocks === last && blocks > 0 ? calm + 1 : 0;
      last = blocks;
    }
    const each = processes.map(({ pssBytes }) => pssBytes);
    await Promise.all(processes.map((process) => process.kill()));
    const mean = each.reduce((a, b) => a + b, 0) / count;
    if (one === 0) one = mean;
    report.row({
      part: "memory",
      sources: sourceCount,
      processes: count,
      pssBytesEach: mean,
      pssBytesMost: most,
      ofOne: mean / one,
    });
  }
}

/** Threads wait in the transform, so that the limit is arithmetic: threads / the mean cost of a sample of the mixture. */
async function measureDear(report: Report, scratch: string, seconds: number): Promise<void> {
  const folder = join(scratch, "dear");
  mkdirSync(folder);
  const costs: Record<string, number> = { dear: 200 };
  for (let i = 0; i < 8; i++) costs[`cheap${i}`] = 20;
  for (const name of Object.keys(costs)) writeLines(folder, `${name}-`, 4, 200);
  const sources = Object.fromEntries(Object.entries(costs).map(([name, ms]) => [`${name}-`, ms]));
  const threads = 8;
  const mean = Object.values(costs).reduce((a, b) => a + b, 0) / Object.keys(costs).length;
  for (const inFlight of [0, 1]) {
    const uri = pathToFileURL(join(scratch, `dear-${inFlight}`)).href;
    const shape: FleetShape = {
      ...plain,
      epochs: 0,
      threads,
      folder,
      uri,
      sources,
      lanes: 2,
      sourceLanes: 2,
      exchange: "log",
      samples: 36,
      blockSamples: 8,
      aheadBlocks: 12,
      inFlight,
    };
    const loader = new FleetProcess(shape, "load");
    const stop = new AbortController();
    const times: number[] = [];
    const built = runConstructors(
      fleetPipeline({ ...shape, threads: 0 }),
      {},
      {
        signal: stop.signal,
        storeSettings: { durability: "process-crash" },
        onBatch: () => times.push(performance.now()),
      },
    );
    await sleep(seconds * 1_000);
    stop.abort();
    await built;
    await loader.kill();
    // The first third fills buffers.
    const from = times.length > 3 ? Math.floor(times.length / 3) : 0;
    const rate = ((times.length - 1 - from) * 36_000) / ((times.at(-1) as number) - (times[from] as number));
    const limit = (threads * 1_000) / mean;
    report.row({
      part: "dear",
      threadsGoWhereNeeded: inFlight === 0,
      samplesPerSecond: rate,
      limit,
      ofLimit: rate / limit,
    });
  }
}

/** Two endless sources for a fleet whose loaders die: small blocks, and little ahead, so that a loader that is gone is missed at once. */
function mortalShape(folder: string, uri: string): FleetShape {
  return {
    ...plain,
    epochs: 0,
    threads: 2,
    folder,
    uri,
    sources: { "web-": 4, "code-": 4 },
    lanes: 2,
    sourceLanes: 2,
    exchange: "log",
    samples: 16,
    blockSamples: 8,
    aheadBlocks: 8,
  };
}

async function measureFailover(report: Report, scratch: string, rounds: number): Promise<void> {
  const folder = join(scratch, "failover");
  mkdirSync(folder);
  for (const name of ["web-", "code-"]) writeLines(folder, name, 4, 400);
  for (const hasShadow of [false, true]) {
    const uri = pathToFileURL(join(scratch, `failover-${hasShadow}`)).href;
    const shape = mortalShape(folder, uri);
    let holder = new FleetProcess(shape, "load");
    const stop = new AbortController();
    let lastMs = performance.now();
    let gapMs = 0;
    const built = runConstructors(
      fleetPipeline({ ...shape, threads: 0 }),
      {},
      {
        signal: stop.signal,
        storeSettings: { durability: "process-crash" },
        onBatch: () => {
          gapMs = Math.max(gapMs, performance.now() - lastMs);
          lastMs = performance.now();
        },
      },
    );
    const gaps: number[] = [];
    const calm: number[] = [];
    for (let round = 0; round < rounds; round++) {
      while (holder.blocks < 20) await sleep(100);
      const second = new FleetProcess(shape, hasShadow ? "shadow" : "load");
      await sleep(4_000);
      gapMs = 0;
      await sleep(2_000);
      calm.push(gapMs);
      gapMs = 0;
      await holder.kill();
      const killed = performance.now();
      while (performance.now() - killed < 6_000 || lastMs < killed) await sleep(50);
      gaps.push(gapMs);
      holder = second;
      holder.blocks = 20;
    }
    stop.abort();
    await built;
    await holder.kill();
    gaps.sort((a, b) => a - b);
    report.row({
      part: "failover",
      shadow: hasShadow,
      kills: rounds,
      waitMsMedian: gaps[rounds >> 1],
      waitMsMost: gaps.at(-1),
      undisturbedMsMost: Math.max(...calm),
    });
  }
}

/** Batches a second of constructors while the loader that holds the lanes is killed every half minute, and a supervisor starts another at once. */
async function measureKills(report: Report, scratch: string, seconds: number): Promise<void> {
  const folder = join(scratch, "kills");
  mkdirSync(folder);
  for (const name of ["web-", "code-"]) writeLines(folder, name, 4, 400);
  let calm = 0;
  for (const kind of ["nobody is killed", "another takes over", "another shadows"] as const) {
    const uri = pathToFileURL(join(scratch, `kills-${kind.replaceAll(" ", "-")}`)).href;
    const shape = mortalShape(folder, uri);
    const second = kind === "another shadows" ? "shadow" : "load";
    let holder = new FleetProcess(shape, "load");
    const stop = new AbortController();
    let batches = 0;
    const built = runConstructors(
      fleetPipeline({ ...shape, threads: 0 }),
      {},
      {
        signal: stop.signal,
        storeSettings: { durability: "process-crash" },
        onBatch: () => batches++,
      },
    );
    while (holder.blocks < 20) await sleep(100);
    let next = new FleetProcess(shape, second);
    await sleep(5_000);
    const begun = performance.now();
    batches = 0;
    let kills = 0;
    while (performance.now() - begun < seconds * 1_000) {
      await sleep(500);
      if (kind === "nobody is killed" || performance.now() - begun < 15_000 + 30_000 * kills) continue;
      kills++;
      await holder.kill();
      [holder, next] = [next, new FleetProcess(shape, second)];
    }
    const rate = (1_000 * batches) / (performance.now() - begun);
    stop.abort();
    await built;
    await Promise.all([holder.kill(), next.kill()]);
    if (kills === 0) calm = rate;
    report.row({ part: "kills", loaders: kind, kills, batchesPerSecond: rate, ofUndisturbed: rate / calm });
  }
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["only", "lanes", "processes", "sources", "seconds", "rounds", "samples", "dir"]);
  const report = new Report("fleet", options.json);
  const wanted = options.only?.split(",") ?? parts;
  await inScratchFolder(options.dir, async (scratch) => {
    if (wanted.includes("bytes"))
      await measureBytes(report, scratch, numbers(options.lanes, [1, 4, 16, 64]), number(options.samples, 400));
    if (wanted.includes("memory"))
      await measureMemory(report, scratch, numbers(options.processes, [1, 4, 16]), number(options.sources, 306));
    if (wanted.includes("dear")) await measureDear(report, scratch, number(options.seconds, 60));
    if (wanted.includes("failover")) await measureFailover(report, scratch, number(options.rounds, 10));
    if (wanted.includes("kills")) await measureKills(report, scratch, number(options.seconds, 120));
  });
  report.end();
}
