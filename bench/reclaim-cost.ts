/**
 * What a running reclaim costs producers and consumers: the ratios to the bare store of writing (as `ingest`) and of reading (as a rank that takes
 * whole batches), with and without it. One process writes or reads as fast as it can; a second one is rank 0: it registers checkpoints in both
 * cases, and in one of them also reclaims everything behind them, every second instead of every minute. The two cases and the bare store take
 * turns in every round, first and last alike; the ratios are of the same round, and what is told is the median over rounds and the spread.
 */
import { createNamespace } from "../src/index.js";
import { type BenchPlace, inBenchPlace } from "./harness/bench-place.js";
import { number, readOptions } from "./harness/options.js";
import type { ReclaimCostAnswer, ReclaimCostQuestion, ReclaimCostSettings } from "./harness/reclaim-cost-worker.js";
import { Report } from "./harness/report.js";
import { median } from "./harness/statistics.js";
import { WorkerProcess } from "./harness/worker-process.js";

export const summary =
  "writing and reading with and without a running reclaim [--pairs 5] [--payload 1e6] [--seconds 1] [--store file|s3] [--folder DIR]";

const settings = { slices: 8, inFlight: 8 };
const intervalMs = 1_000;

type Phase = "write" | "read";
type Way = "bare" | "without" | "with";

interface Run {
  readonly place: BenchPlace;
  readonly worker: WorkerProcess;
  readonly keeper: WorkerProcess;
  readonly batches: number;
  readonly payloadBytes: number;
  readonly seconds: number;
}

const ask = (process: WorkerProcess, question: ReclaimCostQuestion): Promise<ReclaimCostAnswer> =>
  process.ask<ReclaimCostAnswer>(question);

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["pairs", "payload", "seconds", "folder", "store"]);
  const report = new Report("reclaim-cost", options.json);
  const payloadBytes = number(options.payload, 1_000_000);
  const pairs = number(options.pairs, 5);
  await inBenchPlace(options.store, options.folder, async (place) => {
    const url = new URL(
      `./harness/reclaim-cost-worker.${import.meta.url.endsWith(".ts") ? "ts" : "js"}`,
      import.meta.url,
    );
    const start = (): WorkerProcess =>
      new WorkerProcess(url, { ...settings, payloadBytes } satisfies ReclaimCostSettings);
    const [worker, keeper] = [start(), start()];
    try {
      for (const phase of ["write", "read"] as const)
        for (const way of ["without", "with"])
          await createNamespace(place.uri(`${phase}-${way}`), { grid: { rows: settings.slices, chunks: 1 } });
      const seconds = number(options.seconds, 1);
      const batches = await roundBatches(place, worker, seconds);
      const parts = { place, worker, keeper, batches, payloadBytes, seconds };
      for (const phase of ["write", "read"] as const) await measure(parts, phase, pairs, report);
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

async function measure(parts: Run, phase: Phase, pairs: number, report: Report): Promise<void> {
  const speeds: Record<Way, number[]> = { bare: [], without: [], with: [] };
  const ways: Way[] = ["bare", "without", "with"];
  let deleted = 0;
  let reclaims = 0;
  // The first round makes folders and fills caches; it does not count.
  for (let pair = 0; pair <= pairs; pair++) {
    for (const way of pair % 2 === 0 ? ways : [...ways].reverse()) {
      const done = await round(parts, phase, way);
      if (pair === 0) continue;
      speeds[way].push((done.batches * parts.payloadBytes) / 1e6 / done.seconds);
      deleted += done.deleted;
      reclaims += done.reclaims;
    }
    if (pair > 0) {
      const last = ways.map((way) => `${way} ${speeds[way].at(-1)?.toFixed(0)}`).join(", ");
      report.note(`  ${phase}, ${parts.batches} batches: ${last} MB/s`);
    }
  }
  const ratios = (way: Way): number[] => speeds[way].map((speed, i) => speed / (speeds.bare[i] as number));
  const changes = speeds.with.map((speed, i) => speed / (speeds.without[i] as number) - 1);
  report.row(
    {
      phase,
      pairs,
      payloadBytes: parts.payloadBytes,
      ratioWithout: median(ratios("without")),
      ratioWith: median(ratios("with")),
      change: median(speeds.with) / median(speeds.without) - 1,
      changeMin: Math.min(...changes),
      changeMax: Math.max(...changes),
    },
    { reclaims, deleted },
  );
}

/**
 * One timed piece of work, with the keeper beside it. A writer's batches are let go of as they come, a reader's when the next round has written
 * its own. What stays is swept by hand, so that every round finds the same disk.
 */
async function round(parts: Run, phase: Phase, way: Way): Promise<ReclaimCostAnswer> {
  const { place, worker, keeper, batches, seconds } = parts;
  const name = way === "bare" ? way : `${phase}-${way}`;
  const uri = place.uri(name);
  const kind = way === "bare" ? (`bare-${phase}` as const) : phase;
  if (phase === "read") await ask(worker, { kind: way === "bare" ? "bare-write" : "write", uri, batches });
  const keptBatches = phase === "read" ? batches : 0;
  if (way !== "bare") await ask(keeper, { kind: "keep", uri, intervalMs, reclaim: way === "with", keptBatches });
  const done = await ask(worker, { kind, uri, batches, seconds });
  const { deleted, reclaims } = way === "bare" ? done : await ask(keeper, { kind: "rest" });
  // A producer's last batch holds its resume point, but nobody opens it again.
  if (phase === "write" || way !== "with") await place.sweep(name, ".tgb");
  return { ...done, deleted, reclaims };
}
