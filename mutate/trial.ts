/** Trying a mutant: the change is made in a copy of the tree, and tests run there, the nearest first, until one fails. */
import { spawn } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { applyMutant, type Mutant } from "./mutants.js";

/** A command that must fail for the mutant to be caught. */
export interface Stage {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
}

/** What became of a mutant. */
export interface Verdict {
  readonly mutant: Mutant;
  /** The stage that noticed; undefined: nobody did. */
  readonly caughtBy: string | undefined;
}

/** A stage that hangs has noticed something too. */
const stageMsMax = 240_000;

/** Tests of each room, nearest first; what takes a simulation is tried last. */
const units: Readonly<Record<string, readonly string[]>> = {
  format: ["test/format", "test/conformance", "test/lifecycle/verify.test.ts", "test/consumer"],
  log: ["test/log", "test/conformance", "test/lifecycle", "test/hazards.test.ts", "test/thin-publisher.test.ts"],
  cadence: ["test/cadence", "test/producer", "test/log"],
  producer: ["test/producer", "test/log", "test/lifecycle", "test/consumer"],
  consumer: ["test/consumer", "test/conformance", "test/lifecycle/public-lifecycle.test.ts", "test/hazards.test.ts"],
  lifecycle: ["test/lifecycle", "test/conformance", "test/hazards.test.ts", "test/cli/lifecycle.test.ts"],
};
const simulated: readonly string[] = ["log", "cadence", "producer", "consumer", "lifecycle"];

const sim = (scenario: string, seeds: number): Stage => ({
  name: `sim ${scenario}`,
  command: process.execPath,
  args: ["dist/sim/main.js", "--scenario", scenario, "--seeds", String(seeds), "--once"],
});

/** What a mutant of a file has to survive. */
export function stagesOf(file: string): Stage[] {
  if (file.endsWith(".py")) {
    const python = (pattern: string): Stage => ({
      name: pattern,
      command: "python3",
      args: ["-m", "unittest", "discover", "-f", "-s", "python/tests", "-p", pattern],
    });
    return ["test_conformance.py", "test_[!c]*.py", "test_c*.py"].map(python);
  }
  const room = file.split("/")[1] as string;
  const build = { name: "types", command: process.execPath, args: ["node_modules/.bin/tsc"] };
  const tests = {
    name: "tests",
    command: process.execPath,
    args: ["node_modules/.bin/vitest", "run", "--bail=1", "--reporter=dot", ...(units[room] ?? [`test/${room}`])],
  };
  return simulated.includes(room)
    ? [build, sim("chaos", 6), tests, sim("cooperative", 15), sim("chaos", 40)]
    : [build, tests, sim("chaos", 6)];
}

/** A copy of the tracked files, in which mutants are tried one after another. Dispose it. */
export class TrialTree implements Disposable {
  readonly #folder: string;
  readonly #root: string;

  constructor(root: string, files: readonly string[]) {
    this.#root = root;
    this.#folder = mkdtempSync(join(tmpdir(), "batchweave-mutate-"));
    for (const file of files) {
      mkdirSync(dirname(join(this.#folder, file)), { recursive: true });
      cpSync(join(root, file), join(this.#folder, file));
    }
    symlinkSync(join(root, "node_modules"), join(this.#folder, "node_modules"));
  }

  /** Runs the stages until one fails. `undefined` for the mutant tries the tree as it is: nothing may fail then. */
  async try(mutant: Mutant | undefined, stages: readonly Stage[]): Promise<string | undefined> {
    const path = mutant && join(this.#folder, mutant.file);
    const text = path === undefined ? "" : readFileSync(path, "utf8");
    if (mutant && path !== undefined) writeFileSync(path, applyMutant(text, mutant));
    try {
      for (const stage of stages) if (!(await this.#passes(stage))) return stage.name;
      return undefined;
    } finally {
      if (path !== undefined) writeFileSync(path, text);
    }
  }

  #passes({ command, args }: Stage): Promise<boolean> {
    const env = {
      ...process.env,
      PYTHONPATH: join(this.#folder, "python"),
      PYTHONDONTWRITEBYTECODE: "1",
      FORCE_COLOR: "0",
    };
    return new Promise((resolve) => {
      const child = spawn(command, [...args], { cwd: this.#folder, env, stdio: "ignore", detached: true });
      const timer = setTimeout(() => child.pid !== undefined && process.kill(-child.pid, "SIGKILL"), stageMsMax);
      child.once("exit", (code) => {
        clearTimeout(timer);
        resolve(code === 0);
      });
      child.once("error", () => resolve(false));
    });
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Where the original lies. */
  get root(): string {
    return this.#root;
  }
}
