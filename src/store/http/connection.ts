/**
 * One connection to a server and the request that is under way on it. Bytes are read into memory that all connections of a client share, and copied
 * from there to where they belong before anything else is read.
 */
import { connect, isIP, type OnReadOpts, type Socket } from "node:net";
import { type SecureContext, connect as secureConnect } from "node:tls";
import { onAbort } from "../../env/index.js";
import { bodyBytes, bodyParts, copyBody } from "../body.js";
import {
  type HttpAnswer,
  HttpFailure,
  HttpProtocolError,
  type HttpRequest,
  HttpTimeout,
  requestHead,
} from "./message.js";
import { ResponseReader } from "./response.js";

/** Where and how to connect. */
export interface HttpSettings {
  readonly isTls: boolean;
  readonly hostname: string;
  readonly port: number;
  readonly ca?: readonly string[] | undefined;
  readonly connectionsMax: number;
  readonly connectTimeoutMs: number;
  readonly responseTimeoutMs: number;
  readonly stallTimeoutMs: number;
  /** Of a body, over the time of a stall: slower is given up. */
  readonly bodyBytesPerSMin: number;
  /** A clock that only goes forward. */
  readonly monotonic: () => number;
  /** Resolves when everything that was there to be read has been read. */
  readonly nextTurn: () => Promise<void>;
}

/** Whoever keeps connections: what they share, and what it is told. */
export interface ConnectionKeeper {
  readonly settings: HttpSettings;
  readonly memory: Uint8Array;
  readonly trust: SecureContext | undefined;
  /** Of the last connection over TLS: the next one begins faster. */
  session: Buffer | undefined;
  /** It may take another request. */
  onFree(connection: Connection): void;
  /** It is closed. */
  onClosed(connection: Connection): void;
}

/** Idle connections are closed by us before most servers do: a request over one that the server just closed has an unknown outcome. */
const idleTimeoutMs = 4_000;
/** And this long before the server said it would. */
const earlierMs = 1_000;
/** Parts of a body smaller than this are joined before they are sent: a write costs more than a copy. */
const joinedBytesMax = 32 * 1024;

/** One request and what becomes of it. */
export class Exchange {
  readonly request: HttpRequest;
  readonly head: string;
  readonly reader: ResponseReader = new ResponseReader();
  readonly #resolve: (answer: HttpAnswer) => void;
  readonly #reject: (failure: HttpFailure) => void;
  readonly #unlisten: (() => void) | undefined;
  /** Ends it wherever it is: waiting for a connection, or on one. */
  cancel: (reason: Error) => void = () => {};
  /** Nothing is sent before the connection stands, so a failure until then is certain to have had no effect. */
  isSent = false;
  isKept = false;

  constructor(request: HttpRequest, resolve: (answer: HttpAnswer) => void, reject: (failure: HttpFailure) => void) {
    this.request = request;
    this.head = requestHead(request);
    this.#resolve = resolve;
    this.#reject = reject;
    this.#unlisten = request.signal && onAbort(request.signal, () => this.cancel(new Error("aborted")));
  }

  succeed(): void {
    this.#end();
    this.#resolve(this.reader.answer(undefined));
  }

  /** An answer that broke off is one all the same: status and headers are known, and a reader can go on where it ended. */
  fail(error: Error): void {
    this.#end();
    if (this.reader.head) this.#resolve(this.reader.answer(error));
    else this.#reject(new HttpFailure(error, this.isSent, this.isKept && !(error instanceof HttpTimeout)));
  }

  #end(): void {
    this.#unlisten?.();
  }
}

/** What the socket's timer is for. */
type Phase = "connect" | "response" | "stall" | "idle";

/** See the head of this file. */
export class Connection {
  readonly #keeper: ConnectionKeeper;
  readonly #socket: Socket;
  #exchange: Exchange | undefined;
  #phase: Phase = "connect";
  /** When the first bytes of an answer came whose head is not whole yet. */
  #headBegunMs: number | undefined;
  /** Since when the rate of a body is counted, and what came since. */
  #countedSinceMs = 0;
  #countedBytes = 0;
  #isConnected = false;
  /** In the turn in which an answer ended: whatever is read now was there before another request could be answered. */
  #isSettling = false;

