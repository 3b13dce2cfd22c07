/**
 * Properties: DAC's gap is the smallest that keeps both budgets (conflict and duty), as docs/design/0003 gives it; the baselines do what
 * the paper says; N counts the pool as it is: recency in versions, in proportion to its size, not every id that ever lived.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Rng } from "../../sim/index.js";
import {
  activeProducers,
  aimdPolicy,
  dacGapMs,
  dacPolicy,
  fixedPolicy,
  incrPolicy,
  poolProducers,
} from "../../src/cadence/index.js";
import { systemEnv } from "../../src/env/index.js";
import {
  asEpoch,
  asSeq,
  asVersion,
  genesisManifest,
  type Manifest,
  type ProducerState,
} from "../../src/format/index.js";

const now = { pending: 1, sinceAttemptMs: 0 };

describe("dac", () => {
  test("the gap keeps the conflict and the duty budget, and a shorter one does not", () => {
    const budgets = fc.record({
      tauMs: fc.double({ min: 1, max: 10_000, noNaN: true }),
      producers: fc.integer({ min: 1, max: 5_000 }),
      epsilon: fc.double({ min: 0.01, max: 0.9, noNaN: true }),
      delta: fc.double({ min: 0.01, max: 0.99, noNaN: true }),
    });
    fc.assert(
      fc.property(budgets, ({ tauMs, producers, epsilon, delta }) => {
        const gapMs = dacGapMs(tauMs, producers, epsilon, delta);
        const conflict = (g: number): number => 1 - Math.exp((-(producers - 1) * tauMs) / (tauMs + g));
        const duty = (g: number): number => tauMs / (tauMs + g);
        expect(conflict(gapMs)).toBeLessThanOrEqual(epsilon + 1e-9);
        expect(duty(gapMs)).toBeLessThanOrEqual(delta + 1e-9);
        const shorter = gapMs * 0.99 - 0.01 * tauMs;
        if (shorter > 0) expect(conflict(shorter) > epsilon || duty(shorter) > delta).toBe(true);
      }),
    );
  });

  test("tau is a moving average with weight alpha, and the gap is jittered by at most the jitter", () => {
    const policy = dacPolicy({ ...systemEnv, random: () => 0.5 }, { alpha: 0.2, jitter: 0.2 });
    policy.learn({ outcome: "committed", fragileMs: 100, activeProducers: 9 });
    policy.learn({ outcome: "lost", fragileMs: 200, activeProducers: 9 });
    expect(policy.delayMs(now)).toBeCloseTo(dacGapMs(0.8 * 100 + 0.2 * 200, 9, 0.05, 0.2));
    const high = dacPolicy({ ...systemEnv, random: () => 1 - Number.EPSILON }, { jitter: 0.2 });
    for (let i = 0; i < 2; i++) high.learn({ outcome: "lost", fragileMs: 100, activeProducers: 9 });
    expect(high.delayMs(now)).toBeCloseTo(1.2 * dacGapMs(100, 9, 0.05, 0.2));
  });

  test("one stalled commit hardly lengthens the gap; a store that is slow is learned within a few attempts", () => {
    const policy = dacPolicy({ ...systemEnv, random: () => 0.5 });
    const learn = (fragileMs: number): void => policy.learn({ outcome: "committed", fragileMs, activeProducers: 9 });
    learn(100);
    learn(100);
    const usualMs = policy.delayMs(now);
    learn(600_000);
    expect(policy.delayMs(now)).toBeLessThanOrEqual(1.6 * usualMs);
    for (let i = 0; i < 12; i++) learn(5_000);
    expect(policy.delayMs(now)).toBeGreaterThan(30 * usualMs);
    const stalledAtFirst = dacPolicy({ ...systemEnv, random: () => 1 - Number.EPSILON });
    stalledAtFirst.learn({ outcome: "committed", fragileMs: 600_000, activeProducers: 9 });
    expect(stalledAtFirst.delayMs(now)).toBeLessThanOrEqual(dacGapMs(1_000, 9, 0.05, 0.2));
  });

  test("an attempt that PUT nothing teaches nothing", () => {
    const policy = dacPolicy(systemEnv);
    policy.learn({ outcome: "nothing", activeProducers: 9 });
    expect(policy.delayMs(now)).toBe(0);
  });
});

describe("baselines", () => {
  test("fixed waits for its number of batches, naive for none", () => {
    expect(fixedPolicy(1).delayMs(now)).toBe(0);
    expect(fixedPolicy(10).delayMs({ ...now, pending: 9 })).toBe(Number.POSITIVE_INFINITY);
    expect(fixedPolicy(10).delayMs({ ...now, pending: 10 })).toBe(0);
  });

  test("incr adds one per conflict", () => {
    const policy = incrPolicy();
    policy.learn({ outcome: "lost", activeProducers: 2 });
    expect(policy.delayMs({ ...now, pending: 10 })).toBe(Number.POSITIVE_INFINITY);
    expect(policy.delayMs({ ...now, pending: 11 })).toBe(0);
  });

  test("aimd as the paper words it grows on success and halves on conflict; the inverse does the opposite", () => {
    const paper = aimdPolicy("paper");
    paper.learn({ outcome: "committed", activeProducers: 2 });
    expect(paper.delayMs({ ...now, pending: 10 })).toBe(Number.POSITIVE_INFINITY);
    paper.learn({ outcome: "lost", activeProducers: 2 });
    expect(paper.delayMs({ ...now, pending: 5 })).toBe(0);
    const inverse = aimdPolicy("inverse");
    inverse.learn({ outcome: "lost", activeProducers: 2 });
    expect(inverse.delayMs({ ...now, pending: 19 })).toBe(Number.POSITIVE_INFINITY);
    expect(inverse.delayMs({ ...now, pending: 20 })).toBe(0);
  });
});

const genesis = genesisManifest({
  format: 1,
  uuid: "u",
  grid: { rows: 1, chunks: 1 },
  order: { kind: "commit" },
  created: 0,
  rest: {},
});

/** A manifest whose producers committed last in these versions. */
function manifestOf(version: number, lastCommits: readonly number[]): Manifest {
  const at = (last: number): ProducerState => ({
    epoch: asEpoch(1),
    incarnation: "i",
    seq: asSeq(1),
    at: asVersion(last),
    resume: { kind: "none" },
  });
  const producers = new Map(lastCommits.map((last, i) => [`p${i}`, at(last)]));
  return { ...genesis, version: asVersion(version), producers };
}

