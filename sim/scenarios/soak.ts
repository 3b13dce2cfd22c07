/** Many seeds of one scenario over worker threads, and what they add up to. */
import { Worker } from "node:worker_threads";
import { isOwnShape, shippedShape } from "../planted/build-shape.js";
import type { Scenario } from "./scenario.js";
import type { SeedResult } from "./seed-run.js";
import { runJob, type SeedJob } from "./seed-worker.js";

/** Options of {@link soak}. */
export interface SoakOptions {
  readonly firstSeed: number;
  readonly seeds: number;
  /** Threads; 0 runs everything in this one. */
  readonly workers: number;
  /** Run every seed twice and compare. */
  readonly twice: boolean;
  /** Stop handing out seeds once one has failed. */
  readonly untilFailure?: boolean | undefined;
  /** Told of every result as it comes. */
  readonly onResult?: ((result: SeedResult) => void) | undefined;
}

/** What a soak found. */
export interface SoakReport {
  readonly passed: number;
  /** Failed seeds, lowest first. */
  readonly failures: readonly SeedResult[];
  /** Sums over all seeds. */
  readonly counters: Readonly<Record<string, number>>;
  readonly calls: number;
  readonly events: number;
  readonly virtualMs: number;
  /** Store calls a second of one core; the clock on the wall says little on a busy machine. */
  readonly callsPerSecond: number;
  /** What had to happen in some seed and never did. */
  readonly missing: readonly string[];
}

/** Seeds from which a soak is long enough to miss something. */
const mustHappenSeeds = 10;

/** Runs the seeds. */
export async function soak(scenario: Scenario, options: SoakOptions): Promise<SoakReport> {
  const results: SeedResult[] = [];
  const before = process.cpuUsage();
  let next = options.firstSeed;
  const end = options.firstSeed + options.seeds;
  const take = (): SeedJob | undefined => {
    if (next >= end || (options.untilFailure && results.some((r) => r.failure))) return undefined;
    return { scenario: scenario.name, seed: next++, twice: options.twice };
  };
  const onResult = (result: SeedResult): void => {
    results.push(result);
    options.onResult?.(result);
  };
  if (options.workers === 0) for (let job = take(); job; job = take()) onResult(await runJob(job));
  else await Promise.all(Array.from({ length: options.workers }, () => drive(take, onResult)));
  const used = process.cpuUsage(before);
  return report(scenario, results, (used.user + used.system) / 1e6, options.twice ? 2 : 1);
}

/** One worker thread: hands it a seed whenever it is free. */
function drive(take: () => SeedJob | undefined, onResult: (result: SeedResult) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    // Nearly everything a simulation allocates dies young: a large nursery halves the cost of collecting it.
    const worker = new Worker(new URL("./seed-worker.js", import.meta.url), {
      workerData: "seeds",
      resourceLimits: { maxYoungGenerationSizeMb: 256 },
    });
    const feed = (): void => {
      const job = take();
      if (job !== undefined) worker.postMessage(job);
      else void worker.terminate().then(() => resolve());
    };
    worker.on("message", (result: SeedResult) => {
      onResult(result);
      feed();
    });
    worker.on("error", reject);
    feed();
  });
}

function report(scenario: Scenario, results: readonly SeedResult[], cpuSeconds: number, runs: number): SoakReport {
  const counters: Record<string, number> = {};
  let calls = 0;
  let events = 0;
  let virtualMs = 0;
  for (const result of results) {
    calls += result.calls;
    events += result.events;
    virtualMs += result.virtualMs;
    for (const [name, value] of Object.entries(result.counters)) counters[name] = (counters[name] ?? 0) + value;
  }
  const failures = results.filter((result) => result.failure).sort((a, b) => a.seed - b.seed);
  const { mustHappen = [], mustHappenSmall = [] } = scenario;
  const all = isOwnShape(shippedShape) ? mustHappen : [...mustHappen, ...mustHappenSmall];
  const wanted = results.length >= mustHappenSeeds ? all : [];
  return {
    passed: results.length - failures.length,
    failures,
    counters,
    calls,
    events,
    virtualMs,
    callsPerSecond: Math.round((calls * runs) / cpuSeconds),
    missing: wanted.filter((name) => !counters[name]),
  };
}
