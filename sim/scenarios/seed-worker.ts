/** A worker thread that runs one seed after another as it is told. */
import { parentPort, workerData } from "node:worker_threads";
import { scenarios } from "./scenario.js";
import { runSeedQuickly, runSeedTwice, type SeedResult } from "./seed-run.js";

/** What the pool sends. */
export interface SeedJob {
  readonly scenario: string;
  readonly seed: number;
  readonly twice: boolean;
}

/** Runs a job, here or in a worker. */
export async function runJob(job: SeedJob): Promise<SeedResult> {
  const scenario = scenarios.get(job.scenario);
  if (scenario === undefined) throw new Error(`no scenario is called ${job.scenario}`);
  return job.twice ? runSeedTwice(scenario, job.seed) : runSeedQuickly(scenario, job.seed);
}

// Test runners have worker threads of their own; only the pool's answer to jobs.
if (parentPort !== null && workerData === "seeds") {
  const port = parentPort;
  port.on("message", (job: SeedJob) => {
    void runJob(job).then((result) => port.postMessage({ ...result, faults: result.failure ? result.faults : [] }));
  });
}
