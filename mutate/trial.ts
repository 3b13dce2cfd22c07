/** Trying a mutant: the change is made in a copy of the tree, and tests that execute it run there, the quickest first, until one fails. */
import { spawn } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, delimiter, dirname, join } from "node:path";
import { applyMutant, type Mutant } from "./mutants.js";
import { PythonTrials } from "./python-trials.js";
import { type Reach, reaching, split } from "./reach.js";

/** A command that must fail for the mutant to be caught. */
export interface Stage {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  /** What it takes without a mutant, about. */
  readonly usualMs: number;
}

/** What became of a mutant. */
export interface Verdict {
  readonly mutant: Mutant;
  /** Which check noticed; undefined: none did. */
  readonly caught: Catch | undefined;
}

/** The stage that noticed, and what it said; `isTimeout`: it ended twice by the clock instead of by a failed test. */
export interface Catch {
  readonly stage: string;
  readonly proof: string;
  readonly isTimeout: boolean;
}

/** A stage that hangs has noticed something too, but a busy machine hangs as well: the limit is a multiple of what it takes without a mutant. */
const stageMsMin = 30_000;
const slowerMax = 6;
/** Most mutants fall to the quickest tests that execute them: so much of these is tried before the others. */
const quickMs = 8_000;
const reachMsMax = 3_600_000;

/** Tests that may meet a mutant of the rooms that are tried; which of them do is measured. */
const reachable: readonly string[] = [
  ...["format", "log", "cadence", "producer", "consumer", "lifecycle", "conformance", "flow", "fuzz", "pulse"],
  ...["namespace", "sim/chaos.test.ts", "sim/hazard-scenarios.test.ts"],
].map((name) => `test/${name}`);
/** Those that need a build or a framework, or are about other rooms, tell nothing about a mutant that the others do not. */
const pythonLeftOut: readonly string[] = [
  ...["kill", "frameworks", "cloud_store", "examples", "load", "trainers", "package", "types", "guide"],
  ...["rank_metrics", "exit", "waits", "ranks"],
];
const node = (name: string, ...args: string[]): Stage => ({ name, command: process.execPath, args, usualMs: 60_000 });
const build: Stage = node("types", "node_modules/.bin/tsc");
const sim = (scenario: string, seeds: number): Stage =>
  node(`sim ${scenario}`, "dist/sim/main.js", "--scenario", scenario, "--seeds", String(seeds), "--once");
const isSim = ({ name }: Stage): boolean => name.startsWith("sim");
// A test's own time limit must not take a busy machine for a catch; but one that waits for ever need not hold up everything.
const vitest = (name: string, paths: readonly string[], ...more: string[]): Stage =>
  node(
    name,
    "node_modules/.bin/vitest",
    "run",
    "--reporter=dot",
    ...["--test-timeout=45000", "--hook-timeout=45000"],
    ...more,
    ...paths,
  );

/** The test files, of those in a tree, that may meet a mutant. */
export function testsOf(language: string, files: readonly string[]): string[] {
  if (language === "typescript")
    return files.filter((file) => file.endsWith(".test.ts") && reachable.some((path) => file.startsWith(path)));
  return files.filter((file) => {
    const name = /^python\/tests\/test_(\w+)\.py$/.exec(file)?.[1];
    return name !== undefined && !pythonLeftOut.includes(name);
  });
}

/** The tests that a mutant of TypeScript meets in a process of its own. */
export function stagesOf(mutant: Mutant, reaches: readonly Reach[]): Stage[] {
  // What a test does in other processes nobody counts: such a test catches nothing here.
  return split(reaching(reaches, mutant), quickMs).flatMap((group, i) => {
    if (group.length === 0) return [];
    const [name, paths] = [["quick", "slow"][i] as string, group.map(({ path }) => path)];
    const stage = vitest(name, paths, "--bail=1", "--no-isolate");
    return [{ ...stage, usualMs: group.reduce((sum, { ms }) => sum + ms, 0) }];
  });
}

/** What the survivors of all tests meet. */
export const simulations: readonly Stage[] = [build, sim("chaos", 4), sim("cooperative", 4), sim("deep", 3)];

/** Only the test that failed, if the proof names it. */
function alone(proof: string): Stage | undefined {
  const test = /\b(test\/\S+\.test\.ts)\b/.exec(proof)?.[1];
  return test === undefined ? undefined : vitest(test, [test]);
}

/** A copy of the tracked files, in which mutants are tried one after another. Dispose it. */
export class TrialTree implements Disposable {
  readonly folder: string;
  /** Stages and tests that have passed without a mutant. */
  readonly #clean = new Set<string>();

