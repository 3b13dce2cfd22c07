/**
 * Reads one HTTP/1.1 answer out of the bytes of a connection (RFC 9112). Node's own parser hands out every piece of a body as a copy of its own;
 * here a body of known length goes straight into the memory that the caller will get, which halves what a read costs
 * (docs/design/0011-s3-connections.md has the figures). Whatever is not plainly right is refused: the connection is given up, and a create is `unknown`.
 */
import { type HttpAnswer, HttpProtocolError } from "./message.js";

const headBytesMax = 64 * 1024;
/** Of an error's body. Nothing we understand is longer. */
const errorBytesMax = 64 * 1024;
const preallocatedBytesMax = 2 ** 31;
const lineBytesMax = 4 * 1024;
const trailersMax = 64;
/** Answers of status 1xx before the answer itself. */
const interimMax = 16;
const headEnd = "\r\n\r\n";
/** What no header may hold, nor be surrounded by. */
const unprintable = /[^\t\x20-\x7e\x80-\xff]/;

/** What stands before a body. */
export interface ResponseHead {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** How the body ends: after so many bytes, by its last chunk, or with the connection. */
  readonly framing: number | "chunked" | "close";
  /** Milliseconds that the server will keep the connection afterwards, if it says; 0: it will not. */
  readonly keptMs: number | undefined;
}

/** One answer while it comes. The bytes it is given are only lent: it copies what it keeps. */
export class ResponseReader {
  /** The beginning of a head that came in pieces. */
  #begun: Buffer | undefined;
  #interims = 0;
  #head: ResponseHead | undefined;
  #body: BodyMemory | undefined;
  #chunks: ChunkReader | undefined;
  #isWhole = false;
  #isClean = true;

  /** The head, when it has come. */
  get head(): ResponseHead | undefined {
    return this.#head;
  }

  /** Nothing follows that belongs to nobody, so the connection may be used again. */
  get isClean(): boolean {
    return this.#isClean;
  }

  /** Takes bytes; true when the answer is complete. Throws an {@link HttpProtocolError}. */
  take(bytes: Buffer): boolean {
    let rest: Buffer | undefined = bytes;
    while (!this.#head) {
      rest = this.#takeHead(rest);
      if (!rest) return false;
    }
    return this.#takeBody(rest);
  }

  /** The connection ended: whether that completes the answer. */
  end(): boolean {
    this.#isClean = false;
    return this.#isWhole || this.#head?.framing === "close";
  }

  /** What came. Only when there is a head. */
  answer(broken: Error | undefined): HttpAnswer {
    const { status, headers } = this.#head as ResponseHead;
    return { status, headers, body: this.#body?.bytes() ?? new Uint8Array(0), broken };
  }

  /** What follows the head; undefined when there is no whole head yet. */
  #takeHead(bytes: Buffer): Buffer | undefined {
    const all = this.#begun ? Buffer.concat([this.#begun, bytes]) : bytes;
    const end = all.indexOf(headEnd, 0, "latin1");
    if (end > headBytesMax || (end < 0 && all.byteLength > headBytesMax))
      throw wrong("the head of its answer has no end");
    if (end < 0) {
      // Told at once: whoever speaks something else may never say enough for a head, nor hang up.
      if (!"HTTP/1.".startsWith(all.toString("latin1", 0, 7))) throw wrong("its answer begins with something else");
      this.#begun = Buffer.from(all);
      return undefined;
    }
    this.#begun = undefined;
    const head = parseHead(all.toString("latin1", 0, end));
    if (head.status >= 200) this.#start(head);
    else if (head.status === 101 || ++this.#interims > interimMax) throw wrong(`it answered ${head.status}`);
    return all.subarray(end + headEnd.length);
  }

  #start(head: ResponseHead): void {
    this.#head = head;
    const { framing } = head;
    const announced = typeof framing === "number" ? framing : undefined;
    this.#body = new BodyMemory(announced, head.status >= 300 ? errorBytesMax : Number.POSITIVE_INFINITY);
    if (framing === "chunked") this.#chunks = new ChunkReader();
  }

  #takeBody(bytes: Buffer): boolean {
    const body = this.#body as BodyMemory;
    const framing = this.#head?.framing;
    let used = bytes.byteLength;
    if (this.#chunks) {
      const end = this.#chunks.take(bytes, body);
      this.#isWhole = end !== undefined;
      used = end ?? used;
    } else if (typeof framing === "number") {
      used = Math.min(used, framing - body.got);
      body.add(used === bytes.byteLength ? bytes : bytes.subarray(0, used));
      this.#isWhole = body.got === framing;
    } else body.add(bytes);
    if (used < bytes.byteLength) this.#isClean = false;
    if (this.#isWhole) return true;
    // The rest of an error's page is of no use to anybody.
    if (!body.isFull) return false;
    this.#isClean = false;
    return true;
  }
}

/** Collects a body: in memory of the announced size if there is one, so that nothing is copied twice. */
class BodyMemory {
  readonly #bytesMax: number;
  #memory: Uint8Array;
  #got = 0;

  constructor(announced: number | undefined, bytesMax: number) {
    this.#bytesMax = bytesMax;
    const bytes = announced === undefined || announced > preallocatedBytesMax ? 16 * 1024 : announced;
    this.#memory = allocate(Math.min(bytes, bytesMax));
  }

  get got(): number {
    return this.#got;
  }

