/**
 * WebDataset: tar archives in which consecutive files with the same name up to the first dot are one sample. Read at any header by range, so
 * that a window costs one request and a restart seeks; stream parsers keep no places, which is why none is used. ustar, pax and GNU names.
 */
import { BatchWeaveError } from "../../index.js";
import { openShardBytes, ReadAhead, type ShardBytes } from "./shard-bytes.js";
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

const blockBytes = 512;

/** A sample of a WebDataset: its key, and its files by extension (`jpg`, `cls.txt`). */
export interface TarSample {
  readonly key: string;
  readonly files: Readonly<Record<string, Uint8Array>>;
}

interface TarFile {
  readonly name: string;
  readonly at: number;
  readonly dataAt: number;
  readonly size: number;
  /** Where the next header is. */
  readonly next: number;
}

class TarReader implements ShardReader {
  readonly #bytes: ShardBytes;
  readonly #ahead: ReadAhead;

  constructor(bytes: ShardBytes) {
    this.#bytes = bytes;
    this.#ahead = new ReadAhead(bytes, 1_048_576);
  }

  get heldBytes(): number {
    return this.#ahead.heldBytes;
  }

  /** A place is the byte of a header. The id of a sample is its key. */
  async read(
    place: ShardPlace | undefined,
    limits: WindowLimits,
    part: ShardPart,
    signal?: AbortSignal,
  ): Promise<ShardWindow> {
    assertSize(this.#bytes.uri, this.#bytes.size, part);
    const samples: RawSample[] = [];
    let at = (place as number | undefined) ?? 0;
    let file = await this.#file(at, signal);
    for (let taken = 0; file && samples.length < limits.samplesMax && taken < limits.bytesMax; ) {
      const key = keyOf(file.name);
      const files: Record<string, Uint8Array> = {};
      let bytes = 0;
      for (; file && keyOf(file.name) === key; file = await this.#file(at, signal)) {
        files[file.name.slice(key.length + 1)] = Uint8Array.from(await this.#data(file, signal));
        bytes += file.size;
        at = file.next;
      }
      samples.push({ id: key, bytes, value: { key, files } satisfies TarSample });
      taken += bytes;
    }
    return { samples, next: file ? file.at : undefined };
  }

  async #data({ dataAt, size, name }: TarFile, signal: AbortSignal | undefined): Promise<Uint8Array> {
    const data = await this.#ahead.slice(dataAt, size, signal);
    if (data.length < size) throw this.#damaged(`it ends inside ${name}`);
    return data;
  }

  /** The next regular file at or after `at`; undefined at the end of the archive. */
  async #file(at: number, signal: AbortSignal | undefined): Promise<TarFile | undefined> {
    let [header, longName]: [number, string | undefined] = [at, undefined];
    for (;;) {
      const block = await this.#ahead.slice(header, blockBytes, signal);
      // An archive that was cut between two files looks whole but for its last blocks.
      if (block.length === 0) throw this.#damaged("it ends without the empty blocks that close an archive");
      if (block.every((byte) => byte === 0)) return undefined;
      if (block.length < blockBytes) throw this.#damaged("it ends inside a header");
      this.#check(block);
      const size = numberAt(block, 124, 12);
      const type = String.fromCharCode(block[156] as number);
      const dataAt = header + blockBytes;
      const next = dataAt + Math.ceil(size / blockBytes) * blockBytes;
      if (type === "0" || type === "\0") {
        return { name: longName ?? nameOf(block), at, dataAt, size, next };
      }
      if (type === "L" || type === "x") {
        const text = textAt(await this.#data({ name: "a long name", at, dataAt, size, next }, signal), 0, size);
        longName = type === "L" ? text : (/(?:^|\n)\d+ path=([^\n]*)/.exec(text)?.[1] ?? longName);
      } else {
        longName = undefined;
        // A place must not point into the middle of a name and its file; past a folder it may.
        at = next;
      }
      header = next;
    }
  }

  #check(block: Uint8Array): void {
    let sum = 8 * 32;
    for (let i = 0; i < blockBytes; i++) if (i < 148 || i >= 156) sum += block[i] as number;
    if (sum !== numberAt(block, 148, 8)) throw this.#damaged("a header does not match its checksum");
  }

  #damaged(what: string): BatchWeaveError {
    const { uri } = this.#bytes;
    return new BatchWeaveError("CORRUPT", `${uri} cannot be read as tar: ${what}. It is damaged or cut short.`, {
      uri,
      what,
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve(this.#bytes[Symbol.asyncDispose]());
  }
}

function textAt(block: Uint8Array, start: number, length: number): string {
  const field = block.subarray(start, start + length);
  const end = field.indexOf(0);
  return Buffer.from(end === -1 ? field : field.subarray(0, end)).toString("utf8");
}

/** Octal text, or base 256 for sizes beyond 8 GiB. */
function numberAt(block: Uint8Array, start: number, length: number): number {
  if (((block[start] as number) & 0x80) === 0) return Number.parseInt(textAt(block, start, length).trim() || "0", 8);
  let value = (block[start] as number) & 0x7f;
  for (let i = 1; i < length; i++) value = value * 256 + (block[start + i] as number);
  return value;
}

function nameOf(block: Uint8Array): string {
  const prefix =
    textAt(block, 257, 5) === "ustar" && textAt(block, 257, 8) !== "ustar  " ? textAt(block, 345, 155) : "";
  const name = textAt(block, 0, 100);
  return prefix === "" ? name : `${prefix}/${name}`;
}

/** Up to the first dot of the last segment, as WebDataset has it. */
function keyOf(name: string): string {
  const slash = name.lastIndexOf("/") + 1;
  const dot = name.indexOf(".", slash);
  return dot === -1 ? name : name.slice(0, dot);
}

/** WebDataset archives. */
export const tarFormat: ShardFormat = {
  name: "webdataset",
  division: () => "none",
  async open(uri, access) {
    return new TarReader(await openShardBytes(uri, access));
  },
};
