/**
 * Trying many mutants in one process: all of them are in the tree at once, behind switches (switches.ts), so that nothing is started or loaded again for
 * the next one. The process is watched from here: one that hangs or dies is started again behind the mutant that did it.
 */
import { spawn } from "node:child_process";
import { closeSync, existsSync, openSync, readFileSync, readSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Mutant } from "./mutants.js";
import type { Reach } from "./reach.js";
import { withSwitches } from "./switches.js";
import { type Catch, TrialTree } from "./trial.js";

/** A test, what it takes, and the mutants whose place it comes by. */
export interface Case {
  readonly path: string;
  readonly name: string;
  readonly ms: number;
  readonly seen: readonly number[];
}

/** What the process is given. */
export interface Work {
  readonly reports: string;
  readonly tests: readonly string[];
  /** Cases that were measured before, by file. */
  readonly known: Readonly<Record<string, readonly Case[]>>;
  readonly ids: readonly number[];
  /** How much of tests a mutant meets, as they take without it. */
  readonly msMax: number;
}

/** What it says. */
export type Report =
  | { readonly kind: "import"; readonly path: string; readonly seen: readonly number[] }
  | { readonly kind: "case"; readonly about: Case }
  | { readonly kind: "ready" | "end" }
  | { readonly kind: "try"; readonly id: number }
  | { readonly kind: "run"; readonly id: number; readonly limitMs: number; readonly name: string }
  | { readonly kind: "done"; readonly id: number; readonly proof?: string; readonly isTimeout?: boolean }
  | { readonly kind: "broken"; readonly name: string };

/** What is known of a test file: its cases, and the mutants whose place is come by while it is loaded. */
export interface Measured {
  readonly cases: readonly Case[];
  readonly imports: readonly number[];
}

const pollMs = 250;
/** Beside the limit of a test itself: only what never gives up the processor gets so far. */
const graceMs = 5_000;
const readyMsMax = 1_800_000;

/** A copy of the tree with all mutants in it, numbered from 1. Dispose it. */
export class Loop implements Disposable {
  readonly #tree: TrialTree;
  readonly #mutants: readonly Mutant[];

