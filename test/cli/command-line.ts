/** Runs the built command: in processes of its own, as its users do, or one after another in one; and looks at a folder before and after. */
import { type ChildProcess, execFileSync, fork, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { listFiles, root } from "../source-tree.js";

const main = join(root, "dist/src/cli/main.js");
const stamp = join(root, "dist/build.tsbuildinfo");

/** Builds when a source is newer than the last build: `make test` has built before, a single run of these tests may not have. */
export function buildIfStale(): void {
  const lock = join(root, "dist/.building");
  mkdirSync(join(root, "dist"), { recursive: true });
  for (;;) {
    try {
      mkdirSync(lock);
      break;
    } catch {
      // Another test file is building. A lock that is left over from a killed run is broken after a minute.
      if (existsSync(lock) && Date.now() - statSync(lock).mtimeMs > 60_000) rmSync(lock, { recursive: true });
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100);
    }
  }
  try {
    const built = existsSync(stamp) && existsSync(main) ? statSync(stamp).mtimeMs : 0;
    const newest = ["src", "scripts", "examples"]
      .flatMap((folder) => listFiles(folder, [".ts"]))
      .reduce((latest, path) => Math.max(latest, statSync(join(root, path)).mtimeMs), 0);
    if (newest <= built) return;
    // Type errors are for the build step to report; what could be emitted, was.
    try {
      execFileSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc")], { cwd: root, stdio: "ignore" });
    } catch {
      if (!existsSync(main)) throw new Error("the command cannot be built; run npm run build");
    }
  } finally {
    rmSync(lock, { recursive: true, force: true });
  }
}

/** How a command ended. */
export interface Ended {
  readonly status: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
  /** stdout as JSON lines. */
  readonly lines: readonly unknown[];
  /** The error of `--json`, if it printed one. */
  readonly error: { readonly code: string; readonly message: string; readonly remedy: string } | undefined;
}

/** A command that runs. */
export interface Running {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
}

/** The variables of this process, without those of the job that runs the tests. */
function cleanEnv(): NodeJS.ProcessEnv {
  return Object.fromEntries(
    Object.entries(process.env).filter(
      ([name]) => !/^(RANK|WORLD_SIZE|SLURM_|JOB_|BATCHWEAVE_|NODE_OPTIONS|VITEST)/.test(name),
    ),
  );
}

/** Starts a command in a process of its own. */
export function start(args: readonly string[], env: Readonly<Record<string, string>> = {}): Running {
  const child = spawn(process.execPath, [main, ...args], {
    env: { ...cleanEnv(), ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (data: Buffer) => {
    stdout += data.toString();
  });
  child.stderr.on("data", (data: Buffer) => {
    stderr += data.toString();
  });
  const ended = new Promise<Ended>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (status, signal) =>
      resolve({ status, signal, stdout, stderr, lines: jsonLines(stdout), error: errorIn(stderr) }),
    );
  });
  return { child, ended };
}

let host: ChildProcess | undefined;
let isHostBusy = false;

/** Runs a command to its end: in the process that runs one after another, or in its own while that one is busy. */
export async function run(...args: string[]): Promise<Ended> {
  if (isHostBusy) return await start(args).ended;
  isHostBusy = true;
  try {
    host ??= fork(join(root, "test/cli/command-host.mjs"), { env: cleanEnv(), execArgv: [], stdio: "ignore" });
    const used = host;
    return await new Promise<Ended>((resolve, reject) => {
      const onExit = (status: number | null): void => {
        host = undefined;
        reject(new Error(`batchweave ${args.join(" ")} ended the process it ran in with ${status}`));
      };
      used.once("exit", onExit);
      used.once("message", (answer: Pick<Ended, "status" | "stdout" | "stderr">) => {
        used.off("exit", onExit);
        resolve({ ...answer, signal: null, lines: jsonLines(answer.stdout), error: errorIn(answer.stderr) });
      });
      used.send(args);
    });
  } finally {
    isHostBusy = false;
  }
}

/** Runs a command that must succeed. */
export async function must(...args: string[]): Promise<Ended> {
  const ended = await run(...args);
  if (ended.status !== 0) throw new Error(`batchweave ${args.join(" ")} ended with ${ended.status}: ${ended.stderr}`);
  return ended;
}

function jsonLines(text: string): unknown[] {
  return text.split("\n").flatMap((line) => {
    try {
      return line === "" ? [] : [JSON.parse(line)];
    } catch {
      return [];
    }
  });
}

function errorIn(stderr: string): Ended["error"] {
  const found = jsonLines(stderr).find((line) => typeof line === "object" && line !== null && "error" in line);
  return (found as { error: Ended["error"] } | undefined)?.error;
}

/** A folder for one test file, and URIs in it. */
export class Workspace {
  readonly folder: string = mkdtempSync(join(tmpdir(), "batchweave-cli-"));

  /** The `file:` URI of a namespace in the folder. */
  uri(name: string): string {
    return pathToFileURL(join(this.folder, name)).href;
  }

  path(...names: string[]): string {
    return join(this.folder, ...names);
  }

  /** Every file below `name` with the hash of its content: equal before and after means that nothing changed. */
  snapshot(name = ""): Record<string, string> {
    const from = this.path(name);
    if (!existsSync(from)) return {};
    return Object.fromEntries(
      readdirSync(from, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map((entry) => join(entry.parentPath, entry.name))
        .sort()
        .map((path) => [path, createHash("sha256").update(readFileSync(path)).digest("hex")]),
    );
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
