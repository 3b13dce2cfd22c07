/**
 * Properties of the mutants: each is one change that still parses, types and messages are left alone, and the same text gives the same list, in both
 * languages; a mutant meets tests that exist and pass without it. Method: small programs, every file of the rooms that `npm run mutate` tries, small stages.
 */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseSync } from "vite";
import { expect, test } from "vitest";
import { applyMutant, keyOf, type Mutant, mutantsOf } from "../mutate/mutants.js";
import { stagesOf, TrialTree } from "../mutate/trial.js";
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
    "5 1 became 2",
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

test("every stage runs tests that exist, and a mutant of Python meets most test files", () => {
  const files = listFiles("python/tests", [".py"]);
  for (const room of ["format", "log", "cadence", "producer", "consumer", "lifecycle", "store"]) {
    const paths = stagesOf(`src/${room}/x.ts`, [], "").flatMap(({ args }) => args.filter((a) => a.startsWith("test/")));
    expect(paths.length).toBeGreaterThan(1);
    for (const path of paths) expect(existsSync(join(root, path)), path).toBe(true);
    const modules = stagesOf(`python/batchweave/${room}/x.py`, files, "python3").flatMap(({ args }) => args.slice(3));
    for (const module of modules) expect(files).toContain(`python/tests/${module}.py`);
    expect(new Set(modules).size).toBe(modules.length);
    expect(modules.length).toBeGreaterThan(files.filter((file) => file.includes("/test_")).length / 2);
  }
});

test("a mutant is caught by a stage that fails with it and passes without it; a stage that fails anyway proves nothing", async () => {
  using tree = new TrialTree(root, ["mutate/equivalent.json"]);
  const text = readFileSync(join(root, "mutate/equivalent.json"), "utf8");
  const mutant = { file: "mutate/equivalent.json", line: 1, what: "", start: 0, end: 0, replacement: " ", source: "" };
  const stage = (name: string, code: string) => ({ name, command: process.execPath, args: ["-e", code] });
  const fails = "process.exit(require('fs').readFileSync('mutate/equivalent.json', 'utf8').startsWith(' ') ? 1 : 0)";
  expect(await tree.try(mutant, [stage("passes", ""), stage("looks", fails)])).toMatchObject({
    stage: "looks",
    isTimeout: false,
  });
  expect(await tree.try(mutant, [stage("passes", "")])).toBe(undefined);
  await expect(tree.try(mutant, [stage("broken", "process.exit(1)")])).rejects.toThrow("broken fails already");
  expect(readFileSync(join(root, "mutate/equivalent.json"), "utf8")).toBe(text);
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
