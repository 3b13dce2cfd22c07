/** Trying a mutant: the change is made in a copy of the tree, and tests run there, the nearest first, until one fails. */
import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
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
  /** Who noticed; undefined: nobody did. */
  readonly caught: Catch | undefined;
}

/** The stage that noticed, and what it said; `isTimeout`: it ended twice by the clock instead of by a failed test. */
export interface Catch {
  readonly stage: string;
  readonly proof: string;
  readonly isTimeout: boolean;
}

/** A stage that hangs has noticed something too, but a busy machine hangs as well: the limit is a multiple of what the stage took without a mutant. */
const stageMsMin = 60_000;
const slowerMax = 4;
/** The limit until that is known. */
const unknownMs = 150_000;

/** Tests of each room: the nearest, then those that use it. What takes a simulation is tried in between, or last. */
const units: Readonly<Record<string, readonly (readonly string[])[]>> = {
  format: [
    ["test/format", "test/conformance"],
    ["test/hostile-input.test.ts", "test/fuzz", "test/lifecycle/verify.test.ts", "test/consumer", "test/log"],
  ],
  log: [
    ["test/log", "test/conformance", "test/lifecycle/chain-hazards.test.ts"],
    ["test/lifecycle", "test/producer", "test/thin-publisher.test.ts"],
  ],
  cadence: [
    ["test/cadence", "test/producer"],
    ["test/log", "test/lifecycle"],
  ],
  producer: [["test/producer"], ["test/log", "test/lifecycle", "test/consumer"]],
  consumer: [
    ["test/consumer", "test/conformance"],
    ["test/lifecycle/public-lifecycle.test.ts", "test/lifecycle/checkpoint.test.ts"],
  ],
  lifecycle: [
    ["reclaim", "checkpoint", "fork", "lag-gate", "verify", "sweep-window"].map((n) => `test/lifecycle/${n}.test.ts`),
    ["test/lifecycle", "test/conformance", "test/log", "test/cli/lifecycle.test.ts"],
  ],
  store: [["test/store"], ["test/stores", "test/log"]],
};
/** Tests of the first stage at most. */
const closestMax = 4;
const simulated: readonly string[] = ["log", "cadence", "producer", "consumer", "lifecycle"];

/** The same for Python, quick ones only; after these come all the others. */
const pythonUnits: Readonly<Record<string, readonly string[]>> = {
  format: ["edges", "fuzz", "log", "conformance"],
  log: ["edges", "chain_hazards", "heads", "log", "lives", "durability"],
  producer: ["edges", "takeover", "log", "publisher", "lives", "chain_hazards"],
  consumer: ["conformance", "reused_buffers"],
  lifecycle: ["lag", "log", "pins"],
  store: ["durability", "lives", "file_store"],
};
/** What takes long comes last. */
const pythonSlow: readonly string[] = ["consumer", "file_store", "dataset", "read_ahead", "exit", "waits"];
/** Those that need a build or a framework tell nothing about a mutant that the others do not. */
const pythonLeftOut: readonly string[] = ["kill", "frameworks", "cloud_store", "examples"];
/** Those of a reader's own ways: they take long, and only a reader's mutant meets them. */
const pythonReaders: readonly string[] = [
  "exit",
  "waits",
  "read_ahead",
  "dataset",
  "buffers",
  "file_store",
  "consumer",
];

const sim = (scenario: string, seeds: number): Stage => ({
  name: `sim ${scenario} ${seeds}`,
  command: process.execPath,
  args: ["dist/sim/main.js", "--scenario", scenario, "--seeds", String(seeds), "--once"],
});

const vitest = (name: string, paths: readonly string[]): Stage => ({
  name,
  command: process.execPath,
  // A test's own time limit must not take a busy machine for a catch; but one that waits for ever need not hold up everything.
  args: [
    "node_modules/.bin/vitest",
    "run",
    "--bail=1",
    "--reporter=dot",
    "--test-timeout=45000",
    "--hook-timeout=45000",
    ...paths,
  ],
});

/** Most mutants fall to tests that bear the name of their file, or use what it exports by name; a handful of those takes seconds. */
function closestTests(file: string, files: readonly string[], room: string): string[] {
  const stem = file.slice(file.lastIndexOf("/") + 1, -".ts".length);
  const text = existsSync(file) ? readFileSync(file, "utf8") : "";
  const exported = [...text.matchAll(/^export (?:async )?(?:function\*?|class|const) (\w+)/gm)];
  const names = new RegExp(`\\b(?:${exported.map(([, name]) => name).join("|") || "-"})\\b`, "g");
  return files
    .filter((path) => path.startsWith(`test/${room}/`) && path.endsWith(".test.ts"))
    .map((path) => ({
      path,
      uses: path.startsWith(`test/${room}/${stem}`) ? Infinity : (readFileSync(path, "utf8").match(names)?.length ?? 0),
    }))
    .filter(({ uses }) => uses > 0)
    .sort((a, b) => b.uses - a.uses)
    .slice(0, closestMax)
    .map(({ path }) => path);
}

