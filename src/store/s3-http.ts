/**
 * One HTTP request: kept-alive connections within a limit, three timeouts, an abort, and an honest account of a failure: whether the server
 * may have seen the request.
 */
import {
  type ClientRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  Agent as PlainAgent,
  request,
} from "node:http";
import { request as requestTls, Agent as TlsAgent } from "node:https";
import type { Socket } from "node:net";
import { createSecureContext } from "node:tls";
import { bodyBytes, bodyParts, copyBody } from "./body.js";
import type { Body } from "./object-store.js";

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
}

/** One request, ready to be sent. */
export interface HttpRequest {
  readonly method: string;
  /** Path and query, encoded. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Body | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** An answer. `broken` says why the body is not all of it; what came until then is in `body`. */
export interface HttpAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Uint8Array;
  readonly broken?: Error | undefined;
}

/** No answer. */
export class HttpFailure extends Error {
  /** Bytes of the request may have reached the server. */
  readonly isSent: boolean;
  /** It went over a kept connection that the server had closed meanwhile, most likely. */
  readonly isStale: boolean;

  constructor(cause: Error, isSent: boolean, isStale: boolean) {
    super(cause.message, { cause });
    this.isSent = isSent;
    this.isStale = isStale;
  }
}

/** Which of the three timeouts ran out. */
export class HttpTimeout extends Error {
  readonly phase: "connect" | "response" | "stall";
  readonly timeoutMs: number;

  constructor(phase: HttpTimeout["phase"], timeoutMs: number) {
    super(`${phase} timeout of ${timeoutMs} ms`);
    this.phase = phase;
    this.timeoutMs = timeoutMs;
  }
}

/** Idle connections are closed by us before most servers do: a request over one that the server just closed has an unknown outcome. */
const idleTimeoutMs = 4_000;
/** Of an error's body. Nothing we understand is longer. */
const errorBytesMax = 64 * 1024;
/** Parts of a body smaller than this are joined before they are sent: a write costs more than a copy. */
const joinedBytesMax = 32 * 1024;

/** A client for one server. */
export class HttpClient {
  readonly #settings: HttpSettings;
  readonly #agent: PlainAgent | TlsAgent;
  readonly #request: typeof request;
  /** Connections that stand: whatever is given one of these is sent at once. (Node tells reused ones, but not those it passes on to a waiting request.) */
  readonly #connected = new WeakSet<Socket>();

  constructor(settings: HttpSettings) {
    this.#settings = settings;
    const options = {
      keepAlive: true,
      maxSockets: settings.connectionsMax,
      maxFreeSockets: settings.connectionsMax,
      timeout: idleTimeoutMs,
      scheduling: "lifo" as const,
      noDelay: true,
    };
    // As a context, not as `ca`: the agent would compare all certificates for every request.
    const trust = settings.ca && { secureContext: createSecureContext({ ca: [...settings.ca] }) };
    this.#agent = settings.isTls ? new TlsAgent({ ...options, ...trust }) : new PlainAgent(options);
    this.#request = settings.isTls ? requestTls : request;
  }

  /** Ends idle connections. Those in use end with their requests. */
  close(): void {
    this.#agent.destroy();
  }

  /** Sends once. Rejects with an {@link HttpFailure}, also when `signal` aborts (see `isSent`). */
  send(message: HttpRequest): Promise<HttpAnswer> {
    return new Promise((resolve, reject) => {
      const { method, path, headers, body, signal } = message;
      const { hostname, port } = this.#settings;
      const sending = this.#request({
        agent: this.#agent,
        host: hostname,
        port,
        method,
        path,
        headers,
        setHost: false,
        timeout: this.#settings.responseTimeoutMs,
      });
      const exchange = new Exchange(sending, this.#settings, this.#connected, signal, resolve, reject);
      exchange.begin(body);
    });
  }
}

/** One request and what becomes of it. */
class Exchange {
  readonly #sending: ClientRequest;
  readonly #settings: HttpSettings;
  readonly #connected: WeakSet<Socket>;
  readonly #signal: AbortSignal | undefined;
  readonly #resolve: (answer: HttpAnswer) => void;
  readonly #reject: (failure: HttpFailure) => void;
  #onAbort: (() => void) | undefined;
  #phase: HttpTimeout["phase"] = "response";
  #isSent = false;
  #isKept = false;
  #isOver = false;

