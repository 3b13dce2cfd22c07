/**
 * Properties of slice encodings: every available one gives the bytes back, lengths are checked, unknown and unavailable ones are
 * UNSUPPORTED_ENCODING with a remedy. Method: random slices; entries with wrong fields.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isBatchWeaveError } from "../../src/errors.js";
import {
  availableEncodings,
  crc32,
  decodeSlice,
  encodeSlice,
  type SliceEncoding,
  type SliceEntry,
  sliceEncodings,
} from "../../src/format/index.js";
import { refusal } from "./refusal.js";

const where = "batch/00/x.tgb";
const hasZstd = availableEncodings.includes("zstd");

function entryOf(stored: { bytes: Uint8Array; rawLength: number; encoding: number }): SliceEntry {
  return { offset: 0, length: stored.bytes.length, crc: crc32(stored.bytes), ...stored };
}

function codeOf(call: () => unknown): string | undefined {
  try {
    call();
  } catch (error) {
    return isBatchWeaveError(error) ? error.code : String(error);
  }
  return undefined;
}

describe("slice encodings", () => {
  test.each(availableEncodings)("%s gives the bytes back", (encoding) => {
    const slice = fc.oneof(
      fc.uint8Array({ maxLength: 300 }),
      fc.nat({ max: 9999 }).map((n) => new Uint8Array(n).fill(7)),
    );
    fc.assert(
      fc.property(slice, (bytes) => {
        const stored = encodeSlice(bytes, encoding);
        expect(stored.bytes.length).toBeLessThanOrEqual(bytes.length);
        expect(Buffer.from(decodeSlice(stored.bytes, where, entryOf(stored))).equals(bytes)).toBe(true);
      }),
    );
  });

  test("plain slices are not copied", () => {
    const bytes = new Uint8Array([1, 2, 3]);
    const stored = encodeSlice(bytes, "none");
    expect(decodeSlice(stored.bytes, where, entryOf(stored))).toBe(bytes);
  });

  test("a length that does not fit is damage", () => {
    const stored = encodeSlice(new Uint8Array(9), "none");
    refusal(() => decodeSlice(stored.bytes, where, { ...entryOf(stored), rawLength: 8 }), where);
  });

  test("an unknown encoding is named, not guessed", () => {
    const entry = { ...entryOf(encodeSlice(new Uint8Array(9), "none")), encoding: 7 };
    expect(codeOf(() => decodeSlice(new Uint8Array(9), where, entry))).toBe("UNSUPPORTED_ENCODING");
    expect(() => decodeSlice(new Uint8Array(9), where, entry)).toThrow(/number 7.*Install a newer version/);
    expect(codeOf(() => encodeSlice(new Uint8Array(9), "lz4" as SliceEncoding))).toBe("UNSUPPORTED_ENCODING");
  });

  test("zstd says which Node has it", (context) => {
    if (hasZstd) return context.skip("this Node has zstd");
    const entry = { ...entryOf(encodeSlice(new Uint8Array(9), "none")), encoding: sliceEncodings.indexOf("zstd") };
    expect(codeOf(() => encodeSlice(new Uint8Array(9), "zstd"))).toBe("UNSUPPORTED_ENCODING");
    expect(() => encodeSlice(new Uint8Array(9), "zstd")).toThrow(/needs Node 22\.15/);
    expect(() => decodeSlice(new Uint8Array(9), where, entry)).toThrow(/Node 22\.15/);
  });

  test("zstd: what does not decompress to its length is damage", (context) => {
    if (!hasZstd) return context.skip("this Node has no zstd; it comes with 22.15");
    const stored = encodeSlice(new Uint8Array(9999), "zstd");
    expect(stored.encoding).toBe(1);
    for (const rawLength of [0, 9998, 10_000])
      refusal(() => decodeSlice(stored.bytes, where, { ...entryOf(stored), rawLength }), where);
    refusal(() => decodeSlice(stored.bytes.subarray(0, 5), where, entryOf(stored)), where);
  });
});
