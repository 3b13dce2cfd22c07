/** What is sent over HTTP and what comes back, whatever carries it. */
import type { Body } from "../object-store.js";

/** Names are in lower case. */
type HttpHeaders = Readonly<Record<string, string | undefined>>;

/** One request, ready to be sent. */
export interface HttpRequest {
  readonly method: "GET" | "PUT" | "POST" | "DELETE";
  /** Path and query, encoded. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Body | undefined;
  /** Of a success's body. A longer one is cut off, and the answer is broken. */
  readonly answerBytesMax: number;
  readonly signal?: AbortSignal | undefined;
}

/** An answer. `broken` says why the body is not all of it; what came until then is in `body`. */
export interface HttpAnswer {
  readonly status: number;
  readonly headers: HttpHeaders;
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

/** Which of the timeouts ran out; `slow`: a body came, but too slowly over that time. */
export class HttpTimeout extends Error {
  readonly phase: "connect" | "response" | "stall" | "slow";
  readonly timeoutMs: number;

  constructor(phase: HttpTimeout["phase"], timeoutMs: number) {
    super(`${phase} timeout of ${timeoutMs} ms`);
    this.phase = phase;
    this.timeoutMs = timeoutMs;
  }
}

/** The other side does not speak HTTP/1.1, breaks its rules, or says more than it was asked for. */
export class HttpProtocolError extends Error {
  readonly code = "EBADHTTP";
}
