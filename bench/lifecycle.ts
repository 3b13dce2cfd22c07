/**
 * The paper's Figure 9: 1,010 steps, a checkpoint every 10, maxLag 80, with and without reclaim. Two producer processes and one
 * training process on the file store; this process samples the folder's bytes. Fails when the peak with reclaim is above maxLag plus two checkpoint
 * intervals of data.
 */
import { readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { createNamespace } from "../src/index.js";
import type { LifecycleRole } from "./harness/lifecycle-worker.js";
import { number, readOptions } from "./harness/options.js";
import { Report } from "./harness/report.js";
import { inScratchFolder } from "./harness/scratch-folder.js";
import { WorkerProcess } from "./harness/worker-process.js";

export const summary =
  "stored bytes over a run with checkpoints, with and without reclaim [--steps 1010] [--step-ms 60] [--plot FILE.svg]";

interface Sample {
  readonly atMs: number;
  readonly bytes: number;
}

const producers = 2;
const rows = 8;
const sampleMs = 100;

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["steps", "step-ms", "slice-bytes", "max-lag", "interval", "plot", "folder"]);
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
  if (options.plot !== undefined) writeFileSync(options.plot, plot(curves));
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
  const worker = new URL("./harness/lifecycle-worker.js", import.meta.url);
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

/** Both curves as a small SVG. */
function plot(curves: readonly { reclaim: boolean; samples: readonly Sample[] }[]): string {
  const [width, height, margin] = [720, 300, 50];
  const all = curves.flatMap(({ samples }) => samples);
  const [lastMs, most] = [Math.max(...all.map((s) => s.atMs)), Math.max(...all.map((s) => s.bytes))];
  const x = (ms: number): string => (margin + (ms / lastMs) * (width - 2 * margin)).toFixed(1);
  const y = (bytes: number): string => (height - margin - (bytes / most) * (height - 2 * margin)).toFixed(1);
  const lines = curves.map(({ reclaim, samples }) => {
    const points = samples.map((s) => `${x(s.atMs)},${y(s.bytes)}`).join(" ");
    return `<polyline fill="none" stroke="${reclaim ? "#1a7f37" : "#cf222e"}" stroke-width="1.5" points="${points}"/>`;
  });
  const text = (at: [string | number, string | number], label: string, color = "#444"): string =>
    `<text x="${at[0]}" y="${at[1]}" font-family="sans-serif" font-size="12" fill="${color}">${label}</text>`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}">`,
    "<title>Stored bytes over the run, with and without reclaim</title>",
    `<rect width="${width}" height="${height}" fill="#fff"/>`,
    `<path d="M${margin} ${margin}V${height - margin}H${width - margin}" fill="none" stroke="#888"/>`,
    ...lines,
    text([margin, margin - 12], `stored bytes (top: ${(most / 1e6).toFixed(0)} MB)`),
    text([width - margin - 60, height - margin + 20], `${(lastMs / 1e3).toFixed(0)} s`),
    text([margin + 20, margin + 10], "without reclaim", "#cf222e"),
    text([margin + 20, margin + 26], "with reclaim", "#1a7f37"),
    "</svg>",
    "",
  ].join("\n");
}
