/**
 * Property: packing puts every sample into exactly one sequence, never overfills one, gives the same answer every time; the decreasing
 * methods need no more sequences than their known bounds. Method: fast-check over lengths and capacities.
 */
import fc from "fast-check";
import { expect, test } from "vitest";
import { type PackingMethod, packSequences } from "../../src/plan/construct/packing.js";

const methods: readonly PackingMethod[] = ["none", "naive", "first-fit", "best-fit"];
const inputs = fc
  .integer({ min: 1, max: 5000 })
  .chain((capacity) =>
    fc.tuple(fc.constant(capacity), fc.array(fc.integer({ min: 0, max: capacity }), { maxLength: 300 })),
  );

test.each(methods)("%s: nothing lost, nothing twice, capacity kept, same answer every time", (method) => {
  fc.assert(
    fc.property(inputs, ([capacity, lengths]) => {
      const { sequences, efficiency } = packSequences(lengths, capacity, method);
      expect(sequences.flat().sort((a, b) => a - b)).toEqual(lengths.map((_, i) => i));
      for (const sequence of sequences) {
        if (sequence.length === 0) throw new Error("an empty sequence");
        const tokens = sequence.reduce((sum, i) => sum + (lengths[i] as number), 0);
        if (tokens > capacity) throw new Error(`${tokens} tokens in ${capacity} slots`);
      }
      expect(efficiency).toBeLessThanOrEqual(1);
      expect(packSequences(lengths, capacity, method).sequences).toEqual(sequences);
    }),
    { numRuns: 300 },
  );
});

test("first-fit and best-fit decreasing stay within 11/9 of the least possible, plus one", () => {
  fc.assert(
    fc.property(inputs, ([capacity, lengths]) => {
      const least = Math.ceil(lengths.reduce((a, b) => a + b, 0) / capacity);
      const halves = lengths.filter((l) => 2 * l > capacity).length;
      for (const method of ["first-fit", "best-fit"] as const) {
        const { sequences } = packSequences(lengths, capacity, method);
        // At most one sequence is half empty or emptier, so twice the least always suffices; more than half-full ones cannot share.
        expect(sequences.length).toBeLessThanOrEqual(Math.max(2 * least, halves) + 1);
      }
    }),
  );
});

test("best-fit decreasing fills what first-come leaves open", () => {
  const lengths = [6, 5, 4, 5, 6, 4];
  expect(packSequences(lengths, 10, "best-fit").efficiency).toBe(1);
  expect(packSequences(lengths, 10, "naive").sequences.length).toBe(4);
});

test("a sample longer than a sequence is refused by name", () => {
  expect(() => packSequences([3, 11], 10, "best-fit")).toThrow(/Sample 1 has 11 tokens and a sequence has 10 slots/);
});
