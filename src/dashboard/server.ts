/** The local server: who may ask, what is answered, and for how long a store is waited for. */
import { createHash, timingSafeEqual } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { BatchWeaveError, type Env, isBatchWeaveError } from "../index.js";
import type { Tokenizer } from "../plan/index.js";
import { type Access, Catalog } from "./catalog.js";
import type { LogViews } from "./log-views.js";
import type { FailureView } from "./views.js";

/** Settings of {@link serveDashboard}. */
export interface DashboardSettings {
  /** A namespace, or a place with some below it. */
  readonly uri: string;
  /** Default 127.0.0.1: only this machine. */
  readonly host?: string | undefined;
  /** Default 0: any that is free. */
  readonly port?: number | undefined;
  /** Default: a new random one. */
  readonly token?: string | undefined;
  /** Shows tokens as text. */
  readonly tokenizer?: { readonly name: string; readonly decode: Tokenizer["decode"] } | undefined;
  /** What a GB costs for a month. Default 0.023, the list price of S3 Standard. */
  readonly dollarsPerGbMonth?: number | undefined;
  /** How long a store may take for one view. Default 10,000. */
  readonly answerMsMax?: number | undefined;
  /** Where the built page lies. Default: beside this package's code. */
  readonly page?: URL | undefined;
}

/** A running dashboard. */
export interface Dashboard {
  /** With the token, behind `#`, where no server and no log sees it. */
  readonly url: string;
  close(): Promise<void>;
}

const tokenLengthMin = 16;
const requestsInFlightMax = 64;
/** The page's own files. Anything else is not there. */
const files: Readonly<Record<string, string>> = {
  "/": "index.html",
  "/index.html": "index.html",
  "/page.js": "page.js",
  "/page.css": "page.css",
};
const types: Readonly<Record<string, string>> = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
};
/** Nothing from elsewhere, nothing inline, nothing framed: a name in a log that is a script stays a name. */
const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const headers: Readonly<Record<string, string>> = {
  "content-security-policy": policy,
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "cache-control": "no-store",
};

/** Starts serving. */
export async function serveDashboard(settings: DashboardSettings, access: Access): Promise<Dashboard> {
  const { host = "127.0.0.1", port = 0, token = access.env.uuid() } = settings;
  if (token.length < tokenLengthMin || !/^[\w.~-]+$/.test(token)) {
    const message = `A token has at least ${tokenLengthMin} letters, digits, dots, hyphens, underscores or tildes; the one given has not. Leave it out for a random one.`;
    throw new BatchWeaveError("INVALID_ARGUMENT", message);
  }
  const page = await loadPage(settings.page ?? new URL("../../dashboard/", import.meta.url));
  const answer = new Answers(settings, access);
  const isLoopback = /^(127(\.\d+){3}|::1|localhost)$/.test(host);
  let inFlight = 0;
  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const url = new URL(request.url ?? "/", "http://dashboard");
    const isRead = request.method === "GET" || request.method === "HEAD";
    // A page of another site that made its own name point here is not answered, token or not.
    if (!isRead || (isLoopback && !isOwnHost(request.headers.host)))
      return send(response, isRead ? 403 : 405, "text/plain", "");
    const file = files[url.pathname];
    if (file !== undefined) {
      const type = types[file.split(".").at(-1) as string] as string;
      return send(response, 200, type, page.get(file) as Buffer);
    }
    if (!url.pathname.startsWith("/api/")) return send(response, 404, "text/plain", "not here\n");
    if (!isToken(request.headers.authorization, token))
      return sendFailure(
        response,
        401,
        "TOKEN",
        "The token is missing or wrong. Open the address that the command printed.",
      );
    if (inFlight >= requestsInFlightMax)
      return sendFailure(response, 503, "BUSY", "Too many requests at once. Try again in a moment.");
    inFlight++;
    try {
      const view = await answer.view(url.pathname.slice(5), url.searchParams);
      if (view === undefined) return sendFailure(response, 404, "NOT_FOUND", noView(url.pathname));
      send(response, 200, "application/json", JSON.stringify(view));
    } catch (error) {
      const { status, code, message } = failureOf(error);
      sendFailure(response, status, code, message);
    } finally {
      inFlight--;
    }
  };
  const server = createServer((request, response) => {
    handle(request, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause: NodeJS.ErrnoException) => {
      const why = cause.code === "EADDRINUSE" ? "the port is taken" : cause.message;
      const message = `The dashboard cannot be served on ${host}:${port}: ${why}. Choose another port, or 0 for any.`;
      reject(new BatchWeaveError("INVALID_ARGUMENT", message, { host, port }, cause));
    });
    server.listen(port, host, resolve);
  });
  const { port: found } = server.address() as AddressInfo;
  const shownHost = host === "0.0.0.0" || host === "::" ? "localhost" : host.includes(":") ? `[${host}]` : host;
  return {
    url: `http://${shownHost}:${found}/#token=${token}`,
    close: async () => {
      answer.stop();
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
    },
  };
}

/** The views by name, each within its time. */
class Answers {
  readonly #env: Env;
  readonly #catalog: Catalog;
  readonly #root: string;
  readonly #answerMsMax: number;
  readonly #stopped = new AbortController();

