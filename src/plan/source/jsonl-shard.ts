/** JSON lines, plain or gzip. A plain shard is read at any byte; a compressed one from its beginning, keeping its place as long as it can. */
import { createGunzip } from "node:zlib";
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

const newline = 10;
/** Bytes of one line at most. */
const lineBytesMax = 268_435_456;

function parseLine(line: Uint8Array, id: string): RawSample {
  const text = Buffer.from(line.buffer, line.byteOffset, line.byteLength).toString("utf8");
  try {
    return { id, bytes: 2 * text.length + 64, value: JSON.parse(text) as unknown };
  } catch (error) {
    return { id, bytes: text.length, error: `not JSON: ${(error as Error).message}` };
  }
}

/** A first line without the byte order mark that some editors and exports put before it. Places still count its bytes. */
const withoutMark = (line: Uint8Array): Uint8Array =>
  line[0] === 0xef && line[1] === 0xbb && line[2] === 0xbf ? line.subarray(3) : line;

const isBlank = (line: Uint8Array): boolean => line.every((byte) => byte === 32 || byte === 9 || byte === 13);

class PlainLines implements ShardReader {
  readonly #bytes: ShardBytes;
  readonly #ahead: ReadAhead;

  constructor(bytes: ShardBytes) {
    this.#bytes = bytes;
    this.#ahead = new ReadAhead(bytes);
  }

  get heldBytes(): number {
    return this.#ahead.heldBytes;
  }

  /** A place is the byte at which a line begins; so is the id of a sample. A line belongs to the part in which it begins. */
  async read(
    place: ShardPlace | undefined,
    limits: WindowLimits,
    part: ShardPart,
    signal?: AbortSignal,
  ): Promise<ShardWindow> {
    assertSize(this.#bytes.uri, this.#bytes.size, part);
    const samples: RawSample[] = [];
    const end = Math.min(part.to, this.#bytes.size);
    let at = (place as number | undefined) ?? (await this.#firstLine(part.from, end, signal));
    for (let taken = 0; at < end && samples.length < limits.samplesMax && taken < limits.bytesMax; ) {
      const line = await this.#line(at, end, signal);
      const text = at === 0 ? withoutMark(line) : line;
      if (!isBlank(text)) samples.push(parseLine(text, String(at)));
      taken += line.length;
      at += line.length + 1;
    }
    return { samples, next: at < end ? at : undefined };
  }

  /** Where the first line begins that begins at or after `from`: behind the newline that ends what the part before has. */
  async #firstLine(from: number, end: number, signal: AbortSignal | undefined): Promise<number> {
    if (from === 0) return 0;
    const rest = await this.#line(from - 1, end, signal);
    return from - 1 + rest.length + 1;
  }

  /** The line at `at`, without its newline. Reads in large steps up to the end of the part, and in small ones beyond: others read those bytes too. */
  async #line(at: number, end: number, signal: AbortSignal | undefined): Promise<Uint8Array> {
    for (let [scanned, beyond] = [0, 4_096]; ; ) {
      const piece = this.#ahead.held(at);
      const length = piece.indexOf(newline, scanned);
      if (length !== -1) return piece.subarray(0, length);
      const until = at + piece.length;
      if (until >= this.#bytes.size) return piece;
      scanned = piece.length;
      const step = until < end ? Math.min(end - until, Math.max(this.#ahead.stepBytes, scanned)) : beyond;
      if (until >= end) beyond *= 4;
      await this.#ahead.extend(at, until + step, signal);
      if (scanned > lineBytesMax)
        throw new BatchWeaveError(
          "LIMIT",
          `A line of ${this.#bytes.uri} at byte ${at} is longer than ${lineBytesMax} bytes.`,
          {
            uri: this.#bytes.uri,
            at,
          },
        );
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve(this.#bytes[Symbol.asyncDispose]());
  }
}

/** Lines of a compressed shard, in order. */
async function* gunzipLines(bytes: ShardBytes): AsyncGenerator<Uint8Array> {
  const gunzip = createGunzip();
  const feed = async (): Promise<void> => {
    for (let at = 0; at < bytes.size && !gunzip.destroyed; at += 262_144) {
      const piece = await bytes.read(at, 262_144);
      if (!gunzip.write(piece)) await new Promise((resolve) => gunzip.once("drain", resolve).once("close", resolve));
    }
    gunzip.end();
  };
  feed().catch((error: Error) => gunzip.destroy(error));
  let rest: Buffer = Buffer.alloc(0);
  try {
    for await (const chunk of gunzip as AsyncIterable<Buffer>) {
      let from = 0;
      for (let end = chunk.indexOf(newline); end !== -1; end = chunk.indexOf(newline, from)) {
        const piece = chunk.subarray(from, end);
        yield rest.length > 0 ? Buffer.concat([rest, piece]) : piece;
        rest = Buffer.alloc(0);
        from = end + 1;
      }
      if (from < chunk.length) rest = Buffer.concat([rest, chunk.subarray(from)]);
    }
    if (rest.length > 0) yield rest;
  } catch (cause) {
    throw new BatchWeaveError(
      "CORRUPT",
      `${bytes.uri} cannot be decompressed to its end (${(cause as Error).message}): it is damaged or cut short.`,
      { uri: bytes.uri },
      cause,
    );
  } finally {
    gunzip.destroy();
  }
}

class GzipLines implements ShardReader {
  readonly #bytes: ShardBytes;
  #lines: AsyncGenerator<Uint8Array> | undefined;
  #line = 0;

  constructor(bytes: ShardBytes) {
    this.#bytes = bytes;
  }

  /** A place is the number of a line. */
  async read(
    place: ShardPlace | undefined,
    limits: WindowLimits,
    part: ShardPart,
    signal?: AbortSignal,
  ): Promise<ShardWindow> {
    assertSize(this.#bytes.uri, this.#bytes.size, part);
    const from = (place as number | undefined) ?? 0;
    if (this.#lines === undefined || this.#line > from) {
      await this.#lines?.return(undefined);
      this.#lines = gunzipLines(this.#bytes);
      this.#line = 0;
    }
    const samples: RawSample[] = [];
    let taken = 0;
    try {
      while (samples.length < limits.samplesMax && taken < limits.bytesMax) {
        signal?.throwIfAborted();
        const { value: line, done } = await this.#lines.next();
        if (done) return { samples, next: undefined };
        const number = this.#line++;
        if (number < from) continue;
        taken += line.length;
        const text = number === 0 ? withoutMark(line) : line;
        if (!isBlank(text)) samples.push(parseLine(text, String(number)));
      }
    } catch (error) {
      this.#lines = undefined;
      throw error;
    }
    return { samples, next: this.#line };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#lines?.return(undefined);
    await this.#bytes[Symbol.asyncDispose]();
  }
}

/** JSON lines; a name that ends in `.gz` is compressed. */
export const jsonlFormat: ShardFormat = {
  name: "jsonl",
  division: (uri) => (uri.endsWith(".gz") ? "none" : "anywhere"),
  async open(uri, access) {
    const bytes = await openShardBytes(uri, access);
    return uri.endsWith(".gz") ? new GzipLines(bytes) : new PlainLines(bytes);
  },
};
