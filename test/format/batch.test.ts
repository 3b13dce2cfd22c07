/**
 * Properties of the batch object: what was put in comes out, through every way of reading it; whatever single byte of a stored object
 * changes and wherever it is cut, the verifier refuses it by name, and a rank or an opener gets the true bytes or an error, never others.
 * Method: random batches; every byte of each object is changed in turn.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  auditBatchObject,
  type BatchMetadata,
  type BatchName,
  batchKey,
  checkBlock,
  checkSlice,
  crc32,
  decodeFooter,
  decodeLineage,
  decodeMetadata,
  decodeSlice,
  decodeTrailer,
  type Extent,
  type ExtentPlace,
  encodeExtent,
  encodeLineage,
  encodeSlice,
  footerCheck,
  type LineageSample,
  lineageBlock,
  trailerBytes,
} from "../../src/format/index.js";
import * as any from "./arbitrary.js";
import { refusal } from "./refusal.js";

interface Batch {
  readonly namespace: string;
  readonly name: BatchName;
  readonly place: ExtentPlace;
  readonly slices: readonly Uint8Array[];
  readonly metadata: BatchMetadata;
  readonly lineage: readonly LineageSample[] | undefined;
  readonly key: string;
  readonly bytes: Buffer;
  readonly extent: Extent;
}

const sample: fc.Arbitrary<LineageSample> = fc.record(
  { source: fc.string(), id: fc.oneof(fc.string(), any.whole.map(String)), tokens: any.whole, row: fc.nat() },
  { requiredKeys: ["source", "id", "tokens"] },
);

const batch: fc.Arbitrary<Batch> = fc
  .record({
    namespace: any.uuid,
    name: any.batchName,
    place: fc.record({ extent: fc.nat({ max: 9 }), firstCell: fc.nat({ max: 99 }) }),
    slices: fc.array(fc.uint8Array({ maxLength: 40 }), { minLength: 1, maxLength: 6 }),
    metadata: fc.record({ contentType: fc.string(), resumePoint: any.json, user: any.json }, { requiredKeys: [] }),
    lineage: fc.option(fc.array(sample, { maxLength: 5 }), { nil: undefined }),
  })
  .map((parts) => ({ ...parts, ...stored(parts) }));

function stored(parts: Omit<Batch, "key" | "bytes" | "extent">): Pick<Batch, "key" | "bytes" | "extent"> {
  const { namespace, name, place, slices, metadata, lineage } = parts;
  const encoded = encodeExtent(
    namespace,
    name,
    place,
    slices.map((slice) => encodeSlice(slice, "none")),
    metadata,
    lineage && encodeLineage(lineage),
  );
  return { key: batchKey(name, place.extent), bytes: Buffer.concat(encoded.body), extent: encoded.entry };
}

/** As a rank reads: the footer, then its slices. */
function readAsRank({ namespace, name, place, extent, key }: Batch, bytes: Uint8Array): string[] {
  const footer = decodeFooter(bytes.subarray(extent.table, extent.size), key, namespace, name, place, extent);
  return Array.from({ length: footer.cells }, (_, i) => {
    const entry = footer.entry(i);
    const slice = bytes.subarray(entry.offset, entry.offset + entry.length);
    checkSlice(slice, key, entry);
    return Buffer.from(decodeSlice(slice, key, entry)).toString("hex");
  });
}

/** As an opener reads: the trailer, then the metadata. */
function readAsOpener(
  { namespace, extent, key }: Batch,
  bytes: Uint8Array,
): [BatchMetadata, LineageSample[] | undefined] {
  const trailer = decodeTrailer(bytes.subarray(extent.size - trailerBytes, extent.size), key, namespace);
  const { offset, length } = trailer.metadata;
  const metadata = decodeMetadata(bytes.subarray(offset, offset + length), key, trailer.metadata);
  const block = lineageBlock(metadata, key);
  if (!block) return [metadata, undefined];
  const lineage = bytes.subarray(block.offset, block.offset + block.length);
  checkBlock(lineage, key, block, "lineage");
  return [metadata, decodeLineage(lineage, key)];
}

const audit = (b: Batch, bytes: Uint8Array): ReturnType<typeof auditBatchObject> =>
  auditBatchObject(bytes, b.key, b.namespace, b.name, b.place, b.extent);

/** `read` gives what it gave for the undamaged object, or a refusal. */
function trueOrRefused<T>(read: (bytes: Uint8Array) => T, damaged: Uint8Array, expected: string, key: string): void {
  let found: T;
  try {
    found = read(damaged);
  } catch {
    refusal(() => read(damaged), key);
    return;
  }
  expect(JSON.stringify(found)).toBe(expected);
}

function damageEverywhere(b: Batch, damages: Iterable<Uint8Array>): void {
  const rank = JSON.stringify(readAsRank(b, b.bytes));
  const opener = JSON.stringify(readAsOpener(b, b.bytes));
  for (const damaged of damages) {
    refusal(() => audit(b, damaged), b.key);
    trueOrRefused((bytes) => readAsRank(b, bytes), damaged, rank, b.key);
    trueOrRefused((bytes) => readAsOpener(b, bytes), damaged, opener, b.key);
  }
}

