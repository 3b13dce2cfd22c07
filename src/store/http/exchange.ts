/** One request and what becomes of it: undici tells it what happens, and it makes of that an answer, or an honest account of why there is none. */
import type { Socket } from "node:net";
import type { Dispatcher } from "undici";
import { onAbort } from "../../env/index.js";
import { type HttpAnswer, HttpFailure, HttpProtocolError, type HttpRequest, HttpTimeout } from "./message.js";

/** How long things may take. */
export interface HttpPatience {
  readonly connectTimeoutMs: number;
  readonly responseTimeoutMs: number;
  readonly stallTimeoutMs: number;
  /** Of a body, over the time of a stall: slower is given up. */
  readonly bodyBytesPerSMin: number;
  /** A clock that only goes forward. */
  readonly monotonic: () => number;
  /** Resolves when everything that has happened has been told. */
  readonly nextTurn: () => Promise<void>;
}

/** The connection that carries it. */
interface Carrier {
  readonly socket: Socket | undefined;
  /** Says who uses it from now on; gives whether another request did before. */
  take(exchange: Exchange | undefined): boolean;
}

/** Of an error's body. Nothing we understand is longer. */
const errorBytesMax = 64 * 1024;
/** Answers of status 1xx before the answer itself. */
const interimMax = 16;
const firstBytes = 16 * 1024;

/** See the head of this file. */
export class Exchange implements Dispatcher.DispatchHandler {
  /** Set by the connection that gets it. */
  carrier: Carrier | undefined;
  /** What undici was given: a request that gives up while it waits for a connection lets go of its body. */
  dispatched: { body?: unknown } | undefined;
  readonly #request: HttpRequest;
  readonly #patience: HttpPatience;
  readonly #resolve: (answer: HttpAnswer) => void;
  readonly #reject: (failure: HttpFailure) => void;
  readonly #unlisten: (() => void) | undefined;
  #controller: Dispatcher.DispatchController | undefined;
  #isDone = false;
  /** Nothing is sent before the connection stands, so a failure until then is certain to have had no effect. */
  #isSent = false;
  #isKept = false;
  /** Parts of the body are left that the connection has not been given. */
  isGiving = false;
  #interims = 0;
  #status = 0;
  /** Without a prototype: any name is only a name. */
  readonly #headers: Record<string, string> = Object.create(null);
  #body: BodyMemory | undefined;
  /** Since when a head has been coming, or the rate of a body is counted; and what came since. */
  #sinceMs: number | undefined;
  #countedBytes = 0;

  constructor(
    request: HttpRequest,
    patience: HttpPatience,
    resolve: (answer: HttpAnswer) => void,
    reject: (failure: HttpFailure) => void,
  ) {
    this.#request = request;
    this.#patience = patience;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#unlisten = request.signal && onAbort(request.signal, () => this.fail(new Error("aborted")));
  }