  constructor(root: string, files: readonly string[], mutants: readonly Mutant[]) {
    this.#tree = new TrialTree(root, files);
    this.#mutants = mutants;
    for (const file of new Set(mutants.map((mutant) => mutant.file))) {
      const path = join(this.#tree.folder, file);
      const own = mutants.filter((mutant) => mutant.file === file);
      const firstId = 1 + mutants.indexOf(own[0] as Mutant);
      writeFileSync(path, withSwitches(readFileSync(path, "utf8"), own, firstId));
    }
  }

  /** Runs tests once, without a mutant, and says what each comes by. */
  async measure(tests: readonly string[]): Promise<(test: string) => Measured> {
    const found = new Map(tests.map((test) => [test, { cases: [] as Case[], imports: [] as number[] }]));
    const work = { reports: this.#path("measure"), tests, known: {}, ids: [], msMax: 0 };
    await runLoop(this.#tree.folder, work, (report) => {
      if (report.kind === "case") found.get(report.about.path)?.cases.push(report.about);
      if (report.kind === "import") found.get(report.path)?.imports.push(...report.seen);
    });
    return (test) => found.get(test) as Measured;
  }

  /** Mutants that hold while modules are loaded need a process of their own; these are the tests that may see one. */
  static reaches(measured: Readonly<Record<string, Measured>>, all: readonly Mutant[], mutant: Mutant): Reach[] {
    const ids = new Set(all.flatMap(({ file }, i) => (file === mutant.file ? [i + 1] : [])));
    return Object.entries(measured).flatMap(([path, { cases }]) => {
      const own = cases.filter(({ seen }) => seen.some((id) => ids.has(id)));
      const ms = cases.reduce((sum, one) => sum + one.ms, 0);
      return own.length > 0 ? [{ path, ms, lines: { [mutant.file]: [mutant.line] } }] : [];
    });
  }

  /** Tries mutants, in `workers` processes; each verdict is told as it comes. */
  async try(
    sample: readonly Mutant[],
    measured: Readonly<Record<string, Measured>>,
    { workers, msMax }: { readonly workers: number; readonly msMax: number },
    tell: (mutant: Mutant, caught: Catch | undefined) => void,
  ): Promise<void> {
    const known = Object.fromEntries(Object.entries(measured).map(([path, { cases }]) => [path, cases]));
    const tests = Object.keys(known);
    const seen = new Set(Object.values(measured).flatMap(({ cases }) => cases.flatMap((one) => one.seen)));
    const all = sample.map((mutant) => 1 + this.#mutants.indexOf(mutant));
    for (const id of all) if (!seen.has(id)) tell(this.#mutants[id - 1] as Mutant, undefined);
    const met = all.filter((id) => seen.has(id));
    const run = (i: number): Promise<void> => {
      const ids = met.filter((_, j) => j % workers === i);
      const work = { reports: this.#path(String(i)), tests, known, ids, msMax };
      return ids.length === 0
        ? Promise.resolve()
        : runLoop(this.#tree.folder, work, (report) => {
            if (report.kind === "broken") process.stderr.write(`cannot be repeated, and is left out: ${report.name}\n`);
            if (report.kind !== "done") return;
            const { id, proof, isTimeout = false } = report;
            tell(
              this.#mutants[id - 1] as Mutant,
              proof === undefined ? undefined : { stage: "tests", proof, isTimeout },
            );
          });
    };
    await Promise.all(Array.from({ length: workers }, (_, i) => run(i)));
  }

  #path(name: string): string {
    return join(this.#tree.folder, `loop-${name}.jsonl`);
  }

  [Symbol.dispose](): void {
    this.#tree[Symbol.dispose]();
  }
}

/** Runs the loop in a tree that has the switches; every report is handed on as it comes. A mutant that hangs or ends the process twice is caught by the clock. */
async function runLoop(folder: string, work: Work, onReport: (report: Report) => void): Promise<void> {
  const known: Record<string, Case[]> = Object.fromEntries(
    Object.entries(work.known).map(([path, cases]) => [path, [...cases]]),
  );
  const ended = new Map<number, string>();
  let ids = work.ids;
  for (;;) {
    const run = { id: 0, name: "" };
    let isEnded = false;
    const done = new Set<number>();
    await runOnce(folder, { ...work, known, ids }, (report) => {
      if (report.kind === "run") Object.assign(run, report);
      if (report.kind === "done") done.add(report.id);
      if (report.kind === "end") isEnded = true;
      if (report.kind === "case") known[report.about.path] = [...(known[report.about.path] ?? []), report.about];
      onReport(report);
    });
    ids = ids.filter((id) => !done.has(id));
    if (isEnded) return;
    const at = ids[0];
    if (at === undefined || run.id === 0)
      throw new Error(`The loop ended early, at ${run.name || "its start"}: nothing can be measured.`);
    if (!ended.has(at)) {
      ended.set(at, run.name);
      continue;
    }
    onReport({ kind: "done", id: at, proof: run.name, isTimeout: true });
    ids = ids.slice(1);
  }
}

async function runOnce(folder: string, work: Work, onReport: (report: Report) => void): Promise<void> {
  rmSync(work.reports, { force: true });
  const workPath = `${work.reports}.work`;
  writeFileSync(workPath, JSON.stringify(work));
  const args = ["node_modules/.bin/vitest", "run", "--config=mutate/loop-config.mjs", ...work.tests];
  const child = spawn(process.execPath, args, {
    cwd: folder,
    stdio: "ignore",
    detached: true,
    env: { ...process.env, NO_COLOR: "1", BATCHWEAVE_LOOP: workPath },
  });
  const kill = (): void => {
    if (!isGone && child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
  };
  let isGone = false;
  process.once("exit", kill);
  child.once("exit", () => {
    isGone = true;
    process.off("exit", kill);
  });
  let [offset, rest, deadline, isEnded] = [0, "", Date.now() + readyMsMax, false];
  const buffer = Buffer.alloc(1 << 20);
  const listen = (): void => {
    if (!existsSync(work.reports)) return;
    const file = openSync(work.reports, "r");
    for (let n = 1; n > 0; offset += n) {
      n = readSync(file, buffer, 0, buffer.length, offset);
      rest += buffer.toString("utf8", 0, n);
    }
    closeSync(file);
    const lines = rest.split("\n");
    rest = lines.pop() as string;
    for (const line of lines) {
      const report = JSON.parse(line) as Report;
      const limitMs = report.kind === "run" ? report.limitMs : readyMsMax;
      deadline = Date.now() + limitMs + graceMs;
      if (report.kind === "end") isEnded = true;
      onReport(report);
    }
  };
  while (!isGone && !isEnded && Date.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, pollMs));
    listen();
  }
  listen();
  kill();
}
