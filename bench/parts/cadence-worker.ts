/** Runs of the cadence simulation side by side, each in a thread of its own: one is a single thread's work for minutes. */
import { fileURLToPath } from "node:url";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import {
  type CadenceMinute,
  type CadenceRun,
  type CadenceRunOptions,
  runCadence,
  useLightAborts,
} from "../../sim/index.js";

/** A run without its callback, which cannot travel. */
export type CadenceJob = Omit<CadenceRunOptions, "onMinute">;

/** What came out, minute by minute and in all. */
export interface CadenceOutcome {
  readonly run: CadenceRun;
  readonly minutes: readonly CadenceMinute[];
}

const file = fileURLToPath(import.meta.url);
/** Thousands of producers hold what they have uploaded until it is confirmed; and most of it dies young. */
const resourceLimits = { maxOldGenerationSizeMb: 12_000, maxYoungGenerationSizeMb: 96 };

async function runHere(job: CadenceJob): Promise<CadenceOutcome> {
  const minutes: CadenceMinute[] = [];
  const run = await runCadence({ ...job, onMinute: (minute) => void minutes.push(minute) });
  return { run, minutes };
}

/** Uncompiled, as in tests, there is nothing that a thread could load. */
function runJob(job: CadenceJob): Promise<CadenceOutcome> {
  if (file.endsWith(".ts")) return runHere(job);
  return new Promise((resolve, reject) => {
    const worker = new Worker(file, { workerData: { cadence: job }, resourceLimits });
    worker.once("message", resolve);
    worker.once("error", reject);
    worker.once("exit", (code) => reject(new Error(`a simulation ended with ${code}`)));
  });
}

/** Runs all jobs, `workers` at a time; `done` is told of each in the order of the jobs, as soon as those before it are over. */
export async function runJobs(
  jobs: readonly CadenceJob[],
  workers: number,
  done: (outcome: CadenceOutcome, index: number) => void,
): Promise<void> {
  const outcomes: (CadenceOutcome | undefined)[] = [];
  let next = 0;
  let told = 0;
  const work = async (): Promise<void> => {
    for (let index = next++; index < jobs.length; index = next++) {
      outcomes[index] = await runJob(jobs[index] as CadenceJob);
      for (let outcome = outcomes[told]; outcome; outcome = outcomes[told]) {
        done(outcome, told);
        outcomes[told++] = undefined;
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(workers, jobs.length) }, work));
}

if (!isMainThread && workerData?.cadence) {
  useLightAborts();
  parentPort?.postMessage(await runHere(workerData.cadence as CadenceJob));
}
