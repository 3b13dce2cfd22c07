/** Property: drawn latencies have the percentiles that were measured. Method: 400,000 draws each. */
import { expect, test } from "vitest";
import { latencyModels, percentiles, Rng } from "../../sim/index.js";
import { normalScore } from "../../sim/world/latency.js";

function quantiles(draw: () => number, count: number): (p: number) => number {
  const sorted = Float64Array.from({ length: count }, draw).sort();
  return (p) => sorted[Math.floor(p * count)] as number;
}

test("normal scores", () => {
  expect(normalScore(0.5)).toBeCloseTo(0, 9);
  expect(normalScore(0.99)).toBeCloseTo(2.3263478740408408, 6);
  expect(normalScore(0.001)).toBeCloseTo(-3.090232306167813, 6);
});

test.each([
  [63, 78, 118],
  [100, 195, 274],
])("percentiles %d / %d / %d come out again", (p50, p99, p999) => {
  const rng = new Rng(1, "latency");
  const distribution = percentiles(p50, p99, p999);
  const at = quantiles(() => distribution(rng.next()), 400_000);
  expect(at(0.5) / p50).toBeCloseTo(1, 2);
  expect(at(0.99) / p99).toBeCloseTo(1, 1);
  expect(at(0.999) / p999).toBeCloseTo(1, 1);
});

test("S3 Standard: one call in a thousand takes seconds, a rare one is never answered", () => {
  const rng = new Rng(2, "latency");
  const draws = Float64Array.from({ length: 1_000_000 }, () => latencyModels.s3.sampleMs("put", rng));
  const seconds = draws.filter((ms) => ms >= 1000 && ms <= 5000).length;
  const silent = draws.filter((ms) => ms === Number.POSITIVE_INFINITY).length;
  expect(seconds).toBeGreaterThan(800);
  expect(seconds).toBeLessThan(1200);
  expect(silent).toBeGreaterThan(0);
  expect(silent).toBeLessThan(40);
});