test("active producers are those that committed within the last 1,024 versions", () => {
  expect(activeProducers(manifestOf(6_000, [10, 4_976, 5_990]))).toBe(2);
});

describe("the pool", () => {
  const range = (count: number, of: (i: number) => number): number[] => Array.from({ length: count }, (_, i) => of(i));

  test.each([1, 2, 8, 9, 128, 4_096])("%i producers that commit in turn are all of it, whoever lived before", (n) => {
    const gone = range(50, (i) => i);
    expect(poolProducers(manifestOf(100_000, [...gone, ...range(n, (i) => 100_000 - i)]))).toBe(n);
  });

  test("everybody who was carried into one version counts at once", () => {
    expect(poolProducers(manifestOf(200, [...range(8, (i) => 199 - i), ...range(120, () => 200)]))).toBe(128);
  });

  test("a pool that shrank from 128 to 8 knows it 24 versions later, not 1,024", () => {
    const later = (versions: number): Manifest =>
      manifestOf(5_000 + versions, [...range(120, (i) => 5_000 - i), ...range(8, (i) => 5_000 + versions - i)]);
    expect(poolProducers(later(8))).toBe(128);
    expect(poolProducers(later(24))).toBe(8);
    expect(activeProducers(later(24))).toBe(128);
  });

  test("commits in random order, as of producers that do not know of each other, give nearly all of it", () => {
    const rng = new Rng(1, "order of commits");
    const last = range(128, () => 0);
    for (let version = 1; version <= 2_000; version++) last[rng.below(128)] = version;
    const pool = poolProducers(manifestOf(2_000, last));
    expect(pool).toBeGreaterThan(110);
    expect(pool).toBeLessThanOrEqual(128);
  });
});

test("incr waits for one batch more after each loss, and for no other reason", () => {
  const policy = incrPolicy(3);
  const waits = (pending: number): boolean => policy.delayMs({ pending, sinceAttemptMs: 0 }) > 0;
  for (const outcome of ["committed", "nothing", "unsettled"] as const) policy.learn({ outcome, activeProducers: 2 });
  expect([waits(2), waits(3)]).toEqual([true, false]);
  policy.learn({ outcome: "lost", activeProducers: 2 });
  expect([waits(3), waits(4)]).toEqual([true, false]);
});

test("aimd grows and shrinks as its variant says, never below one batch", () => {
  const after = (variant: "paper" | "inverse", outcomes: readonly ("committed" | "lost" | "nothing")[]): number => {
    const policy = aimdPolicy(variant);
    for (const outcome of outcomes) policy.learn({ outcome, activeProducers: 2 });
    let pending = 1;
    while (policy.delayMs({ pending, sinceAttemptMs: 0 }) > 0) pending++;
    return pending;
  };
  expect([
    after("paper", []),
    after("paper", ["committed"]),
    after("paper", ["lost"]),
    after("paper", ["nothing"]),
  ]).toEqual([10, 11, 5, 10]);
  expect([after("inverse", ["committed"]), after("inverse", ["lost"]), after("inverse", ["nothing"])]).toEqual([
    9, 20, 10,
  ]);
  expect([after("paper", Array(9).fill("lost")), after("inverse", Array(20).fill("committed"))]).toEqual([1, 1]);
});
