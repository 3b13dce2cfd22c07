/**
 * Property: Python producers and ranks, killed and stopped at random on a store where every call may go wrong, keep what the simulation's oracle
 * asks of TypeScript: per producer exactly what was acknowledged, in order, once, plus some of what is unknown; every manifest a valid
 * successor; every share the projection of a prefix. Method: one short seed of `npm run chaos -- --python --oracle`; then a copy of the package
 * with a bug, which must be noticed.
 */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { pythonBugs, runPythonBug } from "../../sim/served/planted-python.js";
import { runServed } from "../../sim/served/served-run.js";
import { root } from "../source-tree.js";

const hasPython = spawnSync("python3", ["--version"]).status === 0;
if (!hasPython)
  console.warn("SKIPPED test/sim/served.test.ts: there is no python3, so no Python process meets the oracle");

test.skipIf(!hasPython)("a short seed is clean, and Python took part in it", { timeout: 900_000 }, async () => {
  const { failure, counters } = await runServed({ root, seed: 2, roughMs: 3_000 });
  expect(failure).toBeUndefined();
  expect(counters["acknowledged"]).toBeGreaterThan(0);
  expect(counters["tsAcknowledged"]).toBeGreaterThan(0);
  expect(counters["shares"]).toBeGreaterThan(0);
  expect(counters["verified"]).toBeGreaterThan(0);
});

test.skipIf(!hasPython)(
  "a package that acknowledges what it only uploaded is caught",
  { timeout: 900_000 },
  async () => {
    const bug = pythonBugs.find(({ name }) => name === "a batch is acknowledged once it is uploaded");
    if (bug === undefined) throw new Error("the bug is gone");
    const result = await runPythonBug(bug, { root, seed: 1, seedsMax: 2, roughMs: 3_000 });
    expect(result?.failure?.property).toBe("durability");
  },
);

test("every planted bug's text occurs exactly once in the package", () => {
  for (const { file, from } of pythonBugs)
    expect(readFileSync(join(root, "python/batchweave", file), "utf8").split(from), file).toHaveLength(2);
});
