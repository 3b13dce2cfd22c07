/** How the bytes of a slice are stored: as they are, or compressed where the platform can. */
import * as zlib from "node:zlib";
import { BatchWeaveError, shown } from "../errors.js";
import { type SliceEncoding, type SliceEntry, type StoredSlice, sliceBytesMax, sliceEncodings } from "./batch.js";
import { sealBytes } from "./seal.js";
import { corrupt } from "./shape.js";

interface Zstd {
  readonly zstdCompressSync?: (bytes: Uint8Array) => Buffer;
  readonly zstdDecompressSync?: (bytes: Uint8Array, options: { maxOutputLength: number }) => Buffer;
}

/** Node's own zstd came with 22.15; its types are not in the oldest Node that we support. */
const platform = zlib as unknown as Zstd;

/** Encodings that this platform can write and read. */
export const availableEncodings: readonly SliceEncoding[] =
  platform.zstdCompressSync && platform.zstdDecompressSync ? ["none", "zstd"] : ["none"];

/** A slice of an encoding that the format knows and this platform has no decoder for: no damage. */
export function isUnavailable({ encoding }: Pick<SliceEntry, "encoding">): boolean {
  const name = sliceEncodings[encoding];
  return name === "zstd" && !availableEncodings.includes(name);
}

/** Encodes a slice. One that compression does not make smaller is stored as it is. */
export function encodeSlice(bytes: Uint8Array, encoding: SliceEncoding): StoredSlice {
  if (bytes.length > sliceBytesMax) {
    throw new BatchWeaveError(
      "LIMIT",
      `A slice has ${bytes.length} bytes; at most ${sliceBytesMax} are possible. Use a finer grid.`,
      { found: bytes.length, limit: sliceBytesMax },
    );
  }
  const plain: StoredSlice = { bytes, rawLength: bytes.length, encoding: sliceEncodings.indexOf("none") };
  if (encoding === "none") return plain;
  if (encoding !== "zstd" || !platform.zstdCompressSync)
    throw unsupported("This slice", encoding === "zstd" ? encoding : shown(encoding));
  const stored = platform.zstdCompressSync(bytes);
  return stored.length < bytes.length
    ? { bytes: stored, rawLength: bytes.length, encoding: sliceEncodings.indexOf("zstd") }
    : plain;
}

/** The bytes of a slice whose stored bytes passed their checksum. Those stored as they are, are not copied. */
export function decodeSlice(stored: Uint8Array, where: string, entry: SliceEntry): Uint8Array {
  const encoding = sliceEncodings[entry.encoding];
  if (encoding === "none" || encoding === "sealed") {
    const length = stored.length - (encoding === "none" ? 0 : sealBytes);
    if (length === entry.rawLength) return encoding === "none" ? stored : stored.subarray(0, length);
    return corrupt(where, `a slice has ${length} bytes, expected ${entry.rawLength}`, { offset: entry.offset });
  }
  if (encoding !== "zstd" || !platform.zstdDecompressSync)
    throw unsupported(`A slice of ${where}`, encoding ?? `number ${entry.encoding}`, { key: where, ...entry });
  let raw: Buffer;
  try {
    // The limit keeps a few bytes from becoming gigabytes. Zero is not allowed there.
    raw = platform.zstdDecompressSync(stored, { maxOutputLength: Math.max(1, entry.rawLength) });
  } catch {
    return corrupt(where, "a slice cannot be decompressed", { offset: entry.offset });
  }
  if (raw.length === entry.rawLength) return raw;
  return corrupt(where, `a slice decompresses to ${raw.length} bytes, expected ${entry.rawLength}`, {
    offset: entry.offset,
  });
}

function unsupported(what: string, encoding: string, details: Record<string, unknown> = {}): BatchWeaveError {
  const remedy =
    encoding === "zstd"
      ? 'which needs Node 22.15 or newer. Run it there, or write with encoding "none".'
      : `which this BatchWeave does not know (it knows none and zstd). Install a newer version.`;
  return new BatchWeaveError("UNSUPPORTED_ENCODING", `${what} has the encoding ${encoding}, ${remedy}`, {
    encoding,
    available: availableEncodings,
    ...details,
  });
}
