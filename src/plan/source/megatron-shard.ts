/** Megatron's indexed datasets: `x.idx` says where each sequence of tokens lies in `x.bin`. Only the part of the index that a window needs is read. */
import { BatchWeaveError } from "../../index.js";
import { openShardBytes, type ShardBytes } from "./shard-bytes.js";
import type { ShardPart } from "./shard-part.js";
import {
  assertSize,
  type RawSample,
  type ShardFormat,
  type ShardPlace,
  type ShardReader,
  type ShardWindow,
  type WindowLimits,
} from "./shard-reader.js";

const magic = "MMIDIDX\0\0";
const headerBytes = 34;
/** Bytes of a token and how to read one, by the dtype codes of the format. */
const dtypes: Readonly<Record<number, { bytes: number; read(view: DataView, at: number): number }>> = {
  1: { bytes: 1, read: (view, at) => view.getUint8(at) },
  2: { bytes: 1, read: (view, at) => view.getInt8(at) },
  3: { bytes: 2, read: (view, at) => view.getInt16(at, true) },
  4: { bytes: 4, read: (view, at) => view.getInt32(at, true) },
  5: { bytes: 8, read: (view, at) => Number(view.getBigInt64(at, true)) },
  8: { bytes: 2, read: (view, at) => view.getUint16(at, true) },
};

/** A sequence of token ids. */
export interface MegatronSample {
  readonly tokens: Int32Array;
}

interface Header {
  readonly sequences: number;
  readonly dtype: (typeof dtypes)[number];
}

class MegatronReader implements ShardReader {
  readonly #idx: ShardBytes;
  readonly #bin: ShardBytes;
  readonly #header: Header;

  constructor(idx: ShardBytes, bin: ShardBytes, header: Header) {
    this.#idx = idx;
    this.#bin = bin;
    this.#header = header;
  }

  /** A place, like the id of a sample, is the number of a sequence. */
  async read(
    place: ShardPlace | undefined,
    limits: WindowLimits,
    part: ShardPart,
    signal?: AbortSignal,
  ): Promise<ShardWindow> {
    assertSize(this.#bin.uri, this.#bin.size, part);
    const { sequences, dtype } = this.#header;
    const at = (byte: number): number => Math.floor((byte / part.size) * sequences);
    const end = part.to === part.size ? sequences : at(part.to);
    const from = (place as number | undefined) ?? at(part.from);
    const count = Math.min(limits.samplesMax, end - from);
    if (count <= 0) return { samples: [], next: undefined };
    const lengths = viewOf(await this.#idx.read(headerBytes + 4 * from, 4 * count, signal));
    const pointers = viewOf(await this.#idx.read(headerBytes + 4 * sequences + 8 * from, 8 * count, signal));
    if (lengths.byteLength < 4 * count || pointers.byteLength < 8 * count)
      throw damaged(this.#idx.uri, "it ends too early");
    const samples: RawSample[] = [];
    let taken = 0;
    for (let i = 0; i < count && taken < limits.bytesMax; i++) {
      const length = lengths.getInt32(4 * i, true);
      const start = Number(pointers.getBigInt64(8 * i, true));
      const bytes = viewOf(await this.#bin.read(start, length * dtype.bytes, signal));
      if (bytes.byteLength < length * dtype.bytes) throw damaged(this.#bin.uri, `it ends inside sequence ${from + i}`);
      let large: number | undefined;
      const tokens = Int32Array.from({ length }, (_, t) => {
        const token = dtype.read(bytes, t * dtype.bytes);
        if (token !== (token | 0)) large ??= token;
        return token;
      });
      const read =
        large === undefined
          ? { value: { tokens } satisfies MegatronSample }
          : { error: `the token ${large} does not fit 32 bits` };
      samples.push({ id: String(from + i), bytes: tokens.byteLength, ...read });
      taken += tokens.byteLength;
    }
    const next = from + samples.length;
    return { samples, next: next < end ? next : undefined };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#idx[Symbol.asyncDispose]();
    await this.#bin[Symbol.asyncDispose]();
  }
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function damaged(uri: string, what: string): BatchWeaveError {
  return new BatchWeaveError("CORRUPT", `${uri} is not a whole Megatron dataset: ${what}.`, { uri, what });
}

function parseHeader(bytes: Uint8Array, uri: string): Header {
  const view = viewOf(bytes);
  if (bytes.length < headerBytes || Buffer.from(bytes).toString("latin1", 0, 9) !== magic)
    throw damaged(uri, "its index does not begin with MMIDIDX");
  if (view.getBigUint64(9, true) !== 1n)
    throw damaged(uri, `its index has version ${view.getBigUint64(9, true)}, not 1`);
  const dtype = dtypes[view.getUint8(17)];
  if (!dtype) throw damaged(uri, `its tokens have dtype ${view.getUint8(17)}, which is no kind of integer`);
  return { sequences: Number(view.getBigUint64(18, true)), dtype };
}

function prefixOf(uri: string): string {
  return uri.replace(/\.(bin|idx)$/, "");
}

/** Megatron `.bin/.idx` pairs; a shard is named by its prefix, or by either file. */
export const megatronFormat: ShardFormat = {
  name: "megatron",
  division: () => "anywhere",
  files: (uri) => [`${prefixOf(uri)}.bin`, `${prefixOf(uri)}.idx`],
  async open(uri, access) {
    const prefix = prefixOf(uri);
    const idx = await openShardBytes(`${prefix}.idx`, access);
    try {
      const header = parseHeader(await idx.read(0, headerBytes), idx.uri);
      return new MegatronReader(idx, await openShardBytes(`${prefix}.bin`, access), header);
    } catch (error) {
      await idx[Symbol.asyncDispose]();
      throw error;
    }
  },
};
