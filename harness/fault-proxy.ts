/**
 * An HTTP proxy between a client and a store that does what networks and servers do on a bad day: it loses answers of requests that were
 * applied, delays, resets, cuts bodies short, answers 503, 409 or 429, says 200 with an error in the body, and applies a request long after
 * its client gave up.
 */
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request as requestHttp,
  type Server,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";

/** What can go wrong with one request. */
export type Fault =
  /** The request is applied, the answer is not sent. */
  | { readonly kind: "lose answer" }
  /** The connection breaks before the server has seen anything. */
  | { readonly kind: "reset" }
  /** The answer comes late. */
  | { readonly kind: "delay"; readonly ms: number }
  /** The answer's body breaks off after this share. */
  | { readonly kind: "truncate"; readonly share: number }
  /** The client is cut off at once; the request is applied later all the same. */
  | { readonly kind: "apply late"; readonly ms: number }
  /** An error instead of the answer; `isApplied`: the request was applied nevertheless. */
  | {
      readonly kind: "status";
      readonly status: number;
      readonly code: string;
      readonly isApplied: boolean;
      readonly retryAfterS?: number;
    }
  /** Status 200, the error in the body. The request was not applied. */
  | { readonly kind: "error under 200" }
  /** A page of a proxy or a portal. */
  | { readonly kind: "html"; readonly status: number }
  /** No answer, ever. */
  | { readonly kind: "hang" };

/** What the proxy knows when it decides. */
export interface Seen {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
}

export type Plan = (seen: Seen) => Fault | undefined;

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** A running proxy. */
export class FaultProxy {
  /** Decides about each request; can be changed at any time. */
  plan: Plan = () => undefined;
  /** Requests by what was done to them. */
  readonly counts: Record<string, number> = {};
  readonly #server: Server;
  readonly #target: URL;
  readonly #timers = new Set<NodeJS.Timeout>();

  private constructor(target: string) {
    this.#target = new URL(target);
    this.#server = createServer((incoming, outgoing) => {
      this.#serve(incoming, outgoing).catch(() => incoming.socket.destroy());
    });
    this.#server.keepAliveTimeout = 60_000;
  }

  static async start(target: string): Promise<FaultProxy> {
    const proxy = new FaultProxy(target);
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #serve(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const { method = "GET", url: path = "/", headers } = incoming;
    const fault = this.plan({ method, path, headers });
    const name =
      fault?.kind === "status" ? `${fault.status}${fault.isApplied ? ", applied" : ""}` : (fault?.kind ?? "none");
    this.counts[name] = (this.counts[name] ?? 0) + 1;
    if (fault?.kind === "reset") {
      incoming.socket.destroy();
      return;
    }
    const body = await collect(incoming);
    const forward = (): Promise<Answer> => this.#forward(method, path, headers, body);
    switch (fault?.kind) {
      case undefined:
        send(outgoing, await forward());
        return;
      case "delay":
        await this.#sleep(fault.ms);
        send(outgoing, await forward());
        return;
      case "lose answer":
        await forward();
        incoming.socket.destroy();
        return;
      case "apply late":
        incoming.socket.destroy();
        await this.#sleep(fault.ms);
        await forward();
        return;
      case "truncate":
        cut(outgoing, await forward(), fault.share);
        return;
      case "status":
        if (fault.isApplied) await forward();
        outgoing.writeHead(fault.status, {
          "content-type": "application/xml",
          ...(fault.retryAfterS !== undefined && { "retry-after": String(fault.retryAfterS) }),
        });
        outgoing.end(errorBody(fault.code));
        return;
      case "error under 200":
        outgoing.writeHead(200, { "content-type": "application/xml" });
        outgoing.end(errorBody("InternalError"));
        return;
      case "html":
        outgoing.writeHead(fault.status, { "content-type": "text/html" });
        outgoing.end("<!doctype html><html><body>Please log in to use this network.</body></html>");
        return;
      case "hang":
        return;
    }
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.#timers.delete(timer);
        resolve();
      }, ms);
      this.#timers.add(timer);
    });
  }

  /** The Host header stays the client's: its signature covers it. */
  #forward(method: string, path: string, headers: IncomingHttpHeaders, body: Buffer): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const { hostname, port } = this.#target;
      const sending = requestHttp({ hostname, port, method, path, headers, agent: false, setHost: false });
      sending.on("error", reject);
      sending.on("response", (response) => {
        collect(response).then(
          (bytes) => resolve({ status: response.statusCode ?? 502, headers: response.headers, body: bytes }),
          reject,
        );
      });
      sending.end(body);
    });
  }
}

async function collect(message: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of message) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function passedOn({ headers, body }: Answer): IncomingHttpHeaders {
  const { connection: _, "transfer-encoding": __, "keep-alive": ___, ...rest } = headers;
  return { ...rest, "content-length": String(body.byteLength) };
}

function send(outgoing: ServerResponse, answer: Answer): void {
  outgoing.writeHead(answer.status, passedOn(answer));
  outgoing.end(answer.body);
}

function cut(outgoing: ServerResponse, answer: Answer, share: number): void {
  outgoing.writeHead(answer.status, passedOn(answer));
  outgoing.write(answer.body.subarray(0, Math.floor(share * answer.body.byteLength)), () => outgoing.destroy());
  if (answer.body.byteLength === 0) outgoing.destroy();
}

function errorBody(code: string): string {
  return `<?xml version="1.0" encoding="UTF-8"?><Error><Code>${code}</Code><Message>planned by the fault proxy</Message></Error>`;
}

const storms = [
  { status: 503, code: "SlowDown" },
  { status: 500, code: "InternalError" },
  { status: 409, code: "ConditionalRequestConflict" },
  { status: 429, code: "TooManyRequests" },
] as const;

function pick(random: () => number): (typeof storms)[number] {
  return storms[Math.floor(random() * storms.length)] as (typeof storms)[number];
}

/**
 * A bad day: every request has a small chance of each fault, and now and then a storm turns most requests away for a moment.
 * `random` is uniform in [0, 1).
 */
export function badDay(random: () => number, rate: number): Plan {
  let storm: { readonly untilMs: number; readonly of: (typeof storms)[number] } | undefined;
  return () => {
    if (!storm && random() < rate / 20) {
      storm = { untilMs: performance.now() + 1_000 * random(), of: pick(random) };
    }
    if (storm && performance.now() > storm.untilMs) storm = undefined;
    if (storm && random() < 0.8) return { kind: "status", ...storm.of, isApplied: random() < 0.2 };
    if (random() >= rate) return undefined;
    const roll = Math.floor(random() * 8);
    switch (roll) {
      case 0:
      case 1:
        return { kind: "lose answer" };
      case 2:
        return { kind: "reset" };
      case 3:
        return { kind: "delay", ms: random() * 800 };
      case 4:
        return { kind: "truncate", share: random() };
      case 5:
        return { kind: "apply late", ms: random() * 1_500 };
      case 6:
        return { kind: "error under 200" };
      default:
        return {
          kind: "status",
          ...pick(random),
          isApplied: random() < 0.5,
        };
    }
  };
}
