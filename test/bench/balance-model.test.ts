/**
 * Property: the time model behind docs/results/balance.md is right where it can be worked out by hand. Method: pipelines small enough to
 * draw, and bounds that every schedule keeps.
 */
import fc from "fast-check";
import { expect, test, vi } from "vitest";
import { pipelineTime } from "../../bench/parts/pipeline-schedule.js";
import { skewedSamples, skews } from "../../bench/parts/skewed-samples.js";
import { run as runPlan } from "../../bench/plan.js";

test("equal microbatches take their own time and the fill and drain of the pipeline", () => {
  // Eight microbatches and eight stages: 15 of the stage's share instead of 8.
  expect(pipelineTime(new Array(8).fill(8), 8)).toBeCloseTo(15);
  expect(pipelineTime([3, 3], 1)).toBeCloseTo(6);
  expect(pipelineTime([6], 3)).toBeCloseTo(6);
});

test("one long microbatch is waited for at every stage", () => {
  expect(pipelineTime([8, 8, 8, 80], 8)).toBeGreaterThanOrEqual(80);
});

test("never shorter than the work of a stage or the longest microbatch, never longer than one after another", () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 1, max: 100 }), { minLength: 1, maxLength: 12 }),
      fc.integer({ min: 1, max: 9 }),
      (costs, stages) => {
        const sum = costs.reduce((a, b) => a + b, 0);
        const time = pipelineTime(costs, stages);
        expect(time).toBeGreaterThanOrEqual(Math.max(sum / stages, ...costs) - 1e-9);
        expect(time).toBeLessThanOrEqual(sum + 1e-9);
      },
    ),
  );
});

test("coyo's texts have the two numbers of the paper, its images the means of the data set's card", () => {
  const texts = skewedSamples(200_000, { skew: skews.coyo, images: false, tokensMax: 8192 }, "test");
  const total = texts.reduce((sum, { tokens }) => sum + tokens, 0);
  const long = texts.filter(({ tokens }) => tokens > 64);
  expect(1 - long.length / texts.length).toBeCloseTo(0.9823, 2);
  expect(long.reduce((sum, { tokens }) => sum + tokens, 0) / total).toBeCloseTo(0.093, 1.5);
  // 622 x 541 pixels on average would be 1,314 patches of 16 x 16 if all were alike; the skew makes the mean larger.
  const images = skewedSamples(200_000, { skew: skews.coyo, images: true, tokensMax: 1e6 }, "test");
  const patches = images.map(({ images: [first] = [] }) => first as number).sort((a, b) => a - b);
  const mean = patches.reduce((a, b) => a + b, 0) / patches.length;
  expect(mean).toBeGreaterThan(1314);
  expect(mean).toBeLessThan(2 * 1314);
  expect(patches[patches.length / 2]).toBeLessThan(mean / 2);
});

test("bench plan prints the agreed fields and no others", async () => {
  const lines: string[] = [];
  const log = vi.spyOn(console, "log").mockImplementation((line: string) => void lines.push(line));
  try {
    await runPlan(["--samples", "1000", "--runs", "1", "--json"]);
  } finally {
    log.mockRestore();
  }
  const rows = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  expect(rows.map((row) => row["method"])).toEqual([
    "greedy",
    "greedy, groups of 2",
    "karmarkar-karp",
    "karmarkar-karp, groups of 2",
  ]);
  for (const row of rows)
    expect(Object.keys(row)).toEqual(["bench", "method", "samples", "bins", "ms", "imbalanceBefore", "imbalanceAfter"]);
});
