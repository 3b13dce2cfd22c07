/** Property: joining parts that lie side by side in memory changes no byte and copies none. Method: random cuts of random buffers. */
import fc from "fast-check";
import { expect, test } from "vitest";
import { copyBody, joinAdjacent } from "../../src/store/body.js";

test("the same bytes in the same order, whatever the cuts, gaps and repetitions", () => {
  const cuts = fc.array(fc.tuple(fc.nat(2), fc.nat(40), fc.nat(24)), { maxLength: 12 });
  fc.assert(
    fc.property(cuts, fc.boolean(), (places, isWhole) => {
      const memories = [1, 2, 3].map((n) => Uint8Array.from({ length: 64 }, (_, i) => 64 * n + i));
      const random = places.map(([n, at, length]) => (memories[n] as Uint8Array).subarray(at, at + length));
      const whole = [0, 8, 8, 20].map((at, i, all) => (memories[0] as Uint8Array).subarray(at, all[i + 1]));
      const body = isWhole ? [...random, ...whole] : random;
      const joined = joinAdjacent(body);
      expect(copyBody(joined)).toEqual(copyBody(body));
      expect(joined.length).toBeLessThanOrEqual(body.length);
      for (const part of joined as readonly Uint8Array[])
        expect([...memories.map(({ buffer }) => buffer)]).toContain(part.buffer);
    }),
  );
});

test("a batch that was cut into slices is one part", () => {
  const memory = new Uint8Array(1000);
  const slices = [memory.subarray(0, 300), memory.subarray(300, 301), memory.subarray(301)];
  const footer = new Uint8Array(50);
  const joined = joinAdjacent([...slices, footer]) as readonly Uint8Array[];
  expect(joined.map(({ byteLength }) => byteLength)).toEqual([1000, 50]);
  expect(joined[0]?.buffer).toBe(memory.buffer);
  expect(joined[1]).toBe(footer);
});
