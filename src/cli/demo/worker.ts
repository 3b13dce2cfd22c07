/** One process of the demo: the CLI's own `produce` or `consume`, started, watched, killed and started again. */
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Sighting } from "./proof.js";

const main = fileURLToPath(new URL("../main.js", import.meta.url));

/** How a process ended. */
interface Ending {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A process of the demo. */
export class Worker {
  readonly name: string;
  readonly ended: Promise<Ending>;
  readonly #child: ChildProcess;
  #errors = "";

  constructor(name: string, args: readonly string[], onLine: (line: string) => void) {
    this.name = name;
    // The launcher's variables must not tell the demo's ranks who they are.
    const { RANK: _rank, WORLD_SIZE: _world, SLURM_PROCID: _slurm, JOB_COMPLETION_INDEX: _index, ...env } = process.env;
    this.#child = spawn(process.execPath, [main, ...args], { stdio: ["ignore", "pipe", "pipe"], env });
    const stdout = this.#child.stdout as NodeJS.ReadableStream;
    const lines = createInterface({ input: stdout });
    lines.on("line", onLine);
    this.#child.stderr?.on("data", (data: Buffer) => {
      this.#errors = `${this.#errors}${data.toString()}`.slice(-4_000);
    });
    const read = new Promise<void>((resolve) => lines.once("close", resolve));
    const exited = new Promise<Ending>((resolve, reject) => {
      this.#child.once("error", reject);
      this.#child.once("exit", (code, signal) => resolve({ code, signal }));
    });
    this.ended = exited.then(async (ending) => {
      await read;
      return ending;
    });
    this.ended.catch(() => {});
  }

  /** What it wrote to stderr last: why it failed, if it did. */
  get errors(): string {
    return this.#errors.trim();
  }

  /** Asks it to stop. */
  stop(): void {
    this.#child.kill("SIGTERM");
  }

  /** kill -9. */
  async kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.ended;
  }
}

/** A rank: `consume`, and what it saw. */
export class RankWorker {
  readonly sightings: Sighting[] = [];
  readonly worker: Worker;
  /** Iterations that were taken before it started. */
  readonly #before: number;

  constructor(before: number, name: string, args: readonly string[], onSighting: (sighting: Sighting) => void) {
    this.#before = before;
    this.worker = new Worker(name, args, (line) => {
      const sighting = parseSighting(line);
      if (!sighting) return;
      this.sightings.push(sighting);
      onSighting(sighting);
    });
  }

  /** Iterations taken so far; a rank that has just started again stands at its checkpoint. */
  get taken(): number {
    const last = this.sightings.at(-1);
    return last === undefined ? this.#before : last.iteration + 1;
  }
}

/** A line of `consume --json --slices`; a line cut off by a kill is no sighting. */
function parseSighting(line: string): Sighting | undefined {
  try {
    const { iteration, slices } = JSON.parse(line) as { iteration: number; slices: [number, number, number, string][] };
    return { iteration, digests: slices.map(([, , , digest]) => digest) };
  } catch {
    return undefined;
  }
}
