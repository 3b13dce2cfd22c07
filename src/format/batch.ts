/**
 * Batch objects. Slices in row-major order, contiguous; then lineage (optional), metadata (JSON), the slice table and a trailer:
 *
 *   slices… | lineage | metadata | slice table: 24 bytes per slice | trailer: 80 bytes
 *
 * Ranks read `[table, size)` once, then only their slices. Every byte is under a checksum.
 */
import { createHash } from "node:crypto";
import { crc32 } from "./crc.js";
import type { Extent } from "./descriptor.js";
import { formatVersion, unsupportedFormat, wrongNamespace } from "./json-object.js";
import { parseJson } from "./json-text.js";
import type { BatchName } from "./keys.js";
import { asInteger, asRecord, corrupt } from "./shape.js";

/** One entry of the slice table. */
export interface SliceEntry {
  readonly offset: number;
  /** Stored bytes. */
  readonly length: number;
  /** CRC-32 of the stored bytes. */
  readonly crc: number;
  /** Bytes after decoding. */
  readonly rawLength: number;
  /** Code of {@link sliceEncodings}. */
  readonly encoding: number;
}

/** How a slice is stored: the position in this list is the code in the table. */
export const sliceEncodings = ["none", "zstd", "sealed"] as const;
/** What a producer can ask for; slices of one length are sealed (seal.ts) without being asked. */
export type SliceEncoding = "none" | "zstd";

/** What the metadata block says. Ranks never read it. */
export interface BatchMetadata {
  readonly contentType?: string | undefined;
  readonly resumePoint?: unknown;
  /** What the user attached. */
  readonly user?: unknown;
  readonly [unknown: string]: unknown;
}

/** A block of a batch object: where it is and its CRC-32. */
export interface Block {
  readonly offset: number;
  readonly length: number;
  readonly crc: number;
}

export const entryBytes = 24;
export const trailerBytes = 80;
/** Stored bytes of a slice at most. */
export const sliceBytesMax = 0xffff_ffff;
const magic = "TGB1";
/** Objects of so many bytes and above are padded to whole blocks. */
const paddedBytesMin = 262_144;
const blockBytes = 4_096;

/** A slice ready to be stored. */
export interface StoredSlice {
  readonly bytes: Uint8Array;
  /** Stored behind the bytes. */
  readonly seal?: Uint8Array | undefined;
  /** CRC-32 of all stored bytes, when it is known already. */
  readonly crc?: number | undefined;
  readonly rawLength: number;
  readonly encoding: number;
}

/** Where an extent sits in its batch. */
export interface ExtentPlace {
  readonly extent: number;
  readonly firstCell: number;
}

/** An encoded extent: bodies to store one after another, and its descriptor entry. */
export interface EncodedExtent {
  readonly body: readonly Uint8Array[];
  readonly entry: Extent;
}

/** Encodes one extent. The name's `base` and `attempt` do not take part: uploading again stores the same bytes. */
export function encodeExtent(
  namespace: string,
  name: BatchName,
  place: ExtentPlace,
  slices: readonly StoredSlice[],
  metadata: BatchMetadata,
  lineage?: Uint8Array,
): EncodedExtent {
  const body = slices.flatMap(({ bytes, seal }) => (seal ? [bytes, seal] : bytes.length > 0 ? [bytes] : []));
  let offset = slices.reduce((sum, slice) => sum + storedBytes(slice), 0);
  let described: BatchMetadata = {
    producer: name.producer,
    epoch: name.epoch,
    incarnation: name.incarnation,
    seq: name.seq,
    ...metadata,
  };
  if (lineage) {
    described = { ...described, lineage: { offset, length: lineage.length, crc: crc32(lineage) } };
    body.push(lineage);
    offset += lineage.length;
  }
  const text = JSON.stringify(described);
  const endBytes = slices.length * entryBytes + trailerBytes;
  const metadataBytes = paddedLength(offset, Buffer.byteLength(text), endBytes);
  const ending = Buffer.alloc(metadataBytes + endBytes, " ");
  ending.write(text);
  const table = ending.subarray(metadataBytes, -trailerBytes);
  writeTable(table, slices);
  const metadataBlock = { offset, length: metadataBytes, crc: crc32(ending.subarray(0, metadataBytes)) };
  writeTrailer(ending.subarray(-trailerBytes), namespace, name, place, metadataBlock, table);
  body.push(ending);
  return {
    body,
    entry: {
      cells: slices.length,
      size: offset + ending.length,
      table: offset + metadataBytes,
      check: footerCheck(ending.subarray(metadataBytes)),
    },
  };
}

