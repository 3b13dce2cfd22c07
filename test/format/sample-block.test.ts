/**
 * Properties of sample blocks: what went in comes out, each sample can be cut from the payload by its row of the table and is checked by its own
 * checksum; any bytes are answered by a table that fits or CORRUPT. Method: random samples, random damage.
 */
import fc from "fast-check";
import { expect, test } from "vitest";
import { isBatchWeaveError } from "../../src/errors.js";
import { type BlockSample, checkSample, decodeSampleTable, encodeSampleBlock } from "../../src/format/index.js";

const where = "block 7";
const count = fc.nat({ max: 0xffff_ffff });
const sample: fc.Arbitrary<BlockSample> = fc.record(
  {
    id: fc.string({ unit: "grapheme" }),
    tokens: count,
    bytes: fc.uint8Array({ maxLength: 40 }),
    images: fc.array(count, { minLength: 1, maxLength: 3 }),
    features: fc.dictionary(fc.string({ minLength: 1 }), fc.double({ noNaN: true, noDefaultInfinity: true }), {
      minKeys: 1,
    }),
  },
  { requiredKeys: ["id", "tokens", "bytes"] },
);
const samples = fc.array(sample, { minLength: 1, maxLength: 6 });

test("every sample is found by its row, with its own checksum", () => {
  fc.assert(
    fc.property(samples, (given) => {
      const { table, payload } = encodeSampleBlock("web", given);
      const found = decodeSampleTable(table, payload.length, where);
      expect(found.source).toBe("web");
      const back = found.samples.map(({ offset, length, crc, ...rest }) => ({
        ...rest,
        bytes: Uint8Array.from(
          checkSample(payload.subarray(offset, offset + length), { ...rest, offset, length, crc }, where),
        ),
      }));
      expect(back).toEqual(given);
    }),
  );
});

test("a flipped bit of a sample is CORRUPT by its name; any bytes for a table are CORRUPT or fit", () => {
  const { table, payload } = encodeSampleBlock("web", [{ id: "a", tokens: 1, bytes: Buffer.from("abc") }]);
  const [entry] = decodeSampleTable(table, payload.length, where).samples;
  expect(() => checkSample(Buffer.from("abd"), entry as never, where)).toThrow(/block 7 is corrupt: sample "a"/);
  expect(() => checkSample(Buffer.from("ab"), entry as never, where)).toThrow(/has 2 bytes, not 3/);
  fc.assert(
    fc.property(samples, fc.nat(), fc.nat({ max: 255 }), (given, place, byte) => {
      const block = encodeSampleBlock("web", given);
      const damaged = Uint8Array.from(block.table);
      damaged[place % damaged.length] = byte;
      try {
        const { samples: rows } = decodeSampleTable(damaged, block.payload.length, where);
        expect(rows.reduce((sum, row) => sum + row.length, 0)).toBe(block.payload.length);
      } catch (error) {
        if (!isBatchWeaveError(error, "CORRUPT")) throw error;
      }
    }),
  );
});

test("samples that a table cannot tell are refused", () => {
  const good = { id: "a", tokens: 1, bytes: Buffer.alloc(1) };
  for (const bad of [
    { tokens: -1 },
    { tokens: 1.5 },
    { tokens: 2 ** 32 },
    { images: [-1] },
    { features: { x: Number.NaN } },
  ])
    expect(() => encodeSampleBlock("web", [{ ...good, ...bad }])).toThrow(/needs an id/);
});