describe("a batch object", () => {
  test("gives back what was put in", () => {
    fc.assert(
      fc.property(batch, (b) => {
        expect(b.bytes.length).toBe(b.extent.size);
        expect(readAsRank(b, b.bytes)).toEqual(b.slices.map((s) => Buffer.from(s).toString("hex")));
        const found = audit(b, b.bytes);
        const { producer, epoch, seq, incarnation } = b.name;
        expect(found.metadata).toMatchObject({ ...b.metadata, producer, epoch, seq, incarnation });
        expect(found.lineage).toEqual(b.lineage);
        expect(found.rawBytes).toBe(b.slices.reduce((sum, s) => sum + s.length, 0));
      }),
    );
  });

  test("a large one is whole blocks of 4 KiB, padded behind its metadata; a small one is not padded", () => {
    fc.assert(
      fc.property(batch, fc.integer({ min: 250_000, max: 270_000 }), (b, length) => {
        const slices = [...b.slices, new Uint8Array(length).fill(7)];
        const large = { ...b, slices, ...stored({ ...b, slices }) };
        expect(audit(large, large.bytes).metadata).toMatchObject(b.metadata);
        const trailer = decodeTrailer(large.bytes.subarray(-trailerBytes), b.key, b.namespace);
        const text = large.bytes.toString("utf8", trailer.metadata.offset, trailer.tableOffset);
        const padding = text.length - text.trimEnd().length;
        expect(padding).toBeLessThan(4_096);
        if (large.bytes.length - padding < 262_144) expect(padding).toBe(0);
        else expect(large.bytes.length % 4_096).toBe(0);
      }),
    );
  });

  test("uploaded again under a new name is the same bytes", () => {
    fc.assert(
      fc.property(batch, any.batchName, (b, { base, attempt }) => {
        expect(stored({ ...b, name: { ...b.name, base, attempt } }).bytes.equals(b.bytes)).toBe(true);
      }),
    );
  });

  test("every changed byte is noticed", () => {
    const each = function* (bytes: Uint8Array, mask: number): Iterable<Uint8Array> {
      for (let at = 0; at < bytes.length; at++) {
        const damaged = Uint8Array.from(bytes);
        (damaged[at] as number) ^= mask;
        yield damaged;
      }
    };
    fc.assert(
      fc.property(batch, fc.integer({ min: 1, max: 255 }), (b, mask) => damageEverywhere(b, each(b.bytes, mask))),
      { numRuns: 20 },
    );
  });

  test("every truncation and any extension is noticed", () => {
    const each = function* (bytes: Uint8Array, more: Uint8Array): Iterable<Uint8Array> {
      for (let length = 0; length < bytes.length; length++) yield bytes.subarray(0, length);
      yield Buffer.concat([bytes, more]);
      yield Buffer.concat([more, bytes]);
    };
    const more = fc.uint8Array({ minLength: 1, maxLength: 99 });
    fc.assert(
      fc.property(batch, more, (b, extra) => damageEverywhere(b, each(b.bytes, extra))),
      { numRuns: 20 },
    );
  });

  test("another batch's object, extent or namespace under its key is noticed", () => {
    fc.assert(
      fc.property(batch, batch, (b, other) => {
        fc.pre(b.namespace !== other.namespace && b.name.incarnation !== other.name.incarnation);
        const swapped = { ...b, extent: other.extent };
        refusal(() => audit(b, other.bytes), b.key);
        // The descriptor fits the object, so only the trailer can tell.
        const { code } = refusal(() => audit(swapped, other.bytes), b.key);
        expect(code).toBe("WRONG_NAMESPACE");
        const { message } = refusal(
          () => audit({ ...swapped, namespace: other.namespace, place: other.place }, other.bytes),
          b.key,
        );
        expect(message).toContain("another batch's object");
        const moved = { ...b, place: { ...b.place, extent: b.place.extent + 1 } };
        refusal(() => audit(moved, b.bytes), b.key);
        refusal(() => audit({ ...b, place: { ...b.place, firstCell: b.place.firstCell + 1 } }, b.bytes), b.key);
      }),
    );
  });

  test("the descriptor's check depends on every byte of the footer", () => {
    fc.assert(
      fc.property(batch, batch, (b, other) => {
        const changed = stored({ ...b, metadata: { ...b.metadata, user: [other.metadata] } });
        // Same slices, so the same slice table; only the trailer's account of the metadata differs.
        expect(changed.extent.check).not.toBe(b.extent.check);
      }),
    );
  });

  test("a newer trailer is a newer format", () => {
    fc.assert(
      fc.property(batch, (b) => {
        const bytes = Buffer.from(b.bytes);
        bytes.writeUInt32LE(2, bytes.length - 20);
        bytes.writeUInt32LE(crc32(bytes.subarray(-80, -8)), bytes.length - 8);
        const extent = { ...b.extent, check: footerCheck(bytes.subarray(b.extent.table)) };
        expect(refusal(() => audit({ ...b, extent }, bytes), b.key).code).toBe("UNSUPPORTED_FORMAT");
      }),
      { numRuns: 10 },
    );
  });
});
