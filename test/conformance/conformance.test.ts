/**
 * Property: the TypeScript code gives every conformance case the result that is written beside it; the Python code does too
 * (python/tests/test_conformance.py), so neither can drift. Method: run each case of `fixtures/`, which `generate.ts` made.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { root } from "../source-tree.js";
import { type ConformanceCase, runCase } from "./case-runner.js";

const folder = join(root, "test/conformance/fixtures");
const families = readdirSync(folder).filter((name) => name.endsWith(".jsonl"));

test("there are cases of every family", () => {
  expect(families.sort()).toEqual([
    "blocks.jsonl",
    "codecs.jsonl",
    "fields.jsonl",
    "heads.jsonl",
    "hostile.jsonl",
    "joins.jsonl",
    "namespaces.jsonl",
    "projections.jsonl",
    "stages.jsonl",
  ]);
});

describe.each(families)("%s", (family) => {
  const cases = readFileSync(join(folder, family), "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as ConformanceCase);
  test.each(cases)("$name", async ({ expect: expected, ...given }) => {
    expect(await runCase(given as ConformanceCase)).toEqual(expected);
  });
});
