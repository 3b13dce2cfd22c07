/**
 * Property: an object that contradicts itself is refused although every checksum in it is right: tables and blocks that overlap, leave gaps or lie outside; and limits of
 * the format are exact. Method: stored objects in which one number is changed and every checksum made anew; values at each limit and behind it.
 */
import { expect, test } from "vitest";
import { decodeDescriptor, encodeDescriptor } from "../../src/format/descriptor.js";
import {
  asEpoch,
  asSeq,
  assertNamespaceSpec,
  asVersion,
  auditBatchObject,
  type BatchName,
  batchIntents,
  checkSlice,
  crc32,
  type Descriptor,
  decodeFooter,
  decodeLineage,
  decodeNamespace,
  decodeSafetensors,
  decodeSlice,
  decodeTrailer,
  type Extent,
  encodeExtent,
  encodeLineage,
  encodeSafetensors,
  encodeSlice,
  entryBytes,
  footerCheck,
  joinTensors,
  sealJson,
  trailerBytes,
} from "../../src/format/index.js";
import { parseJson } from "../../src/format/json-text.js";

const namespace = "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5";
const name: BatchName = {
  ...{ producer: "p", epoch: asEpoch(2), seq: asSeq(9), incarnation: "0123456789ab" },
  ...{ attempt: 1, base: asVersion(4) },
};
const place = { extent: 1, firstCell: 3 };
const slices = [10, 0, 25].map((n) => Uint8Array.from({ length: n }, (_, i) => n + i));

function stored(lineage?: Uint8Array): { bytes: Buffer; extent: Extent } {
  const encoded = slices.map((slice) => encodeSlice(slice, "none"));
  const { body, entry } = encodeExtent(namespace, name, place, encoded, { user: 1 }, lineage);
  return { bytes: Buffer.concat(body), extent: entry };
}

/** The object with a change, and every checksum right again. */
function crafted(
  change: (bytes: Buffer, extent: Extent) => Buffer | undefined,
  lineage?: Uint8Array,
): [Buffer, Extent] {
  const { bytes, extent } = stored(lineage);
  const changed = change(bytes, extent) ?? bytes;
  const trailer = changed.subarray(-trailerBytes);
  trailer.writeUInt32LE(crc32(trailer.subarray(0, 72)), 72);
  const size = changed.length;
  return [changed, { ...extent, size, check: footerCheck(changed.subarray(extent.table)) }];
}

const at = (bytes: Buffer, offset: number): number => bytes.length - trailerBytes + offset;
const footerOf = ([bytes, extent]: [Buffer, Extent]) =>
  decodeFooter(bytes.subarray(extent.table), "it", namespace, name, place, extent);
const audit = ([bytes, extent]: [Buffer, Extent]) => auditBatchObject(bytes, "it", namespace, name, place, extent);
const corrupt = (message: RegExp) =>
  expect.objectContaining({ code: "CORRUPT", message: expect.stringMatching(message) });

test("as it was written, it is whole", () => {
  const whole = crafted(() => undefined);
  expect(footerOf(whole)).toMatchObject({ firstCell: 3, cells: 3 });
  expect([0, 1, 2].map((i) => footerOf(whole).entry(i))).toMatchObject([
    { offset: 0, length: 10, rawLength: 10, encoding: 0 },
    { offset: 10, length: 0 },
    { offset: 10, length: 25 },
  ]);
  expect(audit(whole)).toMatchObject({ rawBytes: 35, undecoded: 0, lineage: undefined });
  const lineage = encodeLineage([{ source: "a", id: "b", tokens: 3 }]);
  expect(audit(crafted(() => undefined, lineage)).lineage).toEqual([{ source: "a", id: "b", tokens: 3 }]);
});

test("bytes between the table and the trailer", () => {
  const longer = crafted((bytes) =>
    Buffer.concat([bytes.subarray(0, -trailerBytes), Buffer.alloc(8), bytes.subarray(-trailerBytes)]),
  );
  expect(() => footerOf(longer)).toThrow(corrupt(/slice table has the wrong length/));
});

test("a table of another length than its cells", () => {
  const wrong = crafted((bytes) => void bytes.writeUInt32LE(4 * entryBytes, at(bytes, 24)));
  expect(() => decodeTrailer(wrong[0].subarray(-trailerBytes), "it", namespace)).toThrow(
    corrupt(/slice table has the wrong length/),
  );
});

