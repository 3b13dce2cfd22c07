/**
 * Property: no decoder answers any input with anything but a value or a BatchWeaveError, within a second; and what it answers to the stored
 * cases stays what it is, in both languages (python/tests/test_fuzz.py runs the same file).
 * Method: seeded mutations of the conformance cases, two thousand seeds here; `npm run fuzz -- --minutes N` goes on for longer.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type ConformanceCase, runCase } from "../conformance/case-runner.js";
import { root } from "../source-tree.js";
import { fuzzOnce } from "./fuzzer.js";

test("two thousand seeds of every decoder find nothing", async () => {
  for (let seed = 100_000; seed < 102_000; seed++) expect(await fuzzOnce(seed)).toEqual([]);
});

test("stored cases are answered as they were", async () => {
  const lines = readFileSync(join(root, "test/fuzz/corpus.jsonl"), "utf8").trimEnd().split("\n");
  expect(lines.length).toBeGreaterThan(300);
  for (const line of lines) {
    const { expect: expected, ...given } = JSON.parse(line);
    expect([given.name, await runCase(given as ConformanceCase)]).toEqual([given.name, expected]);
  }
});
