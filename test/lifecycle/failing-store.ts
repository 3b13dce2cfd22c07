/** A store that dies at a chosen call: before it takes effect, or after. From then on every call fails, as for a process that is gone. */
import type { Body, CallOptions, CreateOutcome, ListOptions, ListPage, ObjectStore } from "../../src/store/index.js";

export class Crash extends Error {
  override readonly name = "Crash";
}

export class FailingStore implements ObjectStore {
  readonly uri: string;
  readonly #store: ObjectStore;
  readonly #dieAt: number;
  readonly #effect: "before" | "after";
  calls = 0;
  /** Calls by kind, in order. */
  readonly seen: string[] = [];

  constructor(store: ObjectStore, dieAt = Number.POSITIVE_INFINITY, effect: "before" | "after" = "before") {
    this.uri = store.uri;
    this.#store = store;
    this.#dieAt = dieAt;
    this.#effect = effect;
  }

  async #call<T>(name: string, work: () => Promise<T>): Promise<T> {
    const number = this.calls++;
    this.seen.push(name);
    if (number > this.#dieAt || (number === this.#dieAt && this.#effect === "before")) throw new Crash(name);
    const result = await work();
    if (number === this.#dieAt) throw new Crash(name);
    return result;
  }

  create(key: string, body: Body, options?: CallOptions): Promise<CreateOutcome> {
    return this.#call(`create ${key}`, () => this.#store.create(key, body, options));
  }

  put(key: string, body: Body, options?: CallOptions): Promise<void> {
    return this.#call(`put ${key}`, () => this.#store.put(key, body, options));
  }

  get(key: string, options?: CallOptions): Promise<Uint8Array | undefined> {
    return this.#call(`get ${key}`, () => this.#store.get(key, options));
  }

  getRange(key: string, start: number, length: number, options?: CallOptions): Promise<Uint8Array | undefined> {
    return this.#call(`getRange ${key}`, () => this.#store.getRange(key, start, length, options));
  }

  list(prefix: string, options?: ListOptions): Promise<ListPage> {
    return this.#call(`list ${prefix}`, () => this.#store.list(prefix, options));
  }

  delete(keys: readonly string[], options?: CallOptions): Promise<void> {
    return this.#call(`delete ${keys[0]}`, () => this.#store.delete(keys, options));
  }
}
