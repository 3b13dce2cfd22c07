/** Objects in this process's memory: for tests, simulation and `memory:`. */
import { assertBytesMax, assertRange, listLimit } from "./arguments.js";
import { copyBody } from "./body.js";
import { assertKey } from "./key.js";
import type {
  Body,
  CallOptions,
  CreateOutcome,
  GetOptions,
  ListedObject,
  ListOptions,
  ListPage,
  ObjectStore,
} from "./object-store.js";

/** An {@link ObjectStore} that lives and dies with its process. Bytes are copied in and out, so no caller can change a stored object. */
export class MemoryStore implements ObjectStore {
  readonly uri: string;
  readonly #objects = new Map<string, Uint8Array>();
  /** Every key in byte order (keys are ASCII, so string order is byte order). Kept sorted, because listing must not sort each time. */
  #sorted: string[] = [];

  constructor(uri = "memory:") {
    this.uri = uri;
  }

  async create(key: string, body: Body, options?: CallOptions): Promise<CreateOutcome> {
    assertKey(key);
    options?.signal?.throwIfAborted();
    if (this.#objects.has(key)) return "exists";
    this.#set(key, copyBody(body));
    return "created";
  }

  async put(key: string, body: Body, options?: CallOptions): Promise<void> {
    assertKey(key);
    options?.signal?.throwIfAborted();
    this.#set(key, copyBody(body));
  }

  async get(key: string, options?: GetOptions): Promise<Uint8Array | undefined> {
    assertKey(key);
    options?.signal?.throwIfAborted();
    const found = this.#objects.get(key);
    if (found) assertBytesMax(key, found.byteLength, options?.bytesMax);
    return found?.slice();
  }

  async getRange(key: string, start: number, length: number, options?: CallOptions): Promise<Uint8Array | undefined> {
    assertKey(key);
    assertRange(key, start, length);
    options?.signal?.throwIfAborted();
    return this.#objects.get(key)?.slice(start, start + length);
  }

  async list(prefix: string, options?: ListOptions): Promise<ListPage> {
    const limit = listLimit(options);
    options?.signal?.throwIfAborted();
    const startAfter = options?.startAfter ?? "";
    let at = startAfter >= prefix ? this.#position(startAfter) : this.#position(prefix);
    if (this.#sorted[at] === startAfter) at++;
    const objects: ListedObject[] = [];
    for (; at < this.#sorted.length; at++) {
      const key = this.#sorted[at] as string;
      if (!key.startsWith(prefix)) break;
      if (objects.length === limit) return { objects, more: true };
      objects.push({ key, size: (this.#objects.get(key) as Uint8Array).byteLength });
    }
    return { objects, more: false };
  }

  async delete(keys: readonly string[], options?: CallOptions): Promise<void> {
    for (const key of keys) assertKey(key);
    options?.signal?.throwIfAborted();
    const gone = keys.filter((key) => this.#objects.delete(key));
    if (gone.length > 8) this.#sorted = this.#sorted.filter((key) => this.#objects.has(key));
    else for (const key of gone) this.#sorted.splice(this.#position(key), 1);
  }

  #set(key: string, bytes: Uint8Array): void {
    if (!this.#objects.has(key)) this.#sorted.splice(this.#position(key), 0, key);
    this.#objects.set(key, bytes);
  }

  /** Index of the first key that is not before `key`. */
  #position(key: string): number {
    let low = 0;
    let high = this.#sorted.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#sorted[middle] as string) < key) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
