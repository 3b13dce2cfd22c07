/**
 * What a running reclaim costs producers and consumers: the ratios to the bare store of writing (as `ingest`) and of reading (as a rank that takes
 * whole batches), with and without it. One process writes or reads as fast as it can; a second one is rank 0: it registers checkpoints in both
 * cases, and in one of them also reclaims everything behind them, twice a second instead of every minute. The two cases and the bare store take
 * turns in every round, first and last alike; the ratios are of the same round, and what is told is the median over rounds and the spread.
 */
import { execFileSync } from "node:child_process";
import { WorkerProcess } from "../harness/worker-process.js";
import { createNamespace } from "../src/index.js";
import { type BenchPlace, inBenchPlace } from "./parts/bench-place.js";
import { number, readOptions } from "./parts/options.js";
import type { ReclaimCostAnswer, ReclaimCostQuestion, ReclaimCostSettings } from "./parts/reclaim-cost-worker.js";
import { Report } from "./parts/report.js";
import { median } from "./parts/statistics.js";

export const summary =
  "writing and reading with and without a running reclaim [--only write|paced|read] [--pairs 5] [--payload 1e6] [--seconds 1] [--store file|s3] [--folder DIR]";

const settings = { slices: 8, inFlight: 8 };
const intervalMs = 500;

/** `paced`: writing at half the speed at which it saturates the machine. */
type Phase = "write" | "paced" | "read";
/** `unlink`: the control, in which the batch files are removed by a process that does nothing else. */
type Way = "bare" | "without" | "unlink" | "with";
const deleters = { bare: "none", without: "none", unlink: "unlink", with: "reclaim" } as const;
const phases: readonly Phase[] = ["write", "paced", "read"];

interface Run {
  readonly place: BenchPlace;
  readonly worker: WorkerProcess;
  readonly keeper: WorkerProcess;
  readonly batches: number;
  readonly payloadBytes: number;
  readonly seconds: number;
  /** Batches a second of the paced writer. */
  readonly perSecond: number;
}

const ask = (process: WorkerProcess, question: ReclaimCostQuestion): Promise<ReclaimCostAnswer> =>
  process.ask<ReclaimCostAnswer>(question);

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["pairs", "payload", "seconds", "folder", "store", "only"]);
  const report = new Report("reclaim-cost", options.json);
  const payloadBytes = number(options.payload, 1_000_000);
  const pairs = number(options.pairs, 5);
  const wanted = phases.filter((phase) => (options.only ?? phase) === phase);
  await inBenchPlace(options.store, options.folder, async (place) => {
    const url = new URL(
      `./parts/reclaim-cost-worker.${import.meta.url.endsWith(".ts") ? "ts" : "js"}`,
      import.meta.url,
    );
    const start = (): WorkerProcess =>
      new WorkerProcess(url, { ...settings, payloadBytes } satisfies ReclaimCostSettings);
    const [worker, keeper] = [start(), start()];
    try {
      for (const phase of wanted)
        for (const way of ["without", "unlink", "with"])
          await createNamespace(place.uri(`${phase}-${way}`), { grid: { rows: settings.slices, chunks: 1 } });
      const seconds = number(options.seconds, 1);
      const batches = await roundBatches(place, worker, seconds);
      const perSecond = wanted.includes("paced") ? (await saturation(place, worker, batches)) / 2 : 0;
      const parts = { place, worker, keeper, batches, payloadBytes, seconds, perSecond };
      for (const phase of wanted) await measure(parts, phase, pairs, report);
    } finally {
      await worker.stop();
      await keeper.stop();
    }
  });
  report.end();
}

/** How many batches fill a round on the bare store. */
async function roundBatches(place: BenchPlace, worker: WorkerProcess, seconds: number): Promise<number> {
  let batches = 4 * settings.inFlight;
  for (let i = 0; i < 2; i++) {
    const took = await ask(worker, { kind: "bare-write", uri: place.uri("bare"), batches });
    batches = Math.max(4 * settings.inFlight, Math.ceil((batches / took.seconds) * seconds));
  }
  return batches;
}