test("metadata that does not end where the table begins", () => {
  for (const by of [-1, 1]) {
    const wrong = crafted((bytes) => void bytes.writeUInt32LE(bytes.readUInt32LE(at(bytes, 8)) + by, at(bytes, 8)));
    expect(() => decodeTrailer(wrong[0].subarray(-trailerBytes), "it", namespace)).toThrow(
      corrupt(/metadata does not end/),
    );
  }
});

test("a slice that reaches into the metadata, and one that only touches it", () => {
  const data = stored().extent.table;
  const metadataAt = slices.reduce((sum, slice) => sum + slice.length, 0);
  expect(metadataAt).toBeLessThan(data);
  for (const [offset, fits] of [
    [metadataAt - 25, true],
    [metadataAt - 24, false],
  ] as const) {
    const object = crafted((bytes, { table }) => void bytes.writeBigUInt64LE(BigInt(offset), table + 2 * entryBytes));
    if (fits) expect(footerOf(object).entry(2).offset).toBe(offset);
    else expect(() => footerOf(object).entry(2)).toThrow(corrupt(/slice 5 lies outside/));
  }
});

test("slices that do not follow each other, or leave a gap before the metadata", () => {
  const moved = crafted((bytes, { table }) => {
    bytes.writeBigUInt64LE(9n, table + entryBytes);
  });
  expect(() => audit(moved)).toThrow(corrupt(/slice 4 does not follow/));
  const shorter = crafted((bytes, { table }) => {
    bytes.writeUInt32LE(24, table + 2 * entryBytes + 8);
    bytes.writeUInt32LE(crc32(bytes.subarray(10, 34)), table + 2 * entryBytes + 12);
    bytes.writeUInt32LE(24, table + 2 * entryBytes + 16);
  });
  expect(() => audit(shorter)).toThrow(corrupt(/bytes between its slices and its metadata/));
});

test("an extent that is another's: its place, its cells, its object, its batch", () => {
  const { bytes, extent } = stored();
  const decode = (more: Partial<Extent>, where: Partial<typeof place> = {}, who: Partial<BatchName> = {}) =>
    decodeFooter(
      bytes.subarray(extent.table),
      "it",
      namespace,
      { ...name, ...who },
      { ...place, ...where },
      { ...extent, ...more },
    );
  expect(() => decode({}, { firstCell: 4 })).toThrow(corrupt(/another extent/));
  expect(() => decode({ cells: 2 })).toThrow(corrupt(/another extent/));
  expect(() => decode({}, { extent: 2 })).toThrow(corrupt(/it is extent 1, expected 2/));
  expect(() => decode({}, {}, { seq: asSeq(8) })).toThrow(corrupt(/another batch/));
  expect(() => decode({ check: extent.check + 1 })).toThrow(corrupt(/does not match the commit/));
  expect(() => decode({ size: extent.size + 1 })).toThrow(corrupt(/its footer has/));
  expect(decode({}, {}, { attempt: 5, base: asVersion(1) }).cells).toBe(3);
});

test("a slice is as long as its entry says, and its checksum is its own", () => {
  const entry = { offset: 0, length: 10, crc: crc32(slices[0] as Uint8Array), rawLength: 10, encoding: 0 };
  checkSlice(slices[0] as Uint8Array, "it", entry);
  expect(() =>
    checkSlice((slices[0] as Uint8Array).subarray(1), "it", {
      ...entry,
      crc: crc32((slices[0] as Uint8Array).subarray(1)),
    }),
  ).toThrow(corrupt(/a slice has 9 bytes/));
  expect(() => checkSlice(slices[0] as Uint8Array, "it", { ...entry, crc: 7 })).toThrow(
    corrupt(/does not match its checksum/),
  );
});

test("objects below 256 KiB are as long as they need; from there on they end with a whole block of 4 KiB", () => {
  const sizeOf = (length: number): number => {
    const { entry } = encodeExtent(namespace, name, place, [encodeSlice(new Uint8Array(length), "none")], {});
    return entry.size;
  };
  const rest = sizeOf(0);
  for (const [length, size] of [
    [262_143 - rest, 262_143],
    [262_144 - rest, 262_144],
    [262_145 - rest, 266_240],
    [266_240 - rest, 266_240],
    [266_241 - rest, 270_336],
  ] as const)
    expect(sizeOf(length)).toBe(size);
});