/** Bytes of the metadata with the spaces behind it: those of large objects end with a whole block, which disks take in one write. */
function paddedLength(offset: number, length: number, endBytes: number): number {
  const size = offset + length + endBytes;
  return size < paddedBytesMin ? length : length + ((blockBytes - (size % blockBytes)) % blockBytes);
}

function storedBytes({ bytes, seal }: StoredSlice): number {
  return bytes.length + (seal?.length ?? 0);
}

function writeTable(table: Buffer, slices: readonly StoredSlice[]): void {
  let offset = 0;
  slices.forEach((slice, i) => {
    const at = i * entryBytes;
    table.writeBigUInt64LE(BigInt(offset), at);
    table.writeUInt32LE(storedBytes(slice), at + 8);
    table.writeUInt32LE(slice.crc ?? crc32(slice.bytes), at + 12);
    table.writeUInt32LE(slice.rawLength, at + 16);
    table.writeUInt32LE(slice.encoding, at + 20);
    offset += storedBytes(slice);
  });
}

function writeTrailer(
  bytes: Buffer,
  namespace: string,
  name: BatchName,
  place: ExtentPlace,
  metadata: Block,
  table: Buffer,
): void {
  bytes.writeBigUInt64LE(BigInt(metadata.offset), 0);
  bytes.writeUInt32LE(metadata.length, 8);
  bytes.writeUInt32LE(metadata.crc, 12);
  bytes.writeBigUInt64LE(BigInt(metadata.offset + metadata.length), 16);
  bytes.writeUInt32LE(table.length, 24);
  bytes.writeUInt32LE(crc32(table), 28);
  uuidBytes(namespace).copy(bytes, 32);
  bytes.writeUInt32LE(place.firstCell, 48);
  bytes.writeUInt32LE(table.length / entryBytes, 52);
  bytes.writeUInt32LE(place.extent, 56);
  bytes.writeUInt32LE(formatVersion, 60);
  identity(name, place.extent).copy(bytes, 64);
  bytes.writeUInt32LE(crc32(bytes.subarray(0, 72)), 72);
  bytes.write(magic, 76, "latin1");
}

function uuidBytes(uuid: string): Buffer {
  return Buffer.from(uuid.replaceAll("-", ""), "hex");
}

/**
 * First 8 bytes of SHA-256 of `<producer>-<epoch>-<seq>-<incarnation>.<extent>`: an object found under another batch's key is
 * noticed. The attempt is left out, so that uploading again under a new name stores the very same bytes.
 */
function identity(name: BatchName, extent: number): Buffer {
  const text = `${name.producer}-${name.epoch}-${name.seq}-${name.incarnation}.${extent}`;
  return createHash("sha256").update(text).digest().subarray(0, 8);
}

/**
 * CRC-32 of `[table, size - 8)`: ties an object to the commit. It stops before the trailer's own checksum, because a CRC that
 * runs over some bytes and their CRC comes out the same whatever those bytes are.
 */
export function footerCheck(footer: Uint8Array): number {
  return crc32(footer.subarray(0, Math.max(0, footer.length - 8)));
}

/** What the end of a batch object says. */
export interface Footer {
  readonly firstCell: number;
  readonly cells: number;
  readonly metadata: Block;
  readonly tableOffset: number;
  /** Entry of the i-th slice of this extent. */
  entry(i: number): SliceEntry;
}

/**
 * Decodes the bytes `[extent.table, extent.size)` of a batch object. `extent` is the descriptor's: its check ties the
 * object to the commit.
 */
export function decodeFooter(
  bytes: Uint8Array,
  where: string,
  namespace: string,
  name: BatchName,
  place: ExtentPlace,
  extent: Extent,
): Footer {
  const expected = extent.size - extent.table;
  if (bytes.length !== expected)
    corrupt(where, `its footer has ${bytes.length} bytes, expected ${expected}`, { offset: extent.table });
  const found = footerCheck(bytes);
  if (found !== extent.check)
    corrupt(where, "its footer does not match the commit", { offset: extent.table, expected: extent.check, found });
  const trailer = decodeTrailer(bytes.subarray(bytes.length - trailerBytes), where, namespace);
  if (trailer.tableOffset !== extent.table || trailer.cells !== extent.cells || trailer.firstCell !== place.firstCell)
    corrupt(where, "its footer describes another extent");
  if (trailer.extent !== place.extent) corrupt(where, `it is extent ${trailer.extent}, expected ${place.extent}`);
  if (!trailer.identity.equals(identity(name, place.extent))) corrupt(where, "it is another batch's object");
  if (trailer.cells * entryBytes + trailerBytes !== expected) corrupt(where, "its slice table has the wrong length");
  const table = new DataView(bytes.buffer, bytes.byteOffset, trailer.cells * entryBytes);
  return {
    firstCell: trailer.firstCell,
    cells: trailer.cells,
    metadata: trailer.metadata,
    tableOffset: extent.table,
    entry: (i) => {
      const entry = readEntry(table, i);
      if (entry.offset + entry.length > trailer.metadata.offset)
        corrupt(where, `slice ${trailer.firstCell + i} lies outside its data`, { offset: entry.offset });
      return entry;
    },
  };
}

