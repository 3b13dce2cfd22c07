/**
 * Property: the demo's proof accepts a faithful reading on any mesh and notices every single way of losing, repeating, reordering or changing a
 * slice. Method: build faithful readings, damage them everywhere, and judge.
 */
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  damage,
  type Identity,
  judge,
  type Reading,
  rollBack,
  type Sighting,
  sabotages,
} from "../../src/cli/demo/proof.js";

const shape = { rows: 4, chunks: 2 };
const clean = { lost: 0, duplicated: 0, outOfOrder: 0, foreign: 0 };

function digestOf(batch: string, row: number, chunk: number): string {
  return `${batch}:${row}:${chunk}`;
}

/** What producers were meant to write: `count` batches each. */
function written(producers: readonly string[], count: number): Map<string, Identity> {
  const expected = new Map<string, Identity>();
  for (const producer of producers)
    for (let counter = 0; counter < count; counter++)
      for (let row = 0; row < shape.rows; row++)
        for (let chunk = 0; chunk < shape.chunks; chunk++)
          expected.set(digestOf(`${producer}/${counter}`, row, chunk), { producer, counter, row, chunk });
  return expected;
}

/** What a mesh sees of a log with these batches. */
function read(order: readonly string[], dp: number, cp: number): Reading {
  const width = shape.chunks / cp;
  const ranks = Array.from({ length: dp * cp }, (_, rank): Sighting[] =>
    Array.from({ length: Math.floor((order.length * shape.rows) / dp) }, (_, iteration) => {
      const globalRow = iteration * dp + Math.floor(rank / cp);
      const batch = order[Math.floor(globalRow / shape.rows)] as string;
      const chunks = Array.from({ length: width }, (_, i) => (rank % cp) * width + i);
      return { iteration, digests: chunks.map((chunk) => digestOf(batch, globalRow % shape.rows, chunk)) };
    }),
  );
  return { dp, cp, ranks };
}

const order = ["a/0", "b/0", "a/1", "a/2", "b/1", "b/2"];
const expected = written(["a", "b"], 3);

test("a faithful reading is clean on every mesh that leaves no row over, and all give one order", () => {
  for (const [dp, cp] of [
    [1, 1],
    [2, 2],
    [3, 1],
    [4, 2],
    [6, 1],
    [8, 2],
  ] as const) {
    expect(judge(read(order, dp, cp), shape, expected)).toEqual({ ...clean, slices: expected.size, order });
  }
});

test("every sabotage is noticed as what it is", () => {
  const reading = read(order, 4, 2);
  const found = sabotages.map((how) => {
    const ranks = reading.ranks.map((one, rank) => (rank === 3 ? damage(one, how) : one));
    const { lost, duplicated, outOfOrder } = judge({ ...reading, ranks }, shape, expected);
    return { how, lost, duplicated, outOfOrder };
  });
  expect(found).toEqual([
    { how: "drop", lost: 1, duplicated: 0, outOfOrder: 0 },
    { how: "duplicate", lost: 0, duplicated: 1, outOfOrder: 0 },
    { how: "swap", lost: 0, duplicated: 0, outOfOrder: 2 },
  ]);
});

test("any one slice that is changed, anywhere, is noticed", () => {
  const reading = read(order, 2, 2);
  const place = fc.record({
    rank: fc.nat(3),
    at: fc.nat(11),
    into: fc.oneof(fc.constant("x"), fc.constantFrom(...expected.keys())),
  });
  fc.assert(
    fc.property(place, ({ rank, at, into }) => {
      const before = reading.ranks[rank]?.[at] as Sighting;
      fc.pre(before.digests[0] !== into);
      const ranks = reading.ranks.map((one, i) =>
        i === rank ? one.map((s, k) => (k === at ? { ...s, digests: [into] } : s)) : one,
      );
      const { lost, duplicated, outOfOrder, foreign } = judge({ ...reading, ranks }, shape, expected);
      expect(lost + duplicated + outOfOrder + foreign).toBeGreaterThan(0);
    }),
  );
});

test("a producer's batches in the wrong order are out of order, though all ranks agree", () => {
  const { outOfOrder, lost, duplicated } = judge(
    read(["a/1", "b/0", "a/0", "a/2", "b/1", "b/2"], 4, 2),
    shape,
    expected,
  );
  expect([outOfOrder, lost, duplicated]).toEqual([1, 0, 0]);
});

test("a batch that is in the log twice is duplicated", () => {
  const { duplicated } = judge(read([...order, "b/2"], 2, 1), shape, expected);
  expect(duplicated).toBe(shape.rows * shape.chunks);
});

test("a rolled-back rank counts from its cursor on; what it reads again must be the same", () => {
  const all = (read(order, 4, 2).ranks[0] as Sighting[]).slice();
  const whole = rollBack(all.slice(0, 5), all.slice(3));
  expect(whole).toEqual({ sightings: all, reread: 2, differing: 0 });
  const changed = all.slice(3).map((s) => ({ ...s, digests: ["x"] }));
  expect(rollBack(all.slice(0, 5), changed).differing).toBe(2);
  // A gap between the kill and the cursor is a loss.
  const { sightings } = rollBack(all.slice(0, 2), all.slice(3));
  const reading = { ...read(order, 4, 2) };
  const ranks = reading.ranks.map((one, rank) => (rank === 0 ? sightings : one));
  expect(judge({ ...reading, ranks }, shape, expected).lost).toBe(1);
});
