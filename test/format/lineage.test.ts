/**
 * Properties of lineage: samples come back in order and exactly, every changed byte and truncation is noticed even without the block's own
 * checksum, a newer layout and a bomb are refused. Method: random samples, and runs of consecutive ids for the size.
 */
import { deflateSync } from "node:zlib";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { crc32, decodeLineage, encodeLineage, type LineageSample } from "../../src/format/index.js";
import { refusal } from "./refusal.js";

const where = "batch/00/x.tgb";
const id = fc.oneof(
  fc.string(),
  fc.nat({ max: Number.MAX_SAFE_INTEGER }).map(String),
  fc.constantFrom("", "0", "007", "-1", "1e3", "9007199254740993", "9007199254740991", "__proto__"),
);
const samples: fc.Arbitrary<LineageSample[]> = fc.array(
  fc.record(
    { source: fc.oneof(fc.constantFrom("web", "code", "__proto__"), fc.string()), id, tokens: fc.nat(), row: fc.nat() },
    { requiredKeys: ["source", "id", "tokens"] },
  ),
  { maxLength: 40 },
);

/** A block around any JSON text, with a fitting checksum. */
function block(json: string, count: number, length = Buffer.byteLength(json), magic = "LIN1"): Uint8Array {
  const header = Buffer.alloc(16);
  header.write(magic, "latin1");
  header.writeUInt32LE(count, 4);
  header.writeUInt32LE(length, 8);
  const body = deflateSync(json);
  header.writeUInt32LE(crc32(body, crc32(header.subarray(0, 12))), 12);
  return Buffer.concat([header, body]);
}

describe("lineage", () => {
  test("comes back as it was", () => {
    fc.assert(
      fc.property(samples, (list) => {
        expect(decodeLineage(encodeLineage(list), where)).toEqual(list);
      }),
    );
  });

  test("every changed byte and every truncation is noticed", () => {
    fc.assert(
      fc.property(samples, fc.integer({ min: 1, max: 255 }), (list, mask) => {
        const bytes = encodeLineage(list);
        for (let at = 0; at < bytes.length; at++) {
          const damaged = Uint8Array.from(bytes);
          (damaged[at] as number) ^= mask;
          refusal(() => decodeLineage(damaged, where), where);
          refusal(() => decodeLineage(bytes.subarray(0, at), where), where);
        }
        refusal(() => decodeLineage(Buffer.concat([bytes, bytes]), where), where);
      }),
      { numRuns: 20 },
    );
  });

  test("ten thousand samples with consecutive ids take less than two bytes each", () => {
    const list = Array.from({ length: 10_000 }, (_, i) => ({
      source: ["web", "code", "math"][i % 3] as string,
      id: String(5_000_000 + i),
      tokens: (i * 7919) % 100,
    }));
    expect(encodeLineage(list).length).toBeLessThan(20_000);
  });

  test.each([
    ["JSON that is not an object", block("[]", 0)],
    ["no columns", block("{}", 0)],
    ["a column that is too short", block('{"sources":["a"],"source":[0],"id":[],"tokens":[1]}', 1)],
    ["a source that is not there", block('{"sources":["a"],"source":[1],"id":[1],"tokens":[1]}', 1)],
    ["a negative id", block('{"sources":["a"],"source":[0],"id":[-1],"tokens":[1]}', 1)],
    ["a count beyond the columns", block('{"sources":[],"source":[],"id":[],"tokens":[]}', 0xffff_ffff)],
    ["a length below the JSON's", block('{"sources":[],"source":[],"id":[],"tokens":[]}', 0, 3)],
    ["a length above the limit", block("{}", 0, 0xffff_ffff)],
    ["a bomb", block(`{"x":"${"0".repeat(10_000_000)}"}`, 0, 100)],
  ])("%s is refused", (_, bytes) => {
    expect(refusal(() => decodeLineage(bytes, where), where).code).toBe("CORRUPT");
  });

  test("a newer layout is told from damage", () => {
    const bytes = block("{}", 0, 2, "LIN2");
    expect(refusal(() => decodeLineage(bytes, where), where).code).toBe("UNSUPPORTED_FORMAT");
  });

  test("what is not a sample is refused before it is stored", () => {
    const bad = [
      { source: "a", id: "b", tokens: -1 },
      { source: "a", id: 5, tokens: 1 },
      { source: "a", id: "b", tokens: 1, row: 0.5 },
    ];
    for (const sample of bad) expect(() => encodeLineage([sample as LineageSample])).toThrow(/needs a source/);
  });
});