/** Batches a second that the log takes at most. */
async function saturation(place: BenchPlace, worker: WorkerProcess, batches: number): Promise<number> {
  const uri = place.uri("saturation");
  await createNamespace(uri, { grid: { rows: settings.slices, chunks: 1 } });
  await ask(worker, { kind: "write", uri, batches });
  const { seconds } = await ask(worker, { kind: "write", uri, batches });
  await place.sweep("saturation", ".tgb");
  return batches / seconds;
}

async function measure(parts: Run, phase: Phase, pairs: number, report: Report): Promise<void> {
  // A reader's files may not be taken away, and on S3 there is nothing to unlink.
  const ways: Way[] = ["bare", "without", "unlink", "with"].filter(
    (way) => way !== "unlink" || (phase !== "read" && parts.place.kind === "file"),
  ) as Way[];
  const rounds: Record<Way, ReclaimCostAnswer[]> = { bare: [], without: [], unlink: [], with: [] };
  const speedOf = (done: ReclaimCostAnswer): number => (done.batches * parts.payloadBytes) / 1e6 / done.seconds;
  // The first round makes folders and fills caches; it does not count.
  for (let pair = 0; pair <= pairs; pair++) {
    for (const way of pair % 2 === 0 ? ways : [...ways].reverse()) {
      const done = await round(parts, phase, way);
      if (pair > 0) rounds[way].push(done);
    }
    if (pair > 0) {
      const last = ways.map((way) => `${way} ${speedOf(rounds[way].at(-1) as ReclaimCostAnswer).toFixed(0)}`);
      report.note(`  ${phase}, ${parts.batches} batches: ${last.join(", ")} MB/s`);
    }
  }
  const bare = rounds.bare.map(speedOf);
  const plain = rounds.without.map(speedOf);
  for (const way of ways) {
    if (way === "bare") continue;
    const speeds = rounds[way].map(speedOf);
    const changes = speeds.map((speed, i) => speed / (plain[i] as number) - 1);
    const sum = (of: (done: ReclaimCostAnswer) => number): number => rounds[way].reduce((n, done) => n + of(done), 0);
    const deleted = sum((done) => done.deleted);
    report.row(
      {
        phase,
        way,
        pairs,
        payloadBytes: parts.payloadBytes,
        ratio: median(speeds.map((speed, i) => speed / (bare[i] as number))),
        change: median(speeds) / median(plain) - 1,
        changeMin: Math.min(...changes),
        changeMax: Math.max(...changes),
        ackMs: median(rounds[way].map((done) => done.ackMs)),
      },
      { deleted, runs: sum((done) => done.reclaims), keeperCpuSeconds: sum((done) => done.cpuSeconds) },
    );
  }
}

/** What was swept is written down and discarded now, or whoever is measured next would pay for it. */
function settleDisk(): void {
  execFileSync("sync");
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300);
}

/**
 * One timed piece of work, with the keeper beside it. A writer's batches are let go of as they come, a reader's when the next round has written
 * its own. What stays is swept by hand, so that every round finds the same disk.
 */
async function round(parts: Run, phase: Phase, way: Way): Promise<ReclaimCostAnswer> {
  const { place, worker, keeper, seconds, perSecond } = parts;
  const name = way === "bare" ? way : `${phase}-${way}`;
  const uri = place.uri(name);
  const deed = phase === "read" ? "read" : "write";
  const kind = way === "bare" ? (`bare-${deed}` as const) : deed;
  const batches = phase === "paced" ? Math.ceil(perSecond * seconds) : parts.batches;
  if (phase === "read") await ask(worker, { kind: way === "bare" ? "bare-write" : "write", uri, batches });
  const keptBatches = phase === "read" ? batches : 0;
  const deleter = deleters[way];
  if (way !== "bare") await ask(keeper, { kind: "keep", uri, intervalMs, deleter, keptBatches });
  const pace = phase === "paced" ? { perSecond } : {};
  const done = await ask(worker, { kind, uri, batches, seconds, ...pace } as ReclaimCostQuestion);
  const kept = way === "bare" ? done : await ask(keeper, { kind: "rest" });
  // A producer's last batch holds its resume point, but nobody opens it again.
  if (phase !== "read" || way !== "with") await place.sweep(name, ".tgb");
  settleDisk();
  return { ...done, deleted: kept.deleted, reclaims: kept.reclaims, cpuSeconds: kept.cpuSeconds };
}
