/**
 * Memory of reading many sources: proportional set size (PSS, shared pages divided among those who share them) summed over all processes. One
 * loader per rank and worker, as torch DataLoaders do it, against ours: one process with all sources, and ranks that read the log. Both are
 * really run. With `--baseline node` (default) both are in the same language with the same Parquet reader, so only the arrangement differs; with
 * `--baseline torch` the ranks of both are Python processes with torch, and the loaders are torch's own DataLoader over pyarrow (`--python`: an
 * interpreter that has both; default python3). Linux only: it reads /proc/PID/smaps_rollup.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";
import { inScratchFolder } from "../harness/scratch-folder.js";
import { number, readOptions } from "./parts/options.js";
import { writeParquetSources } from "./parts/parquet-sources.js";
import { Report } from "./parts/report.js";

export const summary: string = "memory of 306 Parquet sources: one loader per rank and worker, and ours";

const script = fileURLToPath(new URL("./parts/memory-process.js", import.meta.url));
/** Python is not compiled: its files lie in the source tree, two folders above dist/bench. */
const root = fileURLToPath(new URL("../../", import.meta.url));
const torchScript = join(root, "bench/parts/torch_memory.py");

/** What the interpreter has, or undefined when torch or pyarrow is missing. */
function torchOf(python: string): string | undefined {
  try {
    return execFileSync(python, [torchScript, "probe"], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    }).trim();
  } catch {
    return undefined;
  }
}

/** Bytes of a process that are its own share. */
function pss(pid: number): number {
  const kib = /^Pss:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8"))?.[1];
  return 1024 * Number(kib);
}

interface Running {
  readonly child: ChildProcess;
  /** Resolves with the process ids behind it once it is in steady state. */
  readonly ready: Promise<number[]>;
}

/** With `python`, a torch rank. */
function start(args: readonly (string | number)[], python?: string | undefined): Running {
  const child = spawn(python ?? process.execPath, [python ? torchScript : script, ...args.map(String)], {
    stdio: ["ignore", "pipe", "inherit"],
    // Torch warns of more workers than cores, which is the point here.
    env: { ...process.env, PYTHONPATH: join(root, "python"), PYTHONWARNINGS: "ignore" },
  });
  const ready = new Promise<number[]>((resolve, reject) => {
    child.once("exit", (code) => reject(new Error(`${args[0]} ended with ${code} before it was ready`)));
    createInterface({ input: child.stdout as NodeJS.ReadableStream }).once("line", (line) => {
      const { pid, children = [] } = JSON.parse(line) as { pid: number; children?: number[] };
      resolve([pid, ...children]);
    });
  });
  ready.catch(() => {});
  return { child, ready };
}

/** Starts processes, waits until all are in steady state, adds up their memory, and ends them. */
async function measure(running: readonly Running[]): Promise<{ bytes: number; processes: number }> {
  try {
    const pids = (await Promise.all(running.map(({ ready }) => ready))).flat();
    return { bytes: pids.reduce((sum, pid) => sum + pss(pid), 0), processes: pids.length };
  } finally {
    await Promise.all(
      running.map(
        ({ child }) =>
          new Promise((resolve) => {
            if (child.exitCode !== null) return resolve(undefined);
            child.once("exit", resolve);
            child.kill("SIGTERM");
          }),
      ),
    );
  }
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, [
    "sources",
    "ranks",
    "workers",
    "row-groups",
    "rows",
    "chars",
    "dir",
    "baseline",
    "python",
  ]);
  const report = new Report("sources", options.json);
  const [sources, ranks, workers] = [
    number(options.sources, 306),
    number(options.ranks, 8),
    number(options.workers, 4),
  ];
  const shape = {
    sources,
    rowGroups: number(options["row-groups"], 2),
    rowsPerGroup: number(options.rows, 600),
    rowChars: number(options.chars, 1000),
  };
  const python = options.baseline === "torch" ? (options.python ?? "python3") : undefined;
  const versions = python && torchOf(python);
  if (python && !versions) {
    report.note(`skipped: ${python} has no torch and pyarrow; name an interpreter that has with --python`);
    return;
  }
  if (versions) report.note(versions);
  await inScratchFolder(options.dir, async (folder) => {
    report.note(
      `writing ${sources} Parquet files of ${shape.rowGroups} row groups, about ${((shape.rowsPerGroup * shape.rowChars) / 1e6).toFixed(1)} MB each`,
    );
    await writeParquetSources(folder, shape);
    report.note(`ours: one producer, ${ranks} ranks`);
    const uri = pathToFileURL(join(folder, "log")).href;
    const threads = Math.min(2, cpus().length);
    const producer = start(["producer", folder, sources, uri, ranks, threads]);
    await producer.ready;
    const ours = await measure([
      producer,
      ...Array.from({ length: ranks }, (_, rank) => start([python ? "reader" : "consumer", uri, rank, ranks], python)),
    ]);
    report.note(`one loader per rank and worker: ${ranks} ranks x ${workers} workers`);
    const theirs = await measure(
      Array.from({ length: ranks }, (_, rank) =>
        start([python ? "loader" : "rank", folder, sources, rank, ranks, workers], python),
      ),
    );
    // What torch itself takes in every rank is no loader's doing: told apart for people.
    const idle = python === undefined ? [] : Array.from({ length: ranks }, () => start(["bare"], python));
    const bare = (await measure(idle)).bytes;
    report.row(
      { sources, ranks, workers, oursBytes: ours.bytes, perRankBytes: theirs.bytes, ratio: theirs.bytes / ours.bytes },
      {
        oursProcesses: ours.processes,
        perRankProcesses: theirs.processes,
        bareRanksBytes: bare,
        ratioBeyondBare: (theirs.bytes - bare) / (ours.bytes - bare),
      },
    );
  });
  report.end();
}