/** What a mutant of a file has to survive; `files` is the tree, `python` the interpreter. */
export function stagesOf(file: string, files: readonly string[], python: string): Stage[] {
  if (file.endsWith(".py")) {
    const all = files.flatMap((path) => /^python\/tests\/test_(\w+)\.py$/.exec(path)?.[1] ?? []);
    const room = file.split("/")[2] as string;
    const near = pythonUnits[room] ?? [];
    const leftOut = room === "consumer" ? pythonLeftOut : [...pythonLeftOut, ...pythonReaders];
    const rest = all
      .filter((name) => !near.includes(name) && !leftOut.includes(name))
      .sort((a, b) => pythonSlow.indexOf(a) - pythonSlow.indexOf(b));
    const stage = (name: string, names: readonly string[]): Stage => ({
      name: `${name} ${names[0]}`,
      command: python,
      args: ["-m", "unittest", "-f", ...names.map((test) => `test_${test}`)],
    });
    return [stage("near", near), stage("rest", rest)];
  }
  const room = file.split("/")[1] as string;
  const build = { name: "types", command: process.execPath, args: ["node_modules/.bin/tsc"] };
  const [near, rest] = units[room] ?? [[`test/${room}`], []];
  const tests = [vitest("near", near as readonly string[]), vitest("rest", rest as readonly string[])] as const;
  const closest = closestTests(file, files, room);
  const own = closest.length > 0 ? [vitest("own", closest)] : [];
  return simulated.includes(room)
    ? [...own, build, tests[0], sim("chaos", 6), tests[1], sim("cooperative", 8), sim("chaos", 15)]
    : [...own, build, ...tests, sim("chaos", 6)];
}

const isBuild = ({ name }: Stage): boolean => name === "types";
const nameOf = ({ command, args }: Stage): string => [command, ...args].join(" ");

/** A copy of the tracked files, in which mutants are tried one after another. Dispose it. */
export class TrialTree implements Disposable {
  readonly #folder: string;
  /** What a stage takes without a mutant. */
  readonly #usualMs = new Map<string, number>();

  constructor(root: string, files: readonly string[]) {
    this.#folder = mkdtempSync(join(tmpdir(), "batchweave-mutate-"));
    for (const file of files) {
      mkdirSync(dirname(join(this.#folder, file)), { recursive: true });
      cpSync(join(root, file), join(this.#folder, file));
    }
    symlinkSync(join(root, "node_modules"), join(this.#folder, "node_modules"));
  }

  /** Makes the change, runs the stages until one fails, and takes the change back. */
  async try(mutant: Mutant, stages: readonly Stage[]): Promise<Catch | undefined> {
    const path = join(this.#folder, mutant.file);
    const text = readFileSync(path, "utf8");
    writeFileSync(path, applyMutant(text, mutant));
    try {
      for (const stage of stages) {
        let caught = await this.#look(stage);
        if (caught === undefined) continue;
        if (!this.#usualMs.has(nameOf(stage))) {
          writeFileSync(path, text);
          await this.#measure(stage, stages);
          // What a clean tree takes is known only now.
          if (caught.isTimeout) {
            writeFileSync(path, applyMutant(text, mutant));
            if (stage.name.startsWith("sim")) await this.#look(stages.find(isBuild) as Stage);
            caught = await this.#look(stage);
            if (caught === undefined) continue;
          }
        }
        return caught;
      }
      return undefined;
    } finally {
      writeFileSync(path, text);
    }
  }

  /** A timeout counts only when it happens twice, the last time with a limit that a clean tree has set. */
  async #look(stage: Stage): Promise<Catch | undefined> {
    const usualMs = this.#usualMs.get(nameOf(stage));
    const limitMs = usualMs === undefined ? unknownMs : Math.max(stageMsMin, slowerMax * usualMs);
    const begun = performance.now();
    const first = await this.#run(stage, limitMs);
    const last = first.isTimeout && usualMs !== undefined ? await this.#run(stage, limitMs) : first;
    if (!last.isPassed) return { stage: stage.name, proof: last.proof, isTimeout: last.isTimeout };
    this.#usualMs.set(nameOf(stage), performance.now() - begun);
    return undefined;
  }

  /** A stage that fails without a mutant proves nothing: the first catch of each stage is checked against the tree as it is. */
  async #measure(stage: Stage, stages: readonly Stage[]): Promise<void> {
    if (stage.name.startsWith("sim")) await this.#look(stages.find(isBuild) as Stage);
    // Nothing may end a clean stage before its time.
    this.#usualMs.set(nameOf(stage), 4 * unknownMs);
    const broken = await this.#look(stage);
    if (broken)
      throw new Error(`Without any mutant, ${stage.name} fails already (${broken.proof}): nothing can be measured.`);
  }

  #run({ command, args }: Stage, limitMs: number): Promise<{ isPassed: boolean; isTimeout: boolean; proof: string }> {
    const env = {
      ...process.env,
      PYTHONPATH: ["python", "python/tests"].map((path) => join(this.#folder, path)).join(delimiter),
      PYTHONDONTWRITEBYTECODE: "1",
      NO_COLOR: "1",
    };
    return new Promise((resolve) => {
      const child = spawn(command, [...args], {
        cwd: this.#folder,
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
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
