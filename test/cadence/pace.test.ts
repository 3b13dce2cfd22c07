/**
 * Property: every wait of the cooperative cadence goes with the round trip of the store, between a floor and a ceiling; on S3 all are at their ceilings, so
 * that what requests cost there does not depend on a measurement. A look is expected neither before a batch can be visible nor long after.
 * Method: the pure functions, fast-check for what must hold everywhere.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { CarrierRhythm, CycleRate, type Pace, paceOf } from "../../src/cadence/cooperative/pace.js";
import { RoundTrip } from "../../src/log/index.js";

const names = Object.keys(paceOf(1)) as (keyof Pace)[];
const roundTripMs = fc.double({ min: 0.01, max: 10_000, noNaN: true });

describe("the pace of a store", () => {
  test("never falls when round trips take longer, and never passes that of S3", () => {
    fc.assert(
      fc.property(roundTripMs, roundTripMs, (a, b) => {
        const [fast, slow] = [paceOf(Math.min(a, b)), paceOf(Math.max(a, b))];
        for (const name of names) {
          expect(fast[name]).toBeGreaterThan(0);
          expect(fast[name]).toBeLessThanOrEqual(slow[name]);
          expect(slow[name]).toBeLessThanOrEqual(paceOf(75)[name]);
        }
      }),
    );
  });

  test("on S3, whatever a write takes there, it is one and the same", () => {
    for (const ms of [75, 100, 150, 400]) expect(paceOf(ms)).toEqual(paceOf(100));
  });

  test("is what the design derives, at the floors, between them, and at the ceilings", () => {
    const fields = (ms: number): number[] => Object.values(paceOf(ms)).map((value) => Number(value.toFixed(2)));
    expect(fields(0.01)).toEqual([5, 2, 150, 500, 50, 5, 10, 25, 25, 50, 20, 100, 1_000, 50, 500]);
    expect(fields(20)).toEqual([40, 14, 400, 28_000, 560, 14, 140, 28, 184, 280, 54, 280, 16_000, 140, 800]);
    expect(fields(1_000)).toEqual([
      ...[150, 50, 1_500, 100_000, 2_100, 50, 500, 100, 690, 1_000, 200, 1_000, 60_000],
      ...[500, 3_000],
    ]);
  });

  test("of a carrier follows its cycles and its batches, within its limits", () => {
    const pace = paceOf(1_000);
    const rate = new CycleRate();
    const interval = (alone: boolean, idle: number): number => Number(rate.intervalMs(pace, alone, idle).toFixed(2));
    expect([interval(false, 0), interval(true, 0), interval(true, 1), interval(true, 9)]).toEqual([
      690, 200, 400, 1_000,
    ]);
    rate.learn(10, 80, 1_000);
    // 0.2 of a new rate of 10 in 80 ms; a cycle of 80 ms and a quarter.
    expect(interval(false, 0)).toBe(Number((2.3 / (0.29 * 0.025)).toFixed(2)));
    expect([interval(false, 1), interval(false, 2)]).toEqual([634.48, 1_000]);
    rate.learn(1_000, 40, 1_100);
    expect(interval(false, 0)).toBe(100);
    rate.learn(1_000, 260, 1_200);
    // The cycle: 80, then half way to 40, then a tenth of the way to 260.
    expect(interval(false, 0)).toBe(100);
    for (let i = 0; i < 20; i++) rate.learn(1_000, 400, 1_300 + i);
    expect(interval(false, 0)).toBe(Number((1.25 * (400 - 320 * 0.9 ** 20)).toFixed(2)));
    expect([interval(false, 1), interval(false, 2), interval(false, 20)]).toEqual([902.74, 1_000, 1_000]);
  });

  test("on a folder everything is at least four times faster than on S3", () => {
    const [folder, s3] = [paceOf(2), paceOf(100)];
    for (const name of names.filter((n) => n !== "farewellMs")) expect(folder[name] * 4).toBeLessThanOrEqual(s3[name]);
  });

  test("a carrier leaves a fifth of the time to others, alone or not, and slows down while there is nothing to carry", () => {
    const rate = new CycleRate();
    for (let i = 0; i < 50; i++) rate.learn(1_000, 80, 80 * i);
    const pace = paceOf(40);
    expect(rate.intervalMs(pace, false, 0)).toBeGreaterThanOrEqual(1.24 * 80);
    const waits = [0, 1, 2, 3, 20].map((idle) => rate.intervalMs(pace, false, idle));
    expect([...waits].sort((a, b) => a - b)).toEqual(waits);
    expect(waits.at(-1)).toBeLessThanOrEqual(pace.idleMsMax);
  });
});

describe("when a look is worth it", () => {
  test("not before the batch could be committed, and within a cycle and two round trips", () => {
    fc.assert(
      fc.property(
        roundTripMs,
        fc.array(fc.tuple(fc.integer({ min: 1, max: 50 }), fc.double({ min: -1e4, max: 1e4, noNaN: true }))),
        fc.double({ min: 0, max: 1e6, noNaN: true }),
        (ms, seen, announcedAtMs) => {
          const pace = paceOf(ms);
          const rhythm = new CarrierRhythm();
          let version = 0;
          let stampedAtMs = 0;
          // Clocks jump, in either direction.
          for (const [versions, passedMs] of seen) {
            version += versions;
            stampedAtMs += passedMs;
            rhythm.see(version, stampedAtMs);
          }
          const expectedMs = rhythm.expectedAtMs(announcedAtMs, ms, pace) - announcedAtMs;
          expect(expectedMs).toBeGreaterThanOrEqual(ms / 2 - 1e-6);
          expect(expectedMs).toBeLessThanOrEqual(pace.intervalMsMax + 2 * ms + 1e-6);
        },
      ),
    );
  });

  test("by a rhythm that is learned from the first two versions on, and from steps forward alone", () => {
    const pace = paceOf(1_000);
    const rhythm = new CarrierRhythm();
    expect(rhythm.intervalMs(pace)).toBe(690);
    // Nothing is known: half an interval after it could be listed, and a little more than a round trip.
    expect(rhythm.expectedAtMs(10_000, 100, pace)).toBeCloseTo(10_000 + 50 + 345 + 120);
    rhythm.see(1, 1_000);
    expect(rhythm.intervalMs(pace)).toBe(690);
    rhythm.see(2, 1_400);
    expect(rhythm.intervalMs(pace)).toBe(400);
    rhythm.see(4, 1_800);
    expect(rhythm.intervalMs(pace)).toBe(300);
    rhythm.see(4, 9_000);
    rhythm.see(3, 9_000);
    rhythm.see(5, 1_800);
    expect(rhythm.intervalMs(pace)).toBe(300);
    rhythm.see(6, 1_810);
    expect(rhythm.intervalMs(pace)).toBe(155);
    rhythm.see(7, 1_811);
    expect(rhythm.intervalMs(pace)).toBe(100);
    rhythm.see(8, 9_999);
    expect(rhythm.intervalMs(pace)).toBe(690);
    // Announced long before the last stamp, which says when the one after it came: 13 intervals of 690 ms before 9,999.
    expect(rhythm.expectedAtMs(1_000, 100, pace)).toBeCloseTo(9_999 - 12 * 690 + 120);
  });

  test("right after the commit of a carrier that keeps its pace", () => {
    const rhythm = new CarrierRhythm();
    for (let v = 1; v <= 10; v++) rhythm.see(v, 500 * v);
    // Announced at 5,120, listed before 5,500, written after that: one round trip for the PUT, and a little.
    expect(rhythm.expectedAtMs(5_120, 100, paceOf(100))).toBeCloseTo(5_620);
  });
});

test("a round trip is guessed from reads until the first write, and one late answer hardly counts", () => {
  const roundTrip = new RoundTrip();
  expect(roundTrip.ms).toBe(100);
  roundTrip.guess(2);
  expect(roundTrip.ms).toBe(3);
  roundTrip.learn(10);
  roundTrip.guess(1);
  expect(roundTrip.ms).toBe(10);
  roundTrip.learn(5_000);
  expect(roundTrip.ms).toBeLessThan(600);
  for (let i = 0; i < 8; i++) roundTrip.learn(10);
  expect(roundTrip.ms).toBeLessThan(15);
});