  get isFull(): boolean {
    return this.#got >= this.#bytesMax;
  }

  add(bytes: Uint8Array): void {
    const room = this.#bytesMax - this.#got;
    const kept = bytes.byteLength > room ? bytes.subarray(0, room) : bytes;
    const wanted = this.#got + kept.byteLength;
    if (wanted > this.#memory.byteLength) {
      const larger = allocate(Math.max(wanted, 2 * this.#memory.byteLength));
      larger.set(this.#memory.subarray(0, this.#got));
      this.#memory = larger;
    }
    this.#memory.set(kept, this.#got);
    this.#got = wanted;
  }

  bytes(): Uint8Array {
    return this.#got === this.#memory.byteLength ? this.#memory : this.#memory.subarray(0, this.#got);
  }
}

function allocate(bytes: number): Uint8Array {
  return new Uint8Array(Buffer.allocUnsafeSlow(bytes).buffer);
}

/** `Transfer-Encoding: chunked`. */
class ChunkReader {
  #state: "size" | "data" | "gap" | "trailer" = "size";
  /** A line, as far as it came. */
  #line = "";
  /** Bytes of the chunk that are still to come. */
  #left = 0;
  #trailers = 0;

  /** Adds to the body. Gives where in `bytes` the answer ended, if it did. */
  take(bytes: Buffer, body: BodyMemory): number | undefined {
    let at = 0;
    while (at < bytes.byteLength) {
      if (this.#state === "data") {
        const stop = Math.min(bytes.byteLength, at + this.#left);
        body.add(bytes.subarray(at, stop));
        this.#left -= stop - at;
        at = stop;
        if (this.#left === 0) this.#state = "gap";
        continue;
      }
      const lineFeed = bytes.indexOf(10, at);
      this.#line += bytes.toString("latin1", at, lineFeed < 0 ? bytes.byteLength : lineFeed);
      if (this.#line.length > lineBytesMax) throw wrong("a line between the chunks of its answer has no end");
      if (lineFeed < 0) return undefined;
      at = lineFeed + 1;
      if (this.#endLine()) return at;
    }
    return undefined;
  }

  /** A whole line; true after the last. */
  #endLine(): boolean {
    if (!this.#line.endsWith("\r")) throw wrong("a line between the chunks of its answer has no end");
    const line = this.#line.slice(0, -1);
    this.#line = "";
    if (this.#state === "trailer") {
      if (++this.#trailers > trailersMax) throw wrong("the trailers of its answer have no end");
      return line === "";
    }
    if (this.#state === "gap") {
      if (line !== "") throw wrong("a chunk of its answer is longer than it said");
      this.#state = "size";
      return false;
    }
    const size = /^([0-9a-fA-F]{1,12})[ \t]*(?:;.*)?$/.exec(line)?.[1];
    if (size === undefined || unprintable.test(line)) throw wrong("a chunk of its answer does not say how long it is");
    this.#left = Number.parseInt(size, 16);
    this.#state = this.#left === 0 ? "trailer" : "data";
    return false;
  }
}

/** From the status line to the last header, without the empty line. */
export function parseHead(text: string): ResponseHead {
  const lines = text.split("\r\n");
  const start = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: .*)?$/.exec(lines[0] as string);
  if (!start) throw wrong("its answer begins with something else");
  const status = Number(start[2]);
  // Without a prototype: any name is only a name.
  const headers = Object.create(null) as Record<string, string>;
  for (let i = 1; i < lines.length; i++) {
    const line = lines[i] as string;
    const colon = line.indexOf(":");
    const name = line.slice(0, Math.max(0, colon)).toLowerCase();
    if (!/^[!#$%&'*+.^_`|~0-9a-z-]+$/.test(name)) throw wrong("a header of its answer has no name");
    const value = line.slice(colon + 1).replace(/^[ \t]+|[ \t]+$/g, "");
    if (unprintable.test(value)) throw wrong("a header of its answer holds a line break or the like");
    const before = headers[name];
    headers[name] = before === undefined ? value : `${before}, ${value}`;
  }
  return { status, headers, framing: framingOf(status, headers), keptMs: keptMsOf(start[1] === "1", headers) };
}

function framingOf(status: number, headers: Readonly<Record<string, string>>): ResponseHead["framing"] {
  const { "transfer-encoding": encoding, "content-length": length } = headers;
  const isWrong =
    encoding === undefined
      ? length !== undefined && !/^\d{1,15}$/.test(length)
      : encoding.toLowerCase() !== "chunked" || length !== undefined;
  if (isWrong) throw wrong("its answer does not say how long it is, or says it twice");
  if (status < 200 || status === 204 || status === 304) return 0;
  if (encoding !== undefined) return "chunked";
  return length === undefined ? "close" : Number(length);
}

function keptMsOf(isCurrent: boolean, headers: Readonly<Record<string, string>>): number | undefined {
  const connection = (headers["connection"] ?? "").toLowerCase();
  if (/(^|,)\s*close\s*(,|$)/.test(connection)) return 0;
  if (!isCurrent && !/(^|,)\s*keep-alive\s*(,|$)/.test(connection)) return 0;
  const seconds = /(?:^|[,\s])timeout=(\d{1,6})/.exec(headers["keep-alive"] ?? "")?.[1];
  return seconds === undefined ? undefined : Number(seconds) * 1000;
}

function wrong(how: string): HttpProtocolError {
  return new HttpProtocolError(how);
}
