/**
 * The paper's Figure 9: 1,010 steps, a checkpoint every 10, maxLag 80, with and without reclaim. Two producer processes and one
 * training process on the file store; this process samples the folder's bytes. Fails when the peak with reclaim is above maxLag plus two checkpoint
 * intervals of data.
 */
import { readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { inScratchFolder } from "../harness/scratch-folder.js";
import { WorkerProcess } from "../harness/worker-process.js";
import { createNamespace } from "../src/index.js";
import type { LifecycleRole } from "./parts/lifecycle-worker.js";
import { number, readOptions } from "./parts/options.js";
import { Report } from "./parts/report.js";

export const summary =
  "stored bytes over a run with checkpoints, with and without reclaim [--steps 1010] [--step-ms 60] [--data FILE.json]";

interface Sample {
  readonly atMs: number;
  readonly bytes: number;
}

const producers = 2;
const rows = 8;
const sampleMs = 100;
const pointsMax = 150;

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["steps", "step-ms", "slice-bytes", "max-lag", "interval", "data", "folder"]);
  const plan = {
    // Both producers make the same number of batches.
    steps: 2 * Math.round(number(options.steps, 1_010) / 2),
    stepMs: number(options["step-ms"], 60),
    sliceBytes: number(options["slice-bytes"], 32_768),
    maxLag: number(options["max-lag"], 80),
    checkpointEvery: number(options.interval, 10),
  };
  const report = new Report("lifecycle", options.json);
  const curves: { reclaim: boolean; samples: Sample[] }[] = [];
  for (const reclaim of [false, true]) {
    const samples = await inScratchFolder(options.folder, (folder) => measure(folder, plan, reclaim));
    curves.push({ reclaim, samples });
    const peakBytes = Math.max(...samples.map((s) => s.bytes));
    const endBytes = samples.at(-1)?.bytes ?? 0;
    const stepBytes = plan.sliceBytes * rows;
    report.row({ reclaim, peakBytes, endBytes, stepBytes }, { peakSteps: peakBytes / stepBytes });
    const allowedSteps = plan.maxLag + 2 * plan.checkpointEvery;
    if (reclaim && peakBytes > allowedSteps * stepBytes * 1.05)
      report.note(`The peak is ${(peakBytes / stepBytes).toFixed(0)} steps of data, more than ${allowedSteps}.`);
  }
  if (options.data !== undefined)
    writeFileSync(options.data, dataOf(curves, `npm run bench -- lifecycle --data ${options.data}`));
  report.end();
}

interface Plan {
  readonly steps: number;
  readonly stepMs: number;
  readonly sliceBytes: number;
  readonly maxLag: number;
  readonly checkpointEvery: number;
}

async function measure(folder: string, plan: Plan, reclaim: boolean): Promise<Sample[]> {
  const uri = pathToFileURL(folder).href;
  const ns = await createNamespace(uri, { grid: { rows, chunks: 1 } });
  await ns.setMaxLag(plan.maxLag);
  const shared = { ...plan, uri, rows, reclaim, graceMs: (plan.maxLag * plan.stepMs) / 2, keepVersions: 4 };
  const worker = new URL("./parts/lifecycle-worker.js", import.meta.url);
  const start = (role: Partial<LifecycleRole>): WorkerProcess => new WorkerProcess(worker, { ...shared, ...role });
  const makers = Array.from({ length: producers }, (_, i) =>
    start({ role: "producer", id: `producer-${i}`, steps: plan.steps / producers }),
  );
  const trainer = start({ role: "trainer", id: "rank-0" });
  const samples: Sample[] = [];
  const begun = performance.now();
  const sample = (): unknown => samples.push({ atMs: performance.now() - begun, bytes: folderBytes(folder) });
  const timer = setInterval(sample, sampleMs);
  try {
    await Promise.all([...makers, trainer].map((process) => process.ask("go")));
  } finally {
    clearInterval(timer);
    for (const process of [...makers, trainer]) await process.stop();
  }
  sample();
  return samples;
}

/** Bytes of all files below a folder; what goes while it is looked at counts nothing. */
function folderBytes(folder: string): number {
  let bytes = 0;
  try {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      const path = join(folder, entry.name);
      bytes += entry.isDirectory() ? folderBytes(path) : (statSync(path, { throwIfNoEntry: false })?.size ?? 0);
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  return bytes;
}

/** Both curves, thinned to what a plot can show, as `npm run plots` takes them. */
function dataOf(curves: readonly { reclaim: boolean; samples: readonly Sample[] }[], command: string): string {
  const rows = curves.flatMap(({ reclaim, samples }) => {
    const every = Math.ceil(samples.length / pointsMax);
    const thinned = samples.filter((_, i) => i % every === 0 || i === samples.length - 1);
    return thinned.map(({ atMs, bytes }) => ({
      run: reclaim ? "with reclaim" : "without reclaim",
      atMs: Math.round(atMs),
      bytes,
    }));
  });
  const lines = rows.map((row) => `    ${JSON.stringify(row)}`).join(",\n");
  return `{\n  "command": ${JSON.stringify(command)},\n  "machine": "2 cores, 24 GiB, ext4, Node 20",\n  "rows": [\n${lines}\n  ]\n}\n`;
}