test("parts and lanes: 1 to 4,096, and parts go with the order of commits", () => {
  const given = (fields: object) => ({ grid: { rows: 1, chunks: 1 }, order: { kind: "commit" }, ...fields }) as never;
  const lanes = (n: number) => ({ order: { kind: "lanes", lanes: n } });
  for (const fits of [{}, { parts: 1 }, { parts: 4_096 }, lanes(1), lanes(4_096), { ...lanes(2), parts: 1 }])
    expect(() => assertNamespaceSpec(given(fits))).not.toThrow();
  for (const not of [
    { parts: 0 },
    { parts: 1.5 },
    { parts: 4_097 },
    { ...lanes(2), parts: 2 },
    lanes(0),
    lanes(4_097),
    lanes(1.5),
  ])
    expect(() => assertNamespaceSpec(given(not))).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
  const read = (fields: object) =>
    decodeNamespace(sealJson("namespace", namespace, { ...(given(fields) as object), created: 1 }), "it");
  expect([read({ parts: 1 }).parts, read({ parts: 4_096 }).parts, read({}).parts]).toEqual([1, 4_096, undefined]);
  expect(read(lanes(4_096)).order).toEqual({ kind: "lanes", lanes: 4_096 });
  for (const not of [{ parts: 0 }, { parts: 4_097 }, lanes(0), lanes(4_097)])
    expect(() => read(not)).toThrow(expect.objectContaining({ code: "CORRUPT" }));
});

test("a batch whose extents do not fit into a name is not announced; those beside it are", () => {
  const extent = { cells: 1, size: 4_000_000_123, table: 4_000_000_019, check: 4_000_000_001 };
  const batch = (seq: number, extents: number): Descriptor => ({
    ...name,
    seq: asSeq(seq),
    extents: Array(extents).fill(extent),
  });
  const { keys, unnamed } = batchIntents(namespace, [batch(1, 1), batch(2, 400), batch(3, 1), batch(4, 1)]);
  expect(unnamed.map(({ seq }) => seq)).toEqual([2]);
  expect(keys).toHaveLength(2);
});

test("a tensor cannot be called what the metadata is called, and a header has a limit", () => {
  const tensor = { dtype: "U8", shape: [1], data: new Uint8Array(1) } as const;
  expect(() => encodeSafetensors({ __metadata__: tensor })).toThrow(
    expect.objectContaining({ code: "INVALID_ARGUMENT" }),
  );
  expect(() => encodeSafetensors({ a: tensor }, { long: "x".repeat(100_000_000) })).toThrow(/header takes/);
});

test("a batch has 1 to 1,000 extents", () => {
  const encoded = (n: number) =>
    encodeDescriptor({ ...name, extents: Array(n).fill({ cells: 1, size: 300, table: 100, check: 1 }) });
  expect(decodeDescriptor(encoded(1_000), "it").extents).toHaveLength(1_000);
  expect(decodeDescriptor(encoded(1), "it").extents).toHaveLength(1);
  for (const n of [0, 1_001]) expect(() => decodeDescriptor(encoded(n), "it")).toThrow(corrupt(/extents/));
});

test("a header of tensors is an object", () => {
  const file = (json: string): Uint8Array => {
    const bytes = Buffer.alloc(8 + json.length);
    bytes.writeBigUInt64LE(BigInt(json.length), 0);
    bytes.write(json, 8);
    return bytes;
  };
  expect(decodeSafetensors(file("{}"), "it").tensors.size).toBe(0);
  const entry = (fields: object): string =>
    JSON.stringify({ a: { dtype: "U8", shape: [0], data_offsets: [0, 0], ...fields } });
  expect(decodeSafetensors(file(entry({})), "it").tensors.size).toBe(1);
  for (const wrong of [
    { dtype: "X9" },
    { dtype: 5 },
    { dtype: "toString" },
    { shape: [-1] },
    { shape: 3 },
    { shape: ["1"] },
    { data_offsets: [0] },
    { data_offsets: [0, 1] },
    { data_offsets: [1, 0] },
  ])
    expect(() => decodeSafetensors(file(entry(wrong)), "it")).toThrow(
      expect.objectContaining({ code: expect.any(String) }),
    );
  for (const json of ["null", "3", '"x"', "true", "{", ""])
    expect(() => decodeSafetensors(file(json), "it")).toThrow(expect.objectContaining({ code: expect.any(String) }));
});

