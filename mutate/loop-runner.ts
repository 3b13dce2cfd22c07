/**
 * Runs inside the one process that tries many mutants (loop.ts): vitest collects the tests as ever, and each is kept as a function that can be
 * called again. One that is not known yet runs once, and what it comes by is written down; then each mutant meets the tests that come by it.
 */
import { appendFileSync, readFileSync } from "node:fs";
import { relative } from "node:path";
import type { RunnerTestCase } from "vitest";
import { VitestTestRunner } from "vitest/runners";
import { getFn, getHooks } from "vitest/suite";
import type { Case, Report, Work } from "./loop.js";

type File = Parameters<typeof getHooks>[0];

const work: Work = JSON.parse(readFileSync(process.env["BATCHWEAVE_LOOP"] as string, "utf8"));
const say = (report: Report): void => appendFileSync(work.reports, `${JSON.stringify(report)}\n`);

/** A test that can be called again and again. */
interface Call {
  readonly about: Case;
  readonly run: () => Promise<void>;
}

const calls: Call[] = [];
const broken = new Set<Call>();
let active = 0;
let seen: Set<number> | undefined;
(globalThis as { $isMutant?: (id: number) => boolean }).$isMutant = (id) => {
  seen?.add(id);
  return id === active;
};

const limitMsMin = 4_000;
const slowerMax = 4;

export default class LoopRunner extends VitestTestRunner {
  #filesLeft = work.tests.length;

  override async importFile(path: string, source: "collect" | "setup"): Promise<unknown> {
    seen = new Set();
    try {
      return await super.importFile(path, source);
    } finally {
      const test = relative(process.cwd(), path);
      if (!(test in work.known)) say({ kind: "import", path: test, seen: [...seen] });
      seen = undefined;
    }
  }

  /** Folders and servers of a file are needed until the end. */
  override async onBeforeRunSuite(suite: File): Promise<void> {
    await super.onBeforeRunSuite(suite);
    getHooks(suite).afterAll = [];
  }

  async runTask(test: RunnerTestCase): Promise<void> {
    const run = getFn(test) as () => Promise<void>;
    const path = relative(process.cwd(), test.file.filepath);
    const hooks = [test.file as File, ...(test.suite ? [test.suite] : [])].flatMap((suite) =>
      getHooks(suite).beforeEach.map((hook) => () => hook(test.context as never, suite as never)),
    );
    const call = async (): Promise<void> => {
      for (const hook of hooks) await hook();
      await run();
    };
    const known = work.known[path]?.find(({ name }) => name === test.fullTestName);
    if (known) return void calls.push({ about: known, run: call });
    seen = new Set();
    const begun = performance.now();
    await run();
    const about = {
      path,
      name: test.fullTestName,
      ms: Math.round(performance.now() - begun),
      seen: [...seen],
    };
    seen = undefined;
    say({ kind: "case", about });
    calls.push({ about, run: call });
  }

  override async onAfterRunFiles(): Promise<void> {
    super.onAfterRunFiles();
    this.#filesLeft--;
    if (this.#filesLeft > 0) return;
    process.removeAllListeners("unhandledRejection");
    process.removeAllListeners("uncaughtException");
    // What a test leaves behind after a mutant ended it may still fail; only the test itself is asked.
    process.on("unhandledRejection", () => {});
    process.on("uncaughtException", () => {});
    say({ kind: "ready" });
    calls.sort((a, b) => a.about.ms - b.about.ms);
    const sets = new Map(calls.map((call) => [call, new Set(call.about.seen)]));
    for (const id of work.ids) {
      say({ kind: "try", id });
      const meets = calls.filter((call) => sets.get(call)?.has(id));
      say({ kind: "done", id, ...(await judge(id, [...new Set([...catchersNear(id), ...meets])])) });
    }
    say({ kind: "end" });
  }
}

const nearMax = 40;
const catchersMax = 6;
const catches: { readonly id: number; readonly call: Call }[] = [];

/** What caught a neighbour is likely to catch this one as well. */
function catchersNear(id: number): Call[] {
  const near = catches.filter((one) => Math.abs(one.id - id) <= nearMax && one.call.about.seen.includes(id));
  near.sort((a, b) => Math.abs(a.id - id) - Math.abs(b.id - id));
  return [...new Set(near.map(({ call }) => call))].slice(0, catchersMax);
}

/** Which test fails with a mutant, twice of at most three times, and passes without. */
async function judge(
  id: number,
  meets: readonly Call[],
): Promise<{ readonly proof?: string; readonly isTimeout?: boolean }> {
  let spent = 0;
  for (const call of meets) {
    spent += call.about.ms;
    if (spent > work.msMax && spent > call.about.ms) return {};
    if (broken.has(call)) continue;
    const first = await runWith(id, call, 1);
    if (first === undefined) continue;
    if ((await runWith(0, call, 2)) !== undefined) {
      broken.add(call);
      say({ kind: "broken", name: `${call.about.path} ${call.about.name}` });
      continue;
    }
    const again = (await runWith(id, call, 2)) ?? (await runWith(id, call, 2));
    if (again !== undefined) catches.push({ id, call });
    if (again !== undefined)
      return { proof: `${call.about.path} > ${call.about.name}`, isTimeout: again === "timeout" };
  }
  return {};
}

async function runWith(id: number, { about, run }: Call, patience: number): Promise<"failed" | "timeout" | undefined> {
  const limitMs = patience * Math.max(limitMsMin, slowerMax * about.ms);
  say({ kind: "run", id, limitMs, name: about.name });
  active = id;
  const { setTimeout, clearTimeout } = globalThis;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<"timeout">((resolve) => {
    timer = setTimeout(() => resolve("timeout"), limitMs);
  });
  try {
    return await Promise.race([late, run().then(() => undefined)]);
  } catch {
    return "failed";
  } finally {
    clearTimeout(timer);
    active = 0;
  }
}
