/**
 * Property: draws follow the schedule within one sample per source at every moment of a phase, switch exactly where the schedule does, go on
 * after a restart as if there had been none, and are decided by the schedule alone. Method: fast-check over weights; worked examples.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { callbackMix, type MixSchedule, stagedMix, staticMix, warmUpMix } from "../../src/plan/mix/mix-schedule.js";
import { Mixer, shareUnit, TokenMixer, wholeShares } from "../../src/plan/mix/mixer.js";

const weightsArb = fc
  .array(fc.integer({ min: 0, max: 1000 }), { minLength: 1, maxLength: 40 })
  .filter((list) => list.some((w) => w > 0))
  .map((list) => Object.fromEntries(list.map((w, i) => [`s${i}`, w])));

function drawAll(mixer: Mixer, from: number, to: number): number[] {
  return Array.from({ length: to - from }, (_, i) => [...mixer.drawStep(from + i).draws]).flat();
}

describe("Mixer", () => {
  test("after any number of draws every source is within one of its share", () => {
    fc.assert(
      fc.property(weightsArb, fc.integer({ min: 1, max: 64 }), (weights, perStep) => {
        const sources = Object.keys(weights);
        const shares = wholeShares(weights, sources);
        expect(shares.reduce((a, b) => a + b, 0)).toBe(shareUnit);
        const counts = sources.map(() => 0);
        let off = 0;
        drawAll(new Mixer(sources, staticMix(weights), perStep), 0, 20).forEach((source, t) => {
          counts[source] = (counts[source] as number) + 1;
          for (let i = 0; i < counts.length; i++) {
            off = Math.max(off, Math.abs((counts[i] as number) - ((t + 1) * (shares[i] as number)) / shareUnit));
          }
        });
        expect(off).toBeLessThan(1);
      }),
    );
  });

  test("a restart from its credits goes on with the same draws", () => {
    fc.assert(
      fc.property(weightsArb, weightsArb, fc.integer({ min: 1, max: 30 }), fc.nat(19), (a, b, perStep, cut) => {
        const sources = [...new Set([...Object.keys(a), ...Object.keys(b)])];
        for (const schedule of [
          stagedMix([
            { from: 0, weights: a },
            { from: 7, weights: b },
          ]),
          warmUpMix({ from: a, to: b, over: 12 }),
          stagedMix(
            [
              { from: 0, weights: a },
              { from: 7.5, weights: b },
            ],
            { by: "substep", substeps: 4 },
          ),
          stagedMix(
            [
              { from: 0, weights: a },
              { from: 2, weights: b },
            ],
            { by: "epoch", stepsPerEpoch: 5 },
          ),
        ] satisfies MixSchedule[]) {
          const whole = drawAll(new Mixer(sources, schedule, perStep), 0, 20);
          const first = new Mixer(sources, schedule, perStep);
          const before = drawAll(first, 0, cut);
          const state = JSON.parse(JSON.stringify({ at: cut, credits: first.credits }));
          expect([...before, ...drawAll(new Mixer(sources, schedule, perStep, state), cut, 20)]).toEqual(whole);
        }
      }),
    );
  });

  test("a staged mix switches at its step, and each phase is exact where whole numbers allow it", () => {
    const schedule = stagedMix([
      { from: 0, weights: { web: 0.5, code: 0.3, math: 0.2 } },
      { from: 10, weights: { web: 0.1, code: 0.1, math: 0.8 } },
    ]);
    const mixer = new Mixer(["web", "code", "math"], schedule, 7);
    const count = (draws: number[]): number[] => [0, 1, 2].map((s) => draws.filter((d) => d === s).length);
    expect(count(drawAll(mixer, 0, 10))).toEqual([35, 21, 14]);
    expect(count(drawAll(mixer, 10, 20))).toEqual([7, 7, 56]);
  });

  test("a substep schedule switches inside the batch", () => {
    const schedule = stagedMix(
      [
        { from: 0, weights: { a: 1 } },
        { from: 0.5, weights: { b: 1 } },
      ],
      { by: "substep", substeps: 2 },
    );
    expect([...new Mixer(["a", "b"], schedule, 6).drawStep(0).draws]).toEqual([0, 0, 0, 1, 1, 1]);
  });

  test("a callback's value is returned to be stored, and a stored one is used instead of asking", () => {
    let asked = 0;
    const schedule = callbackMix(({ metrics }) => {
      asked++;
      return { a: 1, b: metrics["loss"] ?? 1 };
    });
    const first = new Mixer(["a", "b"], schedule, 8).drawStep(0, { loss: 3 });
    expect(first.decided).toEqual({ a: 1, b: 3 });
    const again = new Mixer(["a", "b"], schedule, 8).drawStep(0, { loss: 99 }, first.decided);
    expect(again).toEqual(first);
    expect(asked).toBe(1);
  });

  test("a name that is no source is refused", () => {
    expect(() => new Mixer(["web"], staticMix({ wbe: 1 }), 1).drawStep(0)).toThrow(/names wbe/);
  });
});

test("TokenMixer keeps every source within the longest sample of its share of tokens", () => {
  fc.assert(
    fc.property(
      weightsArb,
      fc.array(fc.integer({ min: 1, max: 5000 }), { minLength: 200, maxLength: 400 }),
      (weights, lengths) => {
        const sources = Object.keys(weights);
        const shares = wholeShares(weights, sources);
        const mixer = new TokenMixer(sources.length);
        mixer.setShares(shares);
        const taken = sources.map(() => 0);
        let total = 0;
        for (const tokens of lengths) {
          const source = mixer.next(() => true);
          mixer.take(source, tokens);
          taken[source] = (taken[source] as number) + tokens;
          total += tokens;
        }
        taken.forEach((tokens, i) => {
          const target = (total * (shares[i] as number)) / shareUnit;
          expect(tokens - target).toBeLessThanOrEqual(5000 + 1e-3);
          expect(mixer.behind[i]).toBeCloseTo(target - tokens, -1);
        });
      },
    ),
  );
});
