/**
 * Property: a lane's resume point is read back as it was, is refused by any other pipeline or part, and stays within 16 KiB for 300 sources however far
 * they have been read. Method: the largest numbers that a long training reaches; fast-check for the rest.
 */
import fc from "fast-check";
import { expect, test } from "vitest";
import { decodeLaneState, encodeLaneState, lanePointBytesMax } from "../../src/plan/run/lane-state.js";
import type { SourcePosition } from "../../src/plan/source/source-cursor.js";

test("300 sources after a trillion samples, in shards of a terabyte, with everything owed: still within 16 KiB", () => {
  const position: SourcePosition = [999_999_999_999, 99, 9_999, 999_999_999_999, 255];
  const state = {
    seq: 9_999_999,
    lane: 127,
    lanes: 128,
    positions: Array.from({ length: 300 }, () => position),
    used: Array.from({ length: 300 }, () => 999),
    owed: Array.from({ length: 300 }, () => -999_999),
    owedAt: 999_999_999,
    debt: Array.from({ length: 300 }, () => 9),
  };
  const point = encodeLaneState(state, 4_294_967_295);
  expect(JSON.stringify(point).length).toBeLessThanOrEqual(lanePointBytesMax);
  expect(decodeLaneState(JSON.parse(JSON.stringify(point)), 4_294_967_295, 127, 128)).toEqual(state);
});

test("a snapshot that is too large is refused instead of stored", () => {
  const position: SourcePosition = [1, 0, 0, ["x".repeat(20_000), 0, 1], 1];
  const state = { seq: 1, lane: 0, lanes: 1, positions: [position], used: [], owed: [], owedAt: 1, debt: [] };
  expect(() => encodeLaneState(state, 1)).toThrow(/snapshot of an iterable source is too large/);
});

test("reads back what was written, and nothing else", () => {
  fc.assert(
    fc.property(fc.nat(), fc.nat(63), fc.array(fc.nat(1000), { maxLength: 9 }), (seq, lane, numbers) => {
      const positions = numbers.map((n): SourcePosition | undefined => (n % 3 === 0 ? undefined : [n, 0, 1, n, 2]));
      const state = { seq, lane, lanes: 64, positions, used: [], owed: numbers, owedAt: seq, debt: [] };
      const point: unknown = JSON.parse(JSON.stringify(encodeLaneState(state, 7)));
      const back = decodeLaneState(point, 7, lane, 64);
      expect({ ...back, owed: numbers.some((n) => n !== 0) ? back.owed : numbers }).toEqual(state);
      expect(() => decodeLaneState(point, 8, lane, 64)).toThrow(/pipeline has changed/);
      expect(() => decodeLaneState(point, 7, (lane + 1) % 64, 64)).toThrow(/it is of part/);
    }),
  );
  expect(() => decodeLaneState({ batch: 3 }, 7, 0, 1)).toThrow(/not written by a pipeline/);
});
