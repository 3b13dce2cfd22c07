/**
 * Property: balancing loses no sample, doubles none, keeps the token and memory capacity of every bin, keeps what its level says must stay,
 * and gives the same answer every time. Method: fast-check over sizes, capacities, methods and levels, from a start that fits.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  arrivalAssignment,
  type BalanceLevel,
  type BalanceProblem,
  balanceBins,
  imbalance,
  tightAssignment,
} from "../../src/plan/graph/balance.js";
import { loadsOf } from "../../src/plan/graph/bin-loads.js";
import { karmarkarKarp } from "../../src/plan/graph/karmarkar-karp.js";
import { descending } from "../../src/plan/mix/order.js";

/** Samples dealt into bins first, so that a solution is known to exist; the capacities are what the fullest bin holds. */
const problems: fc.Arbitrary<BalanceProblem> = fc
  .record({
    buckets: fc.integer({ min: 1, max: 6 }),
    binsPerBucket: fc.integer({ min: 1, max: 4 }),
    items: fc.array(fc.tuple(fc.integer({ min: 1, max: 4096 }), fc.integer({ min: 0, max: 1000 }), fc.nat(1000)), {
      maxLength: 120,
    }),
    slack: fc.constantFrom(0, 0.05, 0.5),
    limits: fc.constantFrom("tokens", "both", "none"),
  })
  .map(({ buckets, binsPerBucket, items, slack, limits }) => {
    const bins = buckets * binsPerBucket;
    const columns = {
      tokens: Float64Array.from(items, ([t]) => t),
      memory: Float64Array.from(items, ([t, m]) => t * 34.5 + m),
      compute: Float64Array.from(items, ([t]) => t * t * 1.7 + 31 * t),
    };
    const start = Int32Array.from(items, ([, , b]) => b % bins);
    const loads = loadsOf(start, bins, columns);
    const most = (values: Float64Array): number => Math.ceil(Math.max(1, ...values) * (1 + slack));
    const capacity =
      limits === "none"
        ? {}
        : { tokens: most(loads.tokens), ...(limits === "both" ? { memory: most(loads.memory) } : {}) };
    return { columns, buckets, binsPerBucket, capacity, start };
  });

const levels: readonly BalanceLevel[] = ["all", "across-ranks", "across-microbatches", "within-microbatch"];

function assertKept(problem: BalanceProblem, result: Int32Array): void {
  const bins = problem.buckets * problem.binsPerBucket;
  expect(result.length).toBe(problem.start.length);
  expect([...result].every((bin) => bin >= 0 && bin < bins)).toBe(true);
  const loads = loadsOf(result, bins, problem.columns, problem.capacity);
  for (let bin = 0; bin < bins; bin++) expect(loads.isWithin(bin)).toBe(true);
}