  constructor(keeper: ConnectionKeeper) {
    this.#keeper = keeper;
    this.#socket = this.#open();
    const socket = this.#socket;
    socket.setNoDelay(true);
    this.#wait("connect", keeper.settings.connectTimeoutMs);
    // Once: a server that negotiates its keys anew makes Node say so again, and the request would go out twice.
    socket.once(keeper.settings.isTls ? "secureConnect" : "connect", () => {
      this.#isConnected = true;
      if (this.#exchange) this.#send(this.#exchange);
    });
    socket.on("timeout", () => this.#onTimeout());
    socket.on("error", (error: Error) => {
      if (!this.#isConnected) keeper.session = undefined;
      this.#fail(error);
    });
    socket.on("end", () => this.#onEnd());
    socket.on("close", () => {
      this.#onEnd();
      keeper.onClosed(this);
    });
  }

  /** Whether it can still be used, as far as we know. */
  get isOpen(): boolean {
    return !this.#socket.destroyed && this.#socket.readable && this.#socket.writable;
  }

  /** Sends a request, as soon as the connection stands. One at a time. */
  begin(exchange: Exchange): void {
    this.#exchange = exchange;
    exchange.cancel = (reason) => this.#fail(reason);
    if (!this.#isConnected) return;
    exchange.isKept = true;
    this.#socket.ref();
    this.#send(exchange);
  }

  close(): void {
    this.#socket.destroy();
  }

  #open(): Socket {
    const { settings, memory, trust, session } = this.#keeper;
    const { hostname, port } = settings;
    const onread: OnReadOpts = {
      buffer: memory,
      callback: (count, buffer) => {
        this.#read(buffer as Buffer, count);
        return true;
      },
    };
    if (!settings.isTls) return connect({ host: hostname, port, onread });
    const options = {
      host: hostname,
      port,
      servername: isIP(hostname) === 0 ? hostname : "",
      ALPNProtocols: ["http/1.1"],
      secureContext: trust,
      session,
      onread, // documented, but missing in the types
    };
    return secureConnect(options).on("session", (fresh) => {
      this.#keeper.session = fresh;
    });
  }

  #wait(phase: Phase, ms: number): void {
    this.#phase = phase;
    this.#socket.setTimeout(ms);
  }

  #onTimeout(): void {
    const phase = this.#phase;
    if (phase === "idle" || !this.#exchange) this.close();
    else this.#fail(new HttpTimeout(phase, this.#keeper.settings[`${phase}TimeoutMs`]));
  }

  #onEnd(): void {
    const exchange = this.#exchange;
    if (!exchange) this.close();
    else if (exchange.reader.end()) this.#finish(exchange);
    else this.#fail(Object.assign(new Error("the connection ended early"), { code: "ECONNRESET" }));
  }

  #fail(error: Error): void {
    const exchange = this.#exchange;
    this.#exchange = undefined;
    this.close();
    exchange?.fail(error);
  }

  #send(exchange: Exchange): void {
    exchange.isSent = true;
    this.#headBegunMs = undefined;
    this.#wait("response", this.#keeper.settings.responseTimeoutMs);
    const socket = this.#socket;
    const { body } = exchange.request;
    if (body === undefined) {
      socket.write(exchange.head, "latin1");
      return;
    }
    const head = Buffer.from(exchange.head, "latin1");
    // Over TLS several buffers at once would be copied into one first.
    const isTogether = !this.#keeper.settings.isTls;
    if (isTogether) socket.cork();
    if (bodyBytes(body) <= joinedBytesMax) socket.write(copyBody([head, ...bodyParts(body)]));
    else {
      socket.write(head);
      for (const piece of joinSmall(bodyParts(body))) socket.write(piece);
    }
    if (isTogether) socket.uncork();
  }

  #read(memory: Buffer, count: number): void {
    const exchange = this.#exchange;
    if (!exchange?.isSent || this.#isSettling) {
      this.#fail(new Error("bytes that nobody asked for"));
      return;
    }
    try {
      if (exchange.reader.take(memory.subarray(0, count))) this.#finish(exchange);
      else if (!exchange.reader.head) this.#awaitHead();
      else this.#awaitBody(count);
    } catch (e) {
      this.#fail(e as Error);
    }
  }

  /** The socket's timer begins anew with every byte, so a head that drips in would have for ever. */
  #awaitHead(): void {
    const { monotonic, responseTimeoutMs } = this.#keeper.settings;
    this.#headBegunMs ??= monotonic();
    if (monotonic() - this.#headBegunMs > responseTimeoutMs) this.#onTimeout();
  }

  /** Nor may a body drip in: whoever waits for it waits longer than for no answer at all. What came is kept, and a reader goes on from there. */
  #awaitBody(count: number): void {
    const { monotonic, stallTimeoutMs, bodyBytesPerSMin } = this.#keeper.settings;
    const isFirst = this.#phase === "response";
    if (isFirst) this.#wait("stall", stallTimeoutMs);
    else this.#countedBytes += count;
    const nowMs = monotonic();
    const countedMs = nowMs - this.#countedSinceMs;
    if (!isFirst && countedMs < stallTimeoutMs) return;
    if (!isFirst && this.#countedBytes * 1_000 < bodyBytesPerSMin * countedMs) {
      this.#fail(new HttpTimeout("slow", stallTimeoutMs));
      return;
    }
    this.#countedSinceMs = nowMs;
    this.#countedBytes = 0;
  }

  #finish(exchange: Exchange): void {
    this.#exchange = undefined;
    const { head, isClean } = exchange.reader;
    // Nobody can have stored what was not sent; a refusal needs no body.
    const isEarly = this.#socket.writableLength > 0 && (head?.status ?? 0) < 300;
    if (isEarly) exchange.fail(new HttpProtocolError("it answered a request that it did not have yet"));
    else exchange.succeed();
    const keptMs = Math.min(idleTimeoutMs, (head?.keptMs ?? Number.POSITIVE_INFINITY) - earlierMs);
    // An answer before the request was all sent: whatever is still being sent belongs to nobody.
    if (!isClean || keptMs <= 0 || this.#socket.writableLength > 0 || !this.isOpen) {
      this.close();
      return;
    }
    this.#isSettling = true;
    void this.#keeper.settings.nextTurn().then(() => {
      this.#isSettling = false;
    });
    this.#socket.unref();
    this.#wait("idle", keptMs);
    this.#keeper.onFree(this);
  }
}

/** The parts in order, small neighbours in one piece. */
function* joinSmall(parts: readonly Uint8Array[]): Generator<Uint8Array> {
  let small: Uint8Array[] = [];
  let smallBytes = 0;
  for (const part of parts) {
    if (smallBytes > 0 && part.byteLength + smallBytes > joinedBytesMax) {
      yield small.length === 1 ? (small[0] as Uint8Array) : copyBody(small);
      small = [];
      smallBytes = 0;
    }
    if (part.byteLength > joinedBytesMax) yield part;
    else if (part.byteLength > 0) {
      small.push(part);
      smallBytes += part.byteLength;
    }
  }
  if (smallBytes > 0) yield small.length === 1 ? (small[0] as Uint8Array) : copyBody(small);
}
