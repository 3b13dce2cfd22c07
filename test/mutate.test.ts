/**
 * Properties of the mutants: each is one change that still parses, types and messages are left alone, and the same text gives the same list, in both
 * languages; a mutant meets tests that come by it and pass without it. Method: small programs, every file of the rooms that `npm run mutate` tries, small stages.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { parseSync } from "vite";
import { expect, test } from "vitest";
import { Loop } from "../mutate/loop.js";
import { applyMutant, keyOf, type Mutant, mutantsOf, numbered } from "../mutate/mutants.js";
import { reaching } from "../mutate/reach.js";
import { withSwitches } from "../mutate/switches.js";
import { stagesOf, TrialTree, testsOf } from "../mutate/trial.js";
import { listFiles, root } from "./source-tree.js";

const whats = (mutants: readonly Mutant[]): string[] => mutants.map(({ line, what }) => `${line} ${what}`);

test("guards, boundaries, negations, calls, choices and numbers are changed; types, errors and metrics are not", () => {
  const text = [
    "type A = 1 | 2;",
    "export async function f(a: number, b?: { x: 3 }): Promise<boolean> {",
    "  if (a < 5 && !b) return true;",
    "  await g(a);",
    "  metrics.count('name', 1);",
    "  if (a > 9) throw new Error(String(a + 1));",
    "  return a === 1 ? h() : a;",
    "}",
  ].join("\n");
  expect(whats(mutantsOf("a.ts", text))).toEqual([
    "3 an if never holds",
    "3 an if always holds",
    "3 < became <=",
    "3 5 became 6",
    "3 && became ||",
    "3 a negation is gone",
    "3 true became false",
    "4 a call is gone",
    "6 an if never holds",
    "6 an if always holds",
    "6 > became >=",
    "6 9 became 10",
    "7 a choice is always the first",
    "7 a choice is always the second",
    "7 === became !==",
    "7 1 became 2",
  ]);
});

test("each mutant has a key of its own, also beside another of its kind in a line", () => {
  const keys = numbered(mutantsOf("a.ts", "export const f = (a, b) => a && b && !a;")).map(keyOf);
  expect(keys.filter((key) => key.includes("&&"))).toHaveLength(3);
  expect(keys.map((key) => key.split(": ")[1])).toEqual(["&& became ||", "&& became || #2", "a negation is gone"]);
});

test("mutants of the log's room parse and differ", () => {
  for (const file of listFiles("src/log", [".ts"])) {
    const text = readFileSync(join(root, file), "utf8");
    for (const [i, mutant] of mutantsOf(file, text).entries()) {
      if (i % 10 > 0) continue;
      const changed = applyMutant(text, mutant);
      expect(changed).not.toBe(text);
      const { errors } = parseSync(file, changed);
      if (errors.length > 0) throw new Error(`${keyOf(mutant)}: ${errors[0]?.message}`);
    }
  }
});

test("Python's mutants of the log's room compile", () => {
  const files = listFiles("python/batchweave/log", [".py"]);
  const { stdout, stderr } = spawnSync("python3", ["mutate/python_mutants.py", ...files], {
    cwd: root,
    encoding: "utf8",
  });
  expect(stderr).toBe("");
  const mutants = JSON.parse(stdout) as Mutant[];
  expect(mutants.length).toBeGreaterThan(200);
  const texts = mutants
    .filter((_, i) => i % 20 === 0)
    .map((mutant) => applyMutant(readFileSync(join(root, mutant.file), "utf8"), mutant));
  const check = "import ast, json, sys\nfor text in json.load(sys.stdin): ast.parse(text)";
  const run = spawnSync("python3", ["-c", check], { input: JSON.stringify(texts), encoding: "utf8" });
  expect(run.stderr).toBe("");
});

const tracked = spawnSync("git", ["ls-files", "-co", "--exclude-standard"], { cwd: root, encoding: "utf8" });
const files = tracked.stdout.split("\n").filter((file) => file !== "" && existsSync(join(root, file)));

test("a mutant of Python meets the tests that execute its line, the quickest first", async () => {
  const own = "python/tests/test_seen.py";
  const case3 = "test_seen.Seen.test_requests_that_are_tried_again_are_logged_and_the_third_is_a_warning";
  expect(testsOf("python", files)).toContain(own);
  using tree = new TrialTree(root, files);
  const python = await tree.reaches("python3", [own]);
  const path = "python/batchweave/store/object_store.py";
  const source = "return self._attempt(lambda: self.inner.get(key))";
  const lines = readFileSync(join(root, path), "utf8").split("\n");
  const line = lines.findIndex((text) => text.includes(source)) + 1;
  const at: Mutant = { file: path, line, what: "", start: 0, end: 0, replacement: "", source };
  expect(reaching(python, at).map((reach) => reach.path)).toContain(case3);
  const quick = { path: "test/a.test.ts", ms: 1, lines: { "src/a.ts": [3] } };
  const slow = { ...quick, path: "test/b.test.ts", ms: 9_000 };
  const none = { ...quick, path: "test/c.test.ts", lines: { "src/a.ts": [4] } };
  const mutant: Mutant = { file: "src/a.ts", line: 3, what: "", start: 0, end: 0, replacement: "", source: "" };
  const stages = stagesOf(mutant, [slow, none, quick]).map(({ name, args }) => [name, args.at(-1)]);
  expect(stages).toEqual([
    ["quick", quick.path],
    ["slow", slow.path],
  ]);
});

test("behind switches, a text is itself until one of its mutants holds", () => {
  const text = "const f = (a) => { let n = 0; if (a < 5 && !(a === 3)) n = a - 1; add(n); return n > 2 ? 7 : n; };";
  const mutants = mutantsOf("a.ts", text);
  expect(mutants.length).toBeGreaterThan(12);
  const run = (code: string, id: number, a: number): unknown => {
    const added: number[] = [];
    const f = new Function("$isMutant", "add", `${code} return f;`)(
      (n: number) => n === id,
      (n: number) => added.push(n),
    );
    return [f(a), added];
  };
  const switched = withSwitches(text, mutants, 1);
  for (let a = 0; a < 8; a++) {
    expect(run(switched, 0, a)).toEqual(run(text, 0, a));
    for (const [i, mutant] of mutants.entries())
      expect(run(switched, i + 1, a), mutant.what).toEqual(run(applyMutant(text, mutant), 0, a));
  }
});

test("many mutants share one process: each is caught by a test that comes by it and fails, or not at all", async () => {
  const own = "test/log/sequence.test.ts";
  expect(testsOf("typescript", files)).toContain(own);
  const path = "src/log/stage.ts";
  const mutants = mutantsOf(path, readFileSync(join(root, path), "utf8"));
  using loop = new Loop(root, files, mutants);
  const measured = (await loop.measure([own]))(own);
  expect(measured.cases.map(({ path: test }) => test)).toContain(own);
  const find = (what: string, source: string): Mutant =>
    mutants.find((mutant) => mutant.what === what && mutant.source.includes(source)) as Mutant;
  const gap = find("an if never holds", "if (check === state.resume.batch.check) return;");
  const unseen = find("an if never holds", "if (draft.closed) return true;");
  const found: unknown[] = [];
  await loop.try([gap, unseen], { [own]: measured }, { workers: 1, msMax: 1_000_000 }, (mutant, caught) =>
    found.push([mutant.source, caught?.proof.split(" ")[0]]),
  );
  expect(found).toEqual([
    [unseen.source, undefined],
    [gap.source, own],
  ]);
});

test("a mutant is caught by a stage that fails with it and passes without it; a stage that fails anyway proves nothing", async () => {
  using tree = new TrialTree(root, ["mutate/equivalent.json"]);
  const text = readFileSync(join(root, "mutate/equivalent.json"), "utf8");
  const mutant = { file: "mutate/equivalent.json", line: 1, what: "", start: 0, end: 0, replacement: " ", source: "" };
  const stage = (name: string, code: string) => ({ name, command: process.execPath, args: ["-e", code], usualMs: 0 });
  const fails = "process.exit(require('fs').readFileSync('mutate/equivalent.json', 'utf8').startsWith(' ') ? 1 : 0)";
  expect(await tree.try(mutant, [stage("passes", ""), stage("looks", fails)])).toMatchObject({
    stage: "looks",
    isTimeout: false,
  });
  expect(await tree.try(mutant, [stage("passes", "")])).toBe(undefined);
  await expect(tree.try(mutant, [stage("broken", "process.exit(1)")])).rejects.toThrow("broken fails already");
  expect(readFileSync(join(root, "mutate/equivalent.json"), "utf8")).toBe(text);
});

test("Python's mutants: caught by what fails or hangs with them twice and passes without them, not by chance, and not by what fails anyway", async () => {
  const folder = mkdtempSync(join(tmpdir(), "batchweave-trials-"));
  const files = {
    "mutate/python_trials.py": readFileSync(join(root, "mutate/python_trials.py"), "utf8"),
    "python/batchweave/__init__.py": "def one() -> int:\n    return 1\n",
    "python/tests/test_one.py": [
      "import pathlib, threading, unittest",
      "from batchweave import one",
      "class One(unittest.TestCase):",
      "    def test_looks(self): self.assertEqual(one(), 1)",
      "    def test_passes(self): one()",
      "    def test_hangs(self): one() == 1 or threading.Event().wait()",
      "    def test_fails(self): self.fail()",
      "    def test_fails_once(self):",
      "        seen = pathlib.Path('seen')",
      "        if not seen.exists(): self.fail(str(seen.touch()))",
    ].join("\n"),
  };
  for (const [file, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), text);
  }
  using tree = new TrialTree(folder, Object.keys(files));
  using trials = tree.pythonTrials("python3", { MUTATE_HANGS_S: "0.3" });
  const file = "python/batchweave/__init__.py";
  const start = files[file].indexOf("1");
  const mutant: Mutant = { file, line: 2, what: "", start, end: start + 1, replacement: "2", source: "" };
  const meet = (...names: string[]) =>
    trials.try(
      mutant,
      names.map((name) => ({ path: `test_one.One.test_${name}`, ms: 1, lines: {} })),
    );
  expect(await meet()).toBe(undefined);
  expect(await meet("passes")).toBe(undefined);
  expect(await meet("passes", "looks")).toEqual({
    stage: "test",
    proof: "test_one.One.test_looks: AssertionError: 2 != 1",
    isTimeout: false,
  });
  expect(await meet("hangs")).toMatchObject({ isTimeout: true });
  expect(await meet("fails_once", "passes")).toBe(undefined);
  await expect(meet("fails")).rejects.toThrow("Without any mutant, test_one.One.test_fails fails already");
  rmSync(folder, { recursive: true });
});

test("what is known to be equivalent has a reason, and its line still exists", () => {
  const known = JSON.parse(readFileSync(join(root, "mutate/equivalent.json"), "utf8")) as {
    key: string;
    reason: string;
  }[];
  for (const { key, reason } of known) {
    expect(reason.length).toBeGreaterThan(20);
    const [, file, source] = /^(.*?): .*?: (.*)$/.exec(key) ?? [];
    expect(readFileSync(join(root, file as string), "utf8")).toContain(source);
  }
});