  constructor(root: string, files: readonly string[]) {
    this.folder = mkdtempSync(join(tmpdir(), "batchweave-mutate-"));
    for (const file of files) {
      mkdirSync(dirname(join(this.folder, file)), { recursive: true });
      cpSync(join(root, file), join(this.folder, file));
    }
    symlinkSync(join(root, "node_modules"), join(this.folder, "node_modules"));
    // What still writes here is being killed at the same time; what it leaves is a temporary folder.
    process.once("exit", () => {
      try {
        this[Symbol.dispose]();
      } catch {}
    });
  }

  /** Which lines the tests of some files of Python execute. */
  async reaches(python: string, tests: readonly string[]): Promise<Reach[]> {
    const args = ["mutate/python_reach.py", "reach.json", ...tests.map((test) => basename(test, ".py"))];
    await this.#run({ name: "reach", command: python, args, usualMs: 0 }, reachMsMax);
    return JSON.parse(readFileSync(join(this.folder, "reach.json"), "utf8")) as Reach[];
  }

  /** What tries Python's mutants here. */
  pythonTrials(python: string, environment: Readonly<Record<string, string>> = {}): PythonTrials {
    return new PythonTrials(this.folder, python, environment);
  }

  /** Makes the change, runs the stages until one fails, and takes the change back. */
  async try(mutant: Mutant, stages: readonly Stage[]): Promise<Catch | undefined> {
    const path = join(this.folder, mutant.file);
    const text = readFileSync(path, "utf8");
    const mutated = applyMutant(text, mutant);
    writeFileSync(path, mutated);
    try {
      for (const stage of stages) {
        const caught = await this.#look(stage);
        if (caught === undefined) continue;
        writeFileSync(path, text);
        await this.#checkClean(stage, caught);
        return caught;
      }
      return undefined;
    } finally {
      writeFileSync(path, text);
    }
  }

  /** A timeout counts only when it happens twice. */
  async #look(stage: Stage): Promise<Catch | undefined> {
    const limitMs = Math.max(stageMsMin, slowerMax * stage.usualMs);
    const first = await this.#run(stage, limitMs);
    const { isPassed, proof, isTimeout } = first.isTimeout ? await this.#run(stage, 2 * limitMs) : first;
    if (isPassed) return undefined;
    // What goes by a clock fails on a busy machine too: it must fail twice.
    const again = isTimeout ? undefined : this.#byClock(proof);
    if (again && (await this.#run(again, 2 * limitMs)).isPassed) return undefined;
    return { stage: stage.name, proof, isTimeout };
  }

  /** The test that failed, by itself, if it knows clocks or processes. */
  #byClock(proof: string): Stage | undefined {
    const again = alone(proof);
    if (again === undefined) return undefined;
    const name = again.args.at(-1) as string;
    const path = name.endsWith(".ts") ? name : `python/tests/${name.split(".")[0]}.py`;
    const text = readFileSync(join(this.folder, path), "utf8");
    return /setTimeout|memoryUsage|spawn|subprocess|time\.sleep|\.wait\(/.test(text) ? again : undefined;
  }

  /** A test that fails without a mutant proves nothing: the first catch of each is repeated on the tree as it is. */
  async #checkClean(stage: Stage, { proof }: Catch): Promise<void> {
    const again = alone(proof) ?? stage;
    const name = [again.command, ...again.args].join(" ");
    if (this.#clean.has(name)) return;
    if (isSim(again)) await this.#run(build, reachMsMax);
    const { isPassed, proof: said } = await this.#run(again, reachMsMax);
    if (!isPassed)
      throw new Error(`Without any mutant, ${again.name} fails already (${said}): nothing can be measured.`);
    this.#clean.add(name);
  }

  #run({ command, args }: Stage, limitMs: number): Promise<{ isPassed: boolean; isTimeout: boolean; proof: string }> {
    const env = {
      ...process.env,
      PYTHONPATH: ["python", "python/tests"].map((path) => join(this.folder, path)).join(delimiter),
      PYTHONDONTWRITEBYTECODE: "1",
      NO_COLOR: "1",
    };
    return new Promise((resolve) => {
      const child = spawn(command, [...args], {
        cwd: this.folder,
        env,
        stdio: ["ignore", "pipe", "pipe"],
        detached: true,
      });
      let said = "";
      let isTimeout = false;
      const listen = (text: Buffer): void => {
        said = (said + text.toString()).slice(-100_000);
      };
      child.stdout.on("data", listen);
      child.stderr.on("data", listen);
      const timer = setTimeout(() => {
        isTimeout = true;
        if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
      }, limitMs);
      child.once("exit", (code) => {
        clearTimeout(timer);
        const proof = /^\s*(?:FAIL:?|ERROR:|.*error TS).*$/m.exec(said)?.[0].trim() ?? said.trim().split("\n").at(-1);
        resolve({ isPassed: code === 0, isTimeout, proof: proof ?? "" });
      });
      child.once("error", (error) => resolve({ isPassed: false, isTimeout: false, proof: error.message }));
    });
  }

  [Symbol.dispose](): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
