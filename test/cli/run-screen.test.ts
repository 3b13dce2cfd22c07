/**
 * Property: the screen of a run names the source that batches wait for most, first in its table, and what would help it, with a number. Method: figures made
 * by hand.
 */
import { expect, test } from "vitest";
import { runScreen } from "../../src/cli/run-screen.js";
import type { SourceFigures } from "../../src/plan/index.js";

const figures = (source: string, waitMs: number, readMs: number, transformMs: number): SourceFigures =>
  ({ source, samples: 100, waitMs, readMs, transformMs, bufferedBytes: 2_000, faults: 1 }) as unknown as SourceFigures;

test("the slowest source comes first, with threads in proportion to the waiting", () => {
  const lines = runScreen([figures("web", 10, 50, 20), figures("photos", 5_000, 100, 9_000)], 10_000, 4);
  expect(lines[0]).toBe(
    ">> batches wait for source photos 50 % of the time; its transforms are slow: add 4 loader threads",
  );
  expect(lines[2]).toMatch(/^photos +10\.0 +50 % /);
  expect(lines[3]).toMatch(/^web /);
});

test("a source that is slow to read is no matter of threads, and one that keeps up is left alone", () => {
  expect(runScreen([figures("disk", 3_000, 9_000, 20)], 10_000, 4)[0]).toMatch(
    /30 % of the time; its shards are slow to read/,
  );
  expect(runScreen([figures("web", 10, 50, 20)], 10_000, 4)[0]).toBe(">> no source is waited for");
  expect(
    runScreen(
      Array.from({ length: 20 }, (_, i) => figures(`s${i}`, i, 1, 1)),
      10_000,
      4,
    ).at(-1),
  ).toBe("and 12 more sources");
});