  constructor(settings: DashboardSettings, access: Access) {
    this.#env = access.env;
    this.#root = settings.uri;
    this.#answerMsMax = settings.answerMsMax ?? 10_000;
    const { tokenizer, dollarsPerGbMonth = 0.023 } = settings;
    const views = { tokenizer, dollarsPerGbMonth, diagnose: access.diagnose };
    this.#catalog = new Catalog(settings.uri, access, views, tokenizer?.name);
  }

  stop(): void {
    this.#stopped.abort();
  }

  async view(name: string, query: URLSearchParams): Promise<unknown> {
    const late = new AbortController();
    const done = new AbortController();
    const signal = AbortSignal.any([late.signal, this.#stopped.signal]);
    const overdue = this.#env.sleep(this.#answerMsMax, done.signal).then(
      () => {
        const seconds = Math.round(this.#answerMsMax / 1_000);
        const message = `The store has not answered for ${seconds} s. Check that it can be reached from this machine.`;
        const error = new BatchWeaveError("STORE_UNAVAILABLE", message);
        // The next one who asks tries again; this look must not hold connections until then.
        late.abort(error);
        throw error;
      },
      () => new Promise<never>(() => {}),
    );
    overdue.catch(() => {});
    try {
      return await Promise.race([this.#make(name, query, signal), overdue]);
    } finally {
      done.abort();
    }
  }

  async #make(name: string, query: URLSearchParams, signal: AbortSignal): Promise<unknown> {
    if (name === "overview") return await this.#catalog.overview(signal);
    const uri = query.get("ns") ?? this.#root;
    if (name === "family") return await this.#catalog.family(uri, signal);
    const view = Object.hasOwn(ofLog, name) ? ofLog[name] : undefined;
    // Before any namespace is looked for: a name that is no view's has nothing to do with what is stored.
    return view && (await view(await this.#catalog.views(uri, signal), query, signal));
  }
}

/** The views of one log, by name. */
const ofLog: Readonly<
  Record<string, (views: LogViews, query: URLSearchParams, signal: AbortSignal) => Promise<unknown>>
> = {
  log: (views, _, signal) => views.log(signal),
  history: (views, _, signal) => views.history(signal),
  steps: (views, query, signal) => views.steps(query.has("from") ? whole(query, "from") : undefined, signal),
  fleet: (views, query, signal) => views.fleet((query.get("q") ?? "").slice(0, 256), whole(query, "page", 0), signal),
  health: (views, _, signal) => views.health(signal),
  sources: (views, _, signal) => views.sources(signal),
  storage: (views, _, signal) => views.storage(signal),
  step: (views, query, signal) => views.step(whole(query, "step"), signal),
  slice: (views, query, signal) =>
    views.slice({ step: whole(query, "step"), row: whole(query, "row", 0), chunk: whole(query, "chunk", 0) }, signal),
};

function noView(path: string): string {
  const names = ["overview", "family", ...Object.keys(ofLog)].map((name) => `/api/${name}`);
  return `There is no ${path.slice(0, 100)} here. There are ${names.join(", ")}.`;
}

function whole(query: URLSearchParams, name: string, otherwise?: number): number {
  const text = query.get(name);
  if (text === null && otherwise !== undefined) return otherwise;
  if (text !== null && /^\d{1,15}$/.test(text)) return Number(text);
  throw new BatchWeaveError("INVALID_ARGUMENT", `${name} must be a whole number, not ${JSON.stringify(text)}.`);
}

async function loadPage(folder: URL): Promise<ReadonlyMap<string, Buffer>> {
  const names = new Set(Object.values(files));
  try {
    return new Map(
      await Promise.all([...names].map(async (name) => [name, await readFile(new URL(name, folder))] as const)),
    );
  } catch (cause) {
    const message = "The dashboard's page is not built. Build it with: npm run build";
    throw new BatchWeaveError("MISSING_PACKAGE", message, {}, cause);
  }
}

function isOwnHost(host: string | undefined): boolean {
  return /^(localhost|127(\.\d+){3}|\[::1\])(:\d+)?$/.test(host ?? "");
}

/** Compared by hash, so that neither length nor content shows in the time it takes. */
function isToken(given: string | undefined, token: string): boolean {
  const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(given ?? ""), digest(`Bearer ${token}`));
}

function failureOf(error: unknown): { status: number; code: string; message: string } {
  if (!isBatchWeaveError(error)) {
    const message = error instanceof Error ? error.message : String(error);
    return { status: 500, code: "INTERNAL", message };
  }
  const { code, message, remedy } = error;
  const status = code === "NO_NAMESPACE" || code === "RECLAIMED" ? 404 : remedy === "retry" ? 503 : 400;
  return { status, code, message };
}

function sendFailure(response: ServerResponse, status: number, code: string, message: string): void {
  send(response, status, "application/json", JSON.stringify({ error: { code, message } } satisfies FailureView));
}

function send(response: ServerResponse, status: number, type: string, body: string | Buffer): void {
  response.writeHead(status, { ...headers, "content-type": type });
  response.end(body);
}
