/**
 * HTTP/1.1 to one server, by undici: kept-alive connections within a limit, timeouts, an abort, and an honest account of a failure: whether the server may have
 * seen the request. Nothing is sent twice and no redirect is followed (docs/design/0005-s3-requests.md).
 */
import type { Socket } from "node:net";
import { createSecureContext } from "node:tls";
import type { buildConnector as Connecting, Dispatcher, Pool as PoolType } from "undici";
import { bodyBytes, bodyParts, copyBody } from "../body.js";
import type { Body } from "../object-store.js";
import { Exchange, type HttpPatience } from "./exchange.js";
import type { HttpAnswer, HttpRequest } from "./message.js";
import { buildConnector, Client, Pool } from "./undici.js";

/** Where and how to connect. */
interface HttpSettings extends HttpPatience {
  /** `http://host:port` or `https://…`. */
  readonly origin: string;
  readonly ca?: readonly string[] | undefined;
  readonly connectionsMax: number;
}

/** Idle connections are closed by us before most servers do: a request over one that the server just closed has an unknown outcome. */
const idleTimeoutMs = 4_000;
/** And this long before the server said it would. */
const earlierMs = 1_000;
const headBytesMax = 64 * 1024;
/** Parts of a body smaller than this are joined before they are sent: a write costs more than a copy. */
const joinedBytesMax = 32 * 1024;

interface Options extends Dispatcher.DispatchOptions {
  readonly exchange: Exchange;
}

/** One connection, and after it the next: undici's client, with its socket in view. */
class Line extends Client {
  socket: Socket | undefined;
  #exchange: Exchange | undefined;
  #isUsed = false;

  constructor(origin: string | URL, connect: Connecting.connector, options: object) {
    super(origin, {
      ...options,
      connect: (to, done) =>
        connect(to, (...result) => {
          if (result[1]) this.#watch(result[1]);
          done(...result);
        }),
    });
  }

  override dispatch(options: Options, handler: Dispatcher.DispatchHandler): boolean {
    options.exchange.carrier = this;
    return super.dispatch(options, handler);
  }

  take(exchange: Exchange | undefined): boolean {
    const wasUsed = this.#isUsed;
    this.#exchange = exchange;
    this.#isUsed = true;
    return wasUsed;
  }

  #watch(socket: Socket): void {
    this.socket = socket;
    this.#isUsed = false;
    socket.on("timeout", () => this.#exchange?.onSilence());
    socket.on("readable", () => this.#exchange?.onRead());
  }
}

/** A client for one server. */
export class HttpClient {
  readonly #settings: HttpSettings;
  #pool: PoolType | undefined;

  constructor(settings: HttpSettings) {
    this.#settings = settings;
  }

  /** Ends idle connections. Those in use end with their requests. */
  close(): void {
    void this.#pool?.close();
    this.#pool = undefined;
  }

  /** Sends once. Rejects with an `HttpFailure`, also when the request's signal aborts (see `isSent`). */
  send(request: HttpRequest): Promise<HttpAnswer> {
    return new Promise((resolve, reject) => {
      request.signal?.throwIfAborted();
      const { method, path, headers } = request;
      const exchange = new Exchange(request, this.#settings, resolve, reject);
      const body = request.body === undefined ? null : sendable(request.body, exchange);
      // Not idempotent, whatever the method: undici then never puts it behind another request on the wire.
      const options: Options = { method, path, headers, body: body as never, idempotent: false, exchange };
      exchange.dispatched = options;
      this.#pool ??= openPool(this.#settings);
      this.#pool.dispatch(options, exchange);
    });
  }
}

function openPool({ origin, ca, connectionsMax, connectTimeoutMs }: HttpSettings): PoolType {
  // One for all connections: to read the certificates takes longer than to connect.
  const secureContext = origin.startsWith("https:") ? createSecureContext(ca && { ca: [...ca] }) : undefined;
  const connect = buildConnector({ timeout: connectTimeoutMs, ...(secureContext && { secureContext }) });
  return new Pool(origin, {
    connections: connectionsMax,
    pipelining: 1,
    maxHeaderSize: headBytesMax,
    // Silence is watched on the socket, where the progress of a large body that is being sent shows too.
    headersTimeout: 0,
    bodyTimeout: 0,
    keepAliveTimeout: idleTimeoutMs,
    keepAliveMaxTimeout: idleTimeoutMs,
    keepAliveTimeoutThreshold: earlierMs,
    factory: (to: URL, options: object) => new Line(to, connect, options),
  });
}

/** A body as undici takes it: one buffer, or several one after another. */
function sendable(body: Body, exchange: Exchange): Uint8Array | Iterable<Uint8Array> {
  if (body instanceof Uint8Array) return body;
  const pieces = bodyBytes(body) <= joinedBytesMax ? [copyBody(body)] : [...joinSmall(bodyParts(body))];
  return pieces.length === 1 ? (pieces[0] as Uint8Array) : given(pieces, exchange);
}

/** Tells the exchange when the last piece is taken. */
function* given(pieces: readonly Uint8Array[], exchange: Exchange): Generator<Uint8Array> {
  exchange.isGiving = true;
  yield* pieces;
  exchange.isGiving = false;
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
