/** A memory store for millions of objects: keys are sorted when they are listed, not when they are written. */
import type { Body, CreateOutcome, ListOptions, ListPage, ObjectStore } from "../../src/index.js";

export class SortedStore implements ObjectStore {
  readonly uri = "memory:sorted";
  readonly #objects = new Map<string, Uint8Array>();
  #sorted: string[] | undefined;

  get size(): number {
    return this.#objects.size;
  }

  /** Stores without copying: many keys may share one body. */
  share(key: string, bytes: Uint8Array): void {
    if (!this.#objects.has(key)) this.#sorted = undefined;
    this.#objects.set(key, bytes);
  }

  async create(key: string, body: Body): Promise<CreateOutcome> {
    if (this.#objects.has(key)) return "exists";
    await this.put(key, body);
    return "created";
  }

  async put(key: string, body: Body): Promise<void> {
    this.share(key, body instanceof Uint8Array ? body : Buffer.concat(body as Uint8Array[]));
  }

  async get(key: string): Promise<Uint8Array | undefined> {
    return this.#objects.get(key);
  }

  async getRange(key: string, start: number, length: number): Promise<Uint8Array | undefined> {
    return this.#objects.get(key)?.subarray(start, start + length);
  }

  async list(prefix: string, options: ListOptions = {}): Promise<ListPage> {
    this.#sorted ??= [...this.#objects.keys()].sort();
    const { startAfter = "", limit = 1_000 } = options;
    const objects: { key: string; size: number }[] = [];
    for (let at = this.#position(startAfter > prefix ? startAfter : prefix); at < this.#sorted.length; at++) {
      const key = this.#sorted[at] as string;
      if (!key.startsWith(prefix)) break;
      const bytes = this.#objects.get(key);
      if (key === startAfter || !bytes) continue;
      if (objects.length === limit) return { objects, more: true };
      objects.push({ key, size: bytes.length });
    }
    return { objects, more: false };
  }

  /** Deleted keys stay in the sorted list until it is made anew. */
  async delete(keys: readonly string[]): Promise<void> {
    for (const key of keys) this.#objects.delete(key);
  }

  #position(key: string): number {
    const sorted = this.#sorted as string[];
    let [low, high] = [0, sorted.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((sorted[middle] as string) < key) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
