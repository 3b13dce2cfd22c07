/**
 * Serves a store to processes of another language: the six calls, one after another on each connection of a local socket.
 *
 * A message is two lengths of four bytes each, big-endian, then so many bytes of JSON, then so many bytes of an object. A request names the
 * process that asks (`who`) and what it wants (`op`); the answer's JSON has `ok`, or `error` and `message`. Whatever is not one of the six
 * calls goes to `onReport`, which answers it with plain JSON.
 */
import { createServer, type Server, type Socket } from "node:net";
import { isBatchWeaveError } from "../src/errors.js";
import type { ObjectStore } from "../src/store/index.js";

/** A request as it comes. */
export interface StoreRequest {
  readonly who: string;
  readonly op: string;
  readonly key?: string;
  readonly keys?: readonly string[];
  readonly start?: number;
  readonly length?: number;
  readonly prefix?: string;
  readonly startAfter?: string;
  readonly limit?: number;
  readonly [field: string]: unknown;
}

interface Answer {
  readonly ok: unknown;
  readonly body?: Uint8Array | undefined;
}

/** What a server is made of. */
export interface StoreServerParts {
  /** The store as one process sees it. */
  storeOf(who: string): ObjectStore;
  /** Answers what is no store call. What it throws, `onError` is told. */
  onReport(request: StoreRequest): unknown;
  /** Told of everything that is not a failure of the store. The request is never answered. */
  onError(error: unknown): void;
}

const lengthsBytes = 8;

/** Listens at the path of a socket until it is closed. */
export class StoreServer {
  readonly #parts: StoreServerParts;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  constructor(parts: StoreServerParts) {
    this.#parts = parts;
    this.#server = createServer((socket) => this.#serve(socket));
  }

  listen(path: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen(path, resolve);
    });
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    // A process that is killed takes its connections along.
    socket.on("error", () => {});
    socket.on("close", () => this.#sockets.delete(socket));
    let buffered: Buffer = Buffer.alloc(0);
    socket.on("data", (data) => {
      buffered = buffered.length === 0 ? data : Buffer.concat([buffered, data]);
      while (buffered.length >= lengthsBytes) {
        const jsonEnd = lengthsBytes + buffered.readUInt32BE(0);
        const end = jsonEnd + buffered.readUInt32BE(4);
        if (buffered.length < end) return;
        const request = JSON.parse(buffered.toString("utf8", lengthsBytes, jsonEnd)) as StoreRequest;
        const body = new Uint8Array(buffered.subarray(jsonEnd, end));
        buffered = buffered.subarray(end);
        void this.#answer(socket, request, body);
      }
    });
  }

  async #answer(socket: Socket, request: StoreRequest, body: Uint8Array): Promise<void> {
    let answer: { ok?: unknown; error?: string; message?: string };
    let bytes: Uint8Array | undefined;
    try {
      const { ok, body: found } = await this.#perform(request, body);
      answer = { ok };
      bytes = found;
    } catch (error) {
      if (!isBatchWeaveError(error)) {
        this.#parts.onError(error);
        return;
      }
      answer = { error: error.code, message: error.message };
    }
    const json = Buffer.from(JSON.stringify(answer));
    const lengths = Buffer.alloc(lengthsBytes);
    lengths.writeUInt32BE(json.length, 0);
    lengths.writeUInt32BE(bytes?.length ?? 0, 4);
    if (!socket.destroyed) socket.write(Buffer.concat(bytes ? [lengths, json, bytes] : [lengths, json]));
  }

  async #perform(request: StoreRequest, body: Uint8Array): Promise<Answer> {
    const { op, key = "", prefix = "", startAfter, limit } = request;
    const store = this.#parts.storeOf(request.who);
    switch (op) {
      case "create":
        return { ok: await store.create(key, body) };
      case "put":
        await store.put(key, body);
        return { ok: null };
      case "get": {
        const found = await store.get(key);
        return { ok: found !== undefined, body: found };
      }
      case "getRange": {
        const found = await store.getRange(key, request.start ?? 0, request.length ?? 0);
        return { ok: found !== undefined, body: found };
      }
      case "list": {
        const { objects, more } = await store.list(prefix, { startAfter, limit });
        return { ok: { keys: objects.map((object) => object.key), more } };
      }
      case "delete":
        await store.delete(request.keys ?? []);
        return { ok: null };
      default:
        return { ok: this.#parts.onReport(request) ?? null };
    }
  }
}
