/**
 * Property: a lane's resume point is read back as it was, is refused by any other pipeline or part, and stays within 16 KiB for 300 sources however far
 * they have been read. Method: the largest numbers that a long training reaches; fast-check for the rest.
 */
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  decodeLaneState,
  encodeLaneState,
  lanePointBytesMax,
  type PipelinePrint,
} from "../../src/plan/run/lane-state.js";
import type { SourcePosition } from "../../src/plan/source/source-cursor.js";

const start = { age: 1, first: 0, base: 0, isOver: false };

function printOf(sources: number, shape = 7): PipelinePrint {
  const list = Array.from({ length: sources }, (_, i) => i);
  return { shape, sources: list.map((i) => 2_000_000_000 + i), names: list.map((i) => `source-${i}`) };
}

test("300 sources after a trillion samples, in shards of a terabyte, with everything owed: still within 16 KiB", () => {
  const position: SourcePosition = [99, 9_999, 999_999, 999_999_999_999, 255];
  const state = {
    seq: 9_999_999,
    age: 19_999_999,
    first: 999_999_999,
    base: 999_999_999,
    lane: 127,
    lanes: 128,
    positions: Array.from({ length: 300 }, () => position),
    used: Array.from({ length: 300 }, () => 999),
    owed: Array.from({ length: 300 }, () => -999_999),
    owedAt: 999_999_999,
    debt: Array.from({ length: 300 }, () => 9),
    isOver: true,
  };
  const print = printOf(300, 4_294_967_295);
  const point = encodeLaneState(state, print);
  expect(JSON.stringify(point).length).toBeLessThanOrEqual(lanePointBytesMax);
  expect(decodeLaneState(JSON.parse(JSON.stringify(point)), print, { lane: 127, lanes: 128 })).toEqual(state);
});

test("a snapshot that is too large is refused instead of stored", () => {
  const position: SourcePosition = [0, 0, 0, ["x".repeat(20_000), 0, 1], 1];
  const state = { ...start, seq: 1, lane: 0, lanes: 1, positions: [position], used: [], owed: [], owedAt: 1, debt: [] };
  expect(() => encodeLaneState(state, printOf(1))).toThrow(/snapshot of an iterable source is too large/);
});

test("reads back what was written, and nothing else", () => {
  fc.assert(
    fc.property(fc.nat(), fc.nat(63), fc.array(fc.nat(1000), { maxLength: 9 }), (seq, lane, numbers) => {
      const positions = numbers.map((n): SourcePosition | undefined => (n % 3 === 0 ? undefined : [0, 1, n, n, 2]));
      const state = { ...start, seq, lane, lanes: 64, positions, used: [], owed: numbers, owedAt: seq, debt: [] };
      const print = printOf(numbers.length);
      const point: unknown = JSON.parse(JSON.stringify(encodeLaneState(state, print)));
      const back = decodeLaneState(point, print, { lane, lanes: 64 });
      expect({ ...back, owed: numbers.some((n) => n !== 0) ? back.owed : numbers }).toEqual(state);
      expect(() => decodeLaneState(point, { ...print, shape: 8 }, { lane, lanes: 64 })).toThrow(/pipeline has changed/);
      expect(() => decodeLaneState(point, printOf(numbers.length + 1), { lane, lanes: 64 })).toThrow(
        /it had \d+ sources/,
      );
      expect(() => decodeLaneState(point, print, { lane: (lane + 1) % 64, lanes: 64 })).toThrow(/it is of part/);
    }),
  );
  expect(() => decodeLaneState({ batch: 3 }, printOf(1), { lane: 0, lanes: 1 })).toThrow(/not written by a pipeline/);
  const old = { v: 1, pipeline: 7, seq: 1, lane: [0, 1], at: 1, positions: [[1, 0, 0, null, 1]], owed: 0, debt: 0 };
  expect(() => decodeLaneState(old, printOf(1), { lane: 0, lanes: 1 })).toThrow(/an earlier version wrote it/);
});

test("in a fork, sources that are as they were keep their positions wherever they stand now, and others begin anew", () => {
  const positions: SourcePosition[] = [
    [1, 2, 3, 4, 5],
    [6, 7, 8, 9, 10],
  ];
  const state = {
    ...start,
    seq: 3,
    lane: 0,
    lanes: 1,
    positions,
    used: [0, 2],
    owed: [5, -5],
    owedAt: 3,
    debt: [1, 0],
  };
  const point: unknown = JSON.parse(JSON.stringify(encodeLaneState(state, printOf(2))));
  const print = { shape: 99, sources: [2_000_000_001, 42, 2_000_000_000], names: ["b", "new", "a"] };
  expect(decodeLaneState(point, print, { lane: 0, lanes: 1, isFork: true })).toMatchObject({
    positions: [positions[1], undefined, positions[0]],
    used: [2, 0, 0],
    debt: [0, 0, 1],
  });
  const other = { ...print, shape: 7, sources: [2_000_000_000, 42], names: ["a", "web"] };
  expect(() => decodeLaneState(point, other, { lane: 0, lanes: 1 })).toThrow(
    /source web is not what it was.*fork the log/,
  );
});