test("slices that are joined are those of whole rows", () => {
  const one = {
    tensors: new Map([["a", { dtype: "U8", shape: [1], data: new Uint8Array(1) }]]),
    metadata: {},
  } as const;
  const joined = (files: number, rows: number): unknown => {
    try {
      return joinTensors(Array(files).fill(one) as never, rows, {}).get("a") !== undefined;
    } catch (error) {
      return (error as { code?: string }).code;
    }
  };
  expect([joined(1, 1), joined(2, 2)]).toEqual([true, true]);
  for (const [files, rows] of [
    [0, 1],
    [3, 2],
    [1, 0],
    [2, 1.5],
    [1, -1],
  ] as const)
    expect([files, rows, joined(files, rows)]).toEqual([files, rows, "INVALID_ARGUMENT"]);
});

test("JSON may have any blanks, and a name once", () => {
  const read = (json: string): unknown => parseJson(Buffer.from(json));
  for (const blank of ["", " ", "\n", "\r", "\t", " \t\r\n "]) {
    expect(read(`{${blank}"a"${blank}:${blank}{"b"${blank}:1},"c":["d"]}`)).toEqual({ a: { b: 1 }, c: ["d"] });
    expect(() => read(`{"a"${blank}:1,"a"${blank}:2}`)).toThrow("twice");
    expect(() => read(`[{"a":1,"b"${blank}:{"b":1,"b":2}}]`)).toThrow("twice");
  }
  expect(read('{"a\\\\":1,"b\\"":"\\\\","c":":"}')).toEqual({ "a\\": 1, 'b"': "\\", c: ":" });
  expect([read("[]"), read("null"), read('"a"'), read("[null,[{}]]")]).toEqual([[], null, "a", [null, [{}]]]);
});

test("lineage is as long as it says", () => {
  const block = Buffer.from(encodeLineage([{ source: "a", id: "b", tokens: 3 }]));
  expect(decodeLineage(block, "it")).toHaveLength(1);
  for (const by of [-1, 1]) {
    const wrong = Buffer.from(block);
    wrong.writeUInt32LE(wrong.readUInt32LE(8) + by, 8);
    wrong.writeUInt32LE(crc32(wrong.subarray(16), crc32(wrong.subarray(0, 12))), 12);
    expect(() => decodeLineage(wrong, "it")).toThrow(corrupt(/lineage/));
  }
  for (const sample of [{ source: 1 }, { id: 1 }, { tokens: -1 }, { tokens: 1.5 }, { row: -1 }, { row: "1" }])
    expect(() => encodeLineage([{ source: "a", id: "b", tokens: 1, ...sample } as never])).toThrow(
      expect.objectContaining({ code: "INVALID_ARGUMENT" }),
    );
});

test("an encoding that is not known is said to be so, by writers and readers", () => {
  const entry = { offset: 0, length: 3, crc: 0, rawLength: 3, encoding: 7 };
  const unsupported = expect.objectContaining({ code: "UNSUPPORTED_ENCODING" });
  expect(() => decodeSlice(new Uint8Array(3), "it", entry)).toThrow(unsupported);
  expect(() => encodeSlice(new Uint8Array(3), "brotli" as never)).toThrow(unsupported);
  expect(decodeSlice(new Uint8Array(3), "it", { ...entry, encoding: 0 })).toHaveLength(3);
  expect(() => decodeSlice(new Uint8Array(4), "it", { ...entry, encoding: 0 })).toThrow(corrupt(/4 bytes, expected 3/));
  expect(decodeSlice(new Uint8Array(11), "it", { ...entry, encoding: 2 })).toHaveLength(3);
  expect(() => decodeSlice(new Uint8Array(12), "it", { ...entry, encoding: 2 })).toThrow(
    corrupt(/4 bytes, expected 3/),
  );
});