  /** Ends it wherever it is: waiting for a connection, or on one, which is given up. */
  fail(error: Error): void {
    if (this.#isDone) return;
    this.#settle(error);
    if (this.#controller) this.#controller.abort(error);
    else if (this.dispatched) this.dispatched.body = null;
  }

  /** The connection stands, and the request goes out now. */
  onRequestStart(controller: Dispatcher.DispatchController): void {
    if (this.#isDone) {
      controller.abort(new Error("aborted"));
      return;
    }
    this.#controller = controller;
    this.#isSent = true;
    this.#isKept = this.carrier?.take(this) ?? false;
    this.carrier?.socket?.setTimeout(this.#patience.responseTimeoutMs);
  }

  onResponseStarted(): void {
    this.#sinceMs ??= this.#patience.monotonic();
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    if (status < 200) {
      if (++this.#interims > interimMax) this.fail(new HttpProtocolError(`it answered ${status} again and again`));
      return;
    }
    this.#status = status;
    for (const name in headers) {
      const value = headers[name] as string | string[];
      const text = typeof value === "string" ? value : value.join(", ");
      this.#headers[name] = /[ \t]$/.test(text) ? text.trimEnd() : text;
    }
    const isSuccess = status < 300;
    const bytesMax = isSuccess ? this.#request.answerBytesMax : errorBytesMax;
    const announced = Number(headers["content-length"] ?? Number.NaN);
    this.#body = new BodyMemory(announced, bytesMax);
    if (isSuccess && announced > bytesMax) this.#overflow(bytesMax);
    else if (announced !== 0) this.carrier?.socket?.setTimeout(this.#patience.stallTimeoutMs);
    this.#sinceMs = undefined;
  }

  onResponseData(_controller: Dispatcher.DispatchController, bytes: Uint8Array): void {
    if (this.#isDone) return;
    this.#countedBytes += bytes.byteLength;
    if (this.#body?.add(bytes) !== false) return;
    if (this.#status < 300) this.#overflow(this.#request.answerBytesMax);
    else {
      // The rest of an error's page is of no use.
      this.#settle(undefined);
      this.#controller?.abort(new Error("enough"));
    }
  }

  onResponseEnd(): void {
    const { carrier } = this;
    carrier?.take(undefined);
    carrier?.socket?.setTimeout(0);
    if (!this.#isSending()) this.#settle(undefined);
    // Over TLS, that the last bytes went out is told in the turn after. undici uses the connection again no sooner.
    else void this.#patience.nextTurn().then(() => this.#endEarly(carrier?.socket));
  }

  #isSending(): boolean {
    return this.isGiving || (this.carrier?.socket?.writableLength ?? 0) > 0;
  }

  /** No server can have stored what was not sent; a refusal needs no body. */
  #endEarly(socket: Socket | undefined): void {
    const isEarly = this.#isSending();
    const isWrong = isEarly && this.#status < 300;
    this.#settle(isWrong ? new HttpProtocolError("it answered a request that it did not have yet") : undefined);
    // Whatever is still being sent belongs to no request.
    if (isEarly) socket?.destroy();
  }

  onResponseError(_controller: Dispatcher.DispatchController | undefined, error: Error): void {
    if (this.#isSent) this.carrier?.take(undefined);
    this.#settle(cleanError(error, this.#patience));
  }

  /** Nothing was sent or read for as long as the phase allows. */
  onSilence(): void {
    const { responseTimeoutMs, stallTimeoutMs } = this.#patience;
    this.fail(this.#body ? new HttpTimeout("stall", stallTimeoutMs) : new HttpTimeout("response", responseTimeoutMs));
  }

  /**
   * Something was read. Every byte begins the silence anew, so a head, or whatever stands between the chunks of a body, could drip in for ever. Nor may the
   * body itself: a caller that waits for it waits longer than for no answer at all. What came is kept, and a reader goes on from there.
   */
  onRead(): void {
    if (this.#isDone || this.#sinceMs === undefined) {
      if (this.#body) this.#count();
      return;
    }
    const { monotonic, responseTimeoutMs, stallTimeoutMs, bodyBytesPerSMin } = this.#patience;
    const passedMs = monotonic() - this.#sinceMs;
    if (!this.#body) {
      if (passedMs > responseTimeoutMs) this.fail(new HttpTimeout("response", responseTimeoutMs));
      return;
    }
    if (passedMs < stallTimeoutMs) return;
    if (this.#countedBytes * 1_000 < bodyBytesPerSMin * passedMs) this.fail(new HttpTimeout("slow", stallTimeoutMs));
    else this.#count();
  }

  #count(): void {
    this.#sinceMs = this.#patience.monotonic();
    this.#countedBytes = 0;
  }

  #overflow(bytesMax: number): void {
    this.fail(new HttpProtocolError(`its answer has more than the ${bytesMax} bytes that were asked for`));
  }

  /** An answer that broke off is one all the same: status and headers are known, and a reader can go on where it ended. */
  #settle(error: Error | undefined): void {
    if (this.#isDone) return;
    this.#isDone = true;
    this.#unlisten?.();
    if (this.#body) {
      this.#resolve({ status: this.#status, headers: this.#headers, body: this.#body.bytes(), broken: error });
    } else {
      const cause = error ?? new Error("no answer");
      this.#reject(new HttpFailure(cause, this.#isSent, this.#isKept && !(cause instanceof HttpTimeout)));
    }
  }
}

/** Collects a body: in memory of the announced size if there is one, so that nothing is copied twice. */
class BodyMemory {
  readonly #bytesMax: number;
  #memory: Uint8Array;
  #got = 0;

  constructor(announced: number, bytesMax: number) {
    this.#bytesMax = bytesMax;
    this.#memory = allocate(Math.min(Number.isNaN(announced) ? firstBytes : announced, bytesMax));
  }

  /** False when there is more than it may hold. */
  add(bytes: Uint8Array): boolean {
    const room = this.#bytesMax - this.#got;
    const isAll = bytes.byteLength <= room;
    const wanted = this.#got + Math.min(room, bytes.byteLength);
    if (wanted > this.#memory.byteLength) {
      const larger = allocate(Math.min(this.#bytesMax, Math.max(wanted, 2 * this.#memory.byteLength)));
      larger.set(this.#memory.subarray(0, this.#got));
      this.#memory = larger;
    }
    this.#memory.set(isAll ? bytes : bytes.subarray(0, room), this.#got);
    this.#got = wanted;
    return isAll;
  }

  bytes(): Uint8Array {
    return this.#got === this.#memory.byteLength ? this.#memory : this.#memory.subarray(0, this.#got);
  }
}

function allocate(bytes: number): Uint8Array {
  return new Uint8Array(Buffer.allocUnsafeSlow(bytes).buffer);
}

/**
 * An error in our words. undici's own is not passed on, not even as a cause: some hold what the other side sent, and a server may send back the request with all its
 * headers.
 */
function cleanError(error: Error, patience: HttpPatience): Error {
  if (error instanceof HttpTimeout || error instanceof HttpProtocolError) return error;
  const code = "code" in error && typeof error.code === "string" ? error.code : "";
  if (code === "UND_ERR_CONNECT_TIMEOUT") return new HttpTimeout("connect", patience.connectTimeoutMs);
  if (code === "UND_ERR_HEADERS_OVERFLOW") return new HttpProtocolError("the head of its answer has no end");
  if (error.name === "HTTPParserError") return new HttpProtocolError(error.message);
  if (code === "UND_ERR_SOCKET" && error.message.startsWith("bad")) {
    return new HttpProtocolError("it sent something that was not asked for");
  }
  if (code === "UND_ERR_INVALID_ARG") return coded(error.message, code);
  if (code.startsWith("UND_ERR_")) return coded("the connection ended early", "ECONNRESET");
  return coded(error.message, code);
}

function coded(message: string, code: string): Error {
  return Object.assign(new Error(message), code === "" ? {} : { code });
}