function readEntry(table: DataView, i: number): SliceEntry {
  const at = i * entryBytes;
  return {
    offset: Number(table.getBigUint64(at, true)),
    length: table.getUint32(at + 8, true),
    crc: table.getUint32(at + 12, true),
    rawLength: table.getUint32(at + 16, true),
    encoding: table.getUint32(at + 20, true),
  };
}

/** The fixed-size end of a batch object. */
export interface Trailer {
  readonly metadata: Block;
  readonly tableOffset: number;
  readonly tableLength: number;
  readonly tableCrc: number;
  readonly firstCell: number;
  readonly cells: number;
  readonly extent: number;
  readonly identity: Buffer;
}

/** Decodes the last 80 bytes of a batch object. */
export function decodeTrailer(bytes: Uint8Array, where: string, namespace: string): Trailer {
  if (bytes.length !== trailerBytes) corrupt(where, "it is too short to be a batch");
  const b = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  if (b.toString("latin1", 76) !== magic) corrupt(where, "it does not end like a batch");
  if (crc32(b.subarray(0, 72)) !== b.readUInt32LE(72)) corrupt(where, "its trailer's checksum does not match");
  if (b.readUInt32LE(60) !== formatVersion) throw unsupportedFormat(where, b.readUInt32LE(60));
  if (!b.subarray(32, 48).equals(uuidBytes(namespace)))
    throw wrongNamespace(where, b.subarray(32, 48).toString("hex"), namespace);
  const trailer: Trailer = {
    metadata: { offset: Number(b.readBigUInt64LE(0)), length: b.readUInt32LE(8), crc: b.readUInt32LE(12) },
    tableOffset: Number(b.readBigUInt64LE(16)),
    tableLength: b.readUInt32LE(24),
    tableCrc: b.readUInt32LE(28),
    firstCell: b.readUInt32LE(48),
    cells: b.readUInt32LE(52),
    extent: b.readUInt32LE(56),
    identity: b.subarray(64, 72),
  };
  if (trailer.tableLength !== trailer.cells * entryBytes) corrupt(where, "its slice table has the wrong length");
  if (trailer.metadata.offset + trailer.metadata.length !== trailer.tableOffset)
    corrupt(where, "its metadata does not end where its slice table begins");
  return trailer;
}

/** Decodes the metadata block. */
export function decodeMetadata(bytes: Uint8Array, where: string, block: Block): BatchMetadata {
  checkBlock(bytes, where, block, "metadata");
  let value: unknown;
  try {
    value = parseJson(bytes);
  } catch {
    return corrupt(where, "its metadata is not JSON, or a name in it occurs twice");
  }
  return asRecord(value, where, "metadata") as BatchMetadata;
}

/** Where the lineage block is, if the batch has one; {@link checkBlock} and `decodeLineage` read it. */
export function lineageBlock(metadata: BatchMetadata, where: string): Block | undefined {
  if (metadata["lineage"] === undefined) return undefined;
  const block = asRecord(metadata["lineage"], where, "metadata.lineage");
  return {
    offset: asInteger(block["offset"], where, "lineage.offset"),
    length: asInteger(block["length"], where, "lineage.length"),
    crc: asInteger(block["crc"], where, "lineage.crc"),
  };
}

/** Checks the bytes of a block. */
export function checkBlock(bytes: Uint8Array, where: string, block: Block, what: string): void {
  if (bytes.length !== block.length || crc32(bytes) !== block.crc)
    corrupt(where, `its ${what} does not match its checksum`, { offset: block.offset });
}

/** Checks a slice's bytes against its entry. */
export function checkSlice(bytes: Uint8Array, where: string, entry: SliceEntry): void {
  if (bytes.length !== entry.length)
    corrupt(where, `a slice has ${bytes.length} bytes, expected ${entry.length}`, { offset: entry.offset });
  const found = crc32(bytes);
  if (found !== entry.crc)
    corrupt(where, "a slice does not match its checksum", { offset: entry.offset, expected: entry.crc, found });
}