describe("balanceBins", () => {
  for (const method of ["greedy", "karmarkar-karp"] as const) {
    test(`${method}: every sample in one bin, capacities kept, whatever the level and group size`, () => {
      fc.assert(
        fc.property(
          problems,
          fc.constantFrom(...levels),
          fc.integer({ min: 1, max: 4 }),
          (problem, level, groupSize) => {
            const result = balanceBins(problem, { method, level, groupSize });
            assertKept(problem, result);
            expect(balanceBins(problem, { method, level, groupSize })).toEqual(result);
          },
        ),
        { numRuns: 300 },
      );
    });

    test(`${method}: across microbatches a sample stays in its bucket, within one it stays in its microbatch`, () => {
      fc.assert(
        fc.property(problems, (problem) => {
          const { start, binsPerBucket: m } = problem;
          const stay = balanceBins(problem, { method, level: "across-microbatches" });
          expect(stay.map((bin) => Math.floor(bin / m))).toEqual(start.map((bin) => Math.floor(bin / m)));
          const within = balanceBins(problem, { method, level: "within-microbatch" });
          expect(within.map((bin) => bin % m)).toEqual(start.map((bin) => bin % m));
        }),
      );
    });

    test(`${method}: never worse than largest-first promises, without limits`, () => {
      fc.assert(
        fc.property(problems, (problem) => {
          const free = {
            ...problem,
            capacity: {},
            binsPerBucket: 1,
            start: problem.start.map((b) => b % problem.buckets),
          };
          if (free.start.length === 0) return;
          const most = imbalance(balanceBins(free, { method }), free.columns, free.buckets);
          const total = free.columns.compute.reduce((a, b) => a + b, 0);
          // Some bin must hold the mean, and some bin the largest sample; both methods are within 4/3 of the best.
          const best = Math.max(1, (Math.max(...free.columns.compute) * free.buckets) / total);
          const pairs = Math.ceil(free.start.length / free.buckets);
          expect(most).toBeLessThanOrEqual(best * (pairs <= 1 ? 1 : 4 / 3) * 1.34 + 1e-9);
        }),
      );
    });
  }

  test("a custom method is carried out, and refused when it loses a sample or overfills a bin", () => {
    const columns = {
      tokens: Float64Array.of(5, 5, 5),
      memory: Float64Array.of(1, 1, 1),
      compute: Float64Array.of(1, 2, 3),
    };
    const problem = { columns, buckets: 3, binsPerBucket: 1, capacity: { tokens: 6 }, start: Int32Array.of(0, 1, 2) };
    expect([...balanceBins(problem, { method: () => [2, 0, 1] })]).toEqual([2, 0, 1]);
    expect(() => balanceBins(problem, { method: () => [0, 0, 1] })).toThrow(/do not fit/);
    expect(() => balanceBins(problem, { method: () => [0, 1, 3] })).toThrow(/bin 3/);
    expect(() => balanceBins(problem, { method: () => [0, 1] })).toThrow(/2 bins for 3 samples/);
    expect(() => balanceBins(problem, { method: () => [0, 1, 2, 0] })).toThrow(/4 bins for 3 samples/);
    expect(() => balanceBins(problem, { method: () => [0, 1, 1.5] })).toThrow(/bin 1.5/);
    expect(() => balanceBins(problem, { method: () => [0, Number.NaN, 2] })).toThrow(/bin NaN/);
    expect(() => balanceBins(problem, { method: () => undefined as unknown as number[] })).toThrow(/undefined/);
    expect(() => balanceBins(problem, { method: () => "012" as unknown as number[] })).toThrow(/returned string/);
  });

  test.each(["greedy", "karmarkar-karp"] as const)(
    "%s within microbatches: no rank gets the heaviest every time",
    (method) => {
      // Eight microbatches with one giant each, for eight ranks.
      const [buckets, binsPerBucket] = [8, 8];
      const compute = Float64Array.from({ length: 128 }, (_, i) => (i % 16 === 0 ? 100 : 1 + (i % 3)));
      const columns = { compute, tokens: compute, memory: compute };
      const start = Int32Array.from({ length: 128 }, (_, i) => Math.floor(i / 16));
      const problem = { columns, buckets, binsPerBucket, capacity: {}, start };
      const result = balanceBins(problem, { method, level: "within-microbatch" });
      expect(imbalance(result, columns, 64, binsPerBucket)).toBeLessThan(1.05);
    },
  );

  test("what cannot fit is refused with the numbers", () => {
    const columns = {
      tokens: Float64Array.of(5, 5, 5),
      memory: Float64Array.of(1, 1, 1),
      compute: Float64Array.of(1, 2, 3),
    };
    expect(() => arrivalAssignment(columns, 2, { tokens: 6 })).toThrow(/3 samples of 15 tokens.*2 bins of 6 tokens/);
    expect([...tightAssignment(columns, 3, { tokens: 5 })].sort()).toEqual([0, 1, 2]);
  });
});

describe("karmarkarKarp", () => {
  test("every item in one bin; two bins as the textbook has it", () => {
    const assignment = karmarkarKarp(Float64Array.of(8, 7, 6, 5, 4), 2);
    const sums = [0, 0];
    [8, 7, 6, 5, 4].forEach((cost, i) => {
      sums[assignment[i] as number] = (sums[assignment[i] as number] as number) + cost;
    });
    expect(sums.sort()).toEqual([14, 16]);
  });

  test("is no worse than largest-first on most inputs, and far better on skewed ones", () => {
    let wins = 0;
    for (let seed = 0; seed < 50; seed++) {
      const compute = Float64Array.from({ length: 400 }, (_, i) => 1 + ((i * 7919 + seed * 104729) % 10007) ** 2);
      const columns = { compute, tokens: compute, memory: compute };
      const problem = { columns, buckets: 8, binsPerBucket: 1, capacity: {}, start: new Int32Array(400) };
      const of = (method: "greedy" | "karmarkar-karp"): number =>
        imbalance(balanceBins(problem, { method }), columns, 8);
      if (of("karmarkar-karp") <= of("greedy")) wins++;
    }
    expect(wins).toBeGreaterThan(45);
  });
});

test("descending sorts like a plain sort", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(1_000_000)), (values) => {
      const order = [...values.keys()].sort((a, b) => (values[b] as number) - (values[a] as number) || a - b);
      expect([...descending(Float64Array.from(values))]).toEqual(order);
    }),
  );
});

test("descending sorts many like few, of any size and with equals in order", () => {
  fc.assert(
    fc.property(fc.array(fc.double({ min: 0, max: 1e300, noNaN: true }), { minLength: 1, maxLength: 50 }), (seeds) => {
      // A view that does not begin where its buffer does.
      const values = Float64Array.from(
        { length: 4001 },
        (_, i) => (seeds[i % seeds.length] as number) / (1 + (i % 7)),
      ).subarray(1);
      const order = [...values.keys()].sort((a, b) => (values[b] as number) - (values[a] as number) || a - b);
      expect([...descending(values)]).toEqual(order);
    }),
    { numRuns: 20 },
  );
});
