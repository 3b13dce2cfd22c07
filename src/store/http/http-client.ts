/**
 * HTTP/1.1 to one server: kept-alive connections within a limit, three timeouts, an abort, and an honest account of a failure: whether the server
 * may have seen the request. On `node:net` and `node:tls`, because `node:http` copies a body twice on its way (docs/design/0011-s3-connections.md).
 */
import { createSecureContext, type SecureContext } from "node:tls";
import { Connection, type ConnectionKeeper, Exchange, type HttpSettings } from "./connection.js";
import type { HttpAnswer, HttpRequest } from "./message.js";

/** What one read from a connection gives at most. */
const readBytesMax = 64 * 1024;
/**
 * glibc gives freed memory back to the system beyond twice the largest block that was freed so far, and the garbage collector frees 32 MB of bodies at a time: in
 * a process that reads bodies of a megabyte, each would be made of new pages, which costs more than all else about it. A block of this size is
 * allocated and left to the collector, so that more than that much memory stays. Nobody writes to it, so it takes none itself.
 */
const exampleBytes = 20 * 1024 * 1024;

/** A client for one server. */
export class HttpClient implements ConnectionKeeper {
  readonly settings: HttpSettings;
  readonly memory: Uint8Array = Buffer.allocUnsafeSlow(readBytesMax);
  readonly trust: SecureContext | undefined;
  session: Buffer | undefined;
  readonly #open = new Set<Connection>();
  /** Free ones; the last used is used next, and the others end by and by. */
  readonly #idle: Connection[] = [];
  readonly #waiting: Exchange[] = [];

  constructor(settings: HttpSettings) {
    this.settings = settings;
    // One for all connections: to read the certificates takes longer than to connect.
    Buffer.allocUnsafeSlow(exampleBytes);
    if (settings.isTls) this.trust = createSecureContext(settings.ca && { ca: [...settings.ca] });
  }

  /** Ends idle connections. Those in use end with their requests. */
  close(): void {
    for (const connection of this.#idle.splice(0)) connection.close();
  }

  /** Sends once. Rejects with an `HttpFailure`, also when the request's signal aborts (see `isSent`). */
  send(request: HttpRequest): Promise<HttpAnswer> {
    return new Promise((resolve, reject) => {
      request.signal?.throwIfAborted();
      this.#begin(new Exchange(request, resolve, reject));
    });
  }

  onFree(connection: Connection): void {
    const next = this.#waiting.shift();
    if (next) connection.begin(next);
    else this.#idle.push(connection);
  }

  onClosed(connection: Connection): void {
    this.#open.delete(connection);
    remove(this.#idle, connection);
    const next = this.#waiting.shift();
    if (next) this.#begin(next);
  }

  #begin(exchange: Exchange): void {
    let idle = this.#idle.pop();
    while (idle && !idle.isOpen) idle = this.#idle.pop();
    if (idle) {
      idle.begin(exchange);
      return;
    }
    if (this.#open.size < this.settings.connectionsMax) {
      const connection = new Connection(this);
      this.#open.add(connection);
      connection.begin(exchange);
      return;
    }
    this.#waiting.push(exchange);
    exchange.cancel = (reason) => {
      remove(this.#waiting, exchange);
      exchange.fail(reason);
    };
  }
}

function remove<T>(list: T[], one: T): void {
  const at = list.indexOf(one);
  if (at >= 0) list.splice(at, 1);
}