  constructor(
    sending: ClientRequest,
    settings: HttpSettings,
    connected: WeakSet<Socket>,
    signal: AbortSignal | undefined,
    resolve: (answer: HttpAnswer) => void,
    reject: (failure: HttpFailure) => void,
  ) {
    this.#sending = sending;
    this.#settings = settings;
    this.#connected = connected;
    this.#signal = signal;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  begin(body: Body | undefined): void {
    const sending = this.#sending;
    sending.on("error", (error: Error) => this.#fail(error));
    sending.on("socket", (socket: Socket) => this.#watch(socket));
    sending.on("timeout", () => sending.destroy(this.#timeout()));
    sending.on("response", (response: IncomingMessage) => this.#receive(response));
    if (this.#signal) {
      this.#onAbort = () => sending.destroy(new Error("aborted"));
      if (this.#signal.aborted) this.#onAbort();
      else this.#signal.addEventListener("abort", this.#onAbort, { once: true });
    }
    if (body === undefined) sending.end();
    else sendBody(sending, body);
  }

  /** Nothing is sent before the connection stands, so a failure until then is certain to have had no effect. */
  #watch(socket: Socket): void {
    if (this.#connected.has(socket)) {
      this.#isSent = true;
      this.#isKept = true;
      return;
    }
    this.#phase = "connect";
    socket.setTimeout(this.#settings.connectTimeoutMs);
    socket.once(this.#settings.isTls ? "secureConnect" : "connect", () => {
      this.#connected.add(socket);
      this.#isSent = true;
      this.#phase = "response";
      socket.setTimeout(this.#settings.responseTimeoutMs);
    });
  }

  #timeout(): HttpTimeout {
    const { connectTimeoutMs, responseTimeoutMs, stallTimeoutMs } = this.#settings;
    const ms = { connect: connectTimeoutMs, response: responseTimeoutMs, stall: stallTimeoutMs };
    return new HttpTimeout(this.#phase, ms[this.#phase]);
  }

  #fail(error: Error): void {
    if (!this.#end()) return;
    this.#reject(new HttpFailure(error, this.#isSent, this.#isKept && !(error instanceof HttpTimeout)));
  }

  #end(): boolean {
    if (this.#isOver) return false;
    this.#isOver = true;
    if (this.#onAbort) this.#signal?.removeEventListener("abort", this.#onAbort);
    return true;
  }

  #receive(response: IncomingMessage): void {
    this.#phase = "stall";
    response.socket.setTimeout(this.#settings.stallTimeoutMs);
    const status = response.statusCode ?? 0;
    const isError = status >= 300;
    const wanted = Number(response.headers["content-length"] ?? Number.NaN);
    const sink = new Sink(isError ? Math.min(wanted, errorBytesMax) : wanted, isError ? errorBytesMax : undefined);
    response.on("data", (chunk: Buffer) => sink.add(chunk));
    // A body that broke off is an answer all the same: status and headers are known, and a reader can go on where it ended.
    const settle = (broken: Error | undefined): void => {
      if (!this.#end()) return;
      // An answer before the request was all sent: whatever is still being sent belongs to nobody.
      if (!this.#sending.writableFinished) this.#sending.destroy();
      this.#resolve({ status, headers: response.headers, body: sink.bytes(), broken });
    };
    response.on("end", () => settle(response.complete ? undefined : new Error("the connection ended early")));
    response.on("error", (error: Error) => settle(error));
    response.on("close", () => {
      if (!this.#isOver) settle(new Error("the connection ended early"));
    });
  }
}

/** Collects a body: into memory of the announced size if there is one, so that nothing is copied twice. */
class Sink {
  readonly #bytesMax: number | undefined;
  #whole: Uint8Array | undefined;
  #chunks: Uint8Array[] = [];
  #got = 0;

  constructor(announced: number, bytesMax: number | undefined) {
    this.#bytesMax = bytesMax;
    if (announced >= 0 && announced <= 2 ** 31) this.#whole = new Uint8Array(Buffer.allocUnsafeSlow(announced).buffer);
  }

  add(chunk: Uint8Array): void {
    if (this.#bytesMax !== undefined && this.#got + chunk.byteLength > this.#bytesMax) return;
    if (this.#whole && this.#got + chunk.byteLength <= this.#whole.byteLength) this.#whole.set(chunk, this.#got);
    else {
      if (this.#whole) this.#chunks.push(this.#whole.subarray(0, this.#got));
      this.#whole = undefined;
      this.#chunks.push(chunk);
    }
    this.#got += chunk.byteLength;
  }

  bytes(): Uint8Array {
    if (!this.#whole) return copyBody(this.#chunks);
    return this.#got === this.#whole.byteLength ? this.#whole : this.#whole.subarray(0, this.#got);
  }
}

function sendBody(sending: ClientRequest, body: Body): void {
  const parts = bodyParts(body);
  if (parts.length === 1 || bodyBytes(body) <= joinedBytesMax) {
    sending.end(parts.length === 1 ? parts[0] : copyBody(body));
    return;
  }
  sending.cork();
  let small: Uint8Array[] = [];
  let smallBytes = 0;
  const flush = (): void => {
    if (smallBytes > 0) sending.write(small.length === 1 ? small[0] : copyBody(small));
    small = [];
    smallBytes = 0;
  };
  for (const part of parts) {
    if (part.byteLength + smallBytes > joinedBytesMax) flush();
    if (part.byteLength > joinedBytesMax) sending.write(part);
    else if (part.byteLength > 0) {
      small.push(part);
      smallBytes += part.byteLength;
    }
  }
  flush();
  sending.end();
  sending.uncork();
}
