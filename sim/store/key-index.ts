/** Keys in byte order, for LIST: sorted chunks of bounded size, so that millions of keys come and go cheaply. */

const chunkKeysMax = 512;

/** A sorted set of strings. Keys are ASCII, so the order of JavaScript strings is byte order. */
export class KeyIndex {
  readonly #chunks: string[][] = [];
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Adds a key that is not there yet. */
  add(key: string): void {
    this.#size++;
    const chunks = this.#chunks;
    const at = Math.max(0, this.#chunkOf(key));
    const chunk = chunks[at];
    if (chunk === undefined) {
      chunks.push([key]);
      return;
    }
    const position = lowerBound(chunk, key);
    if (position === chunk.length) chunk.push(key);
    else chunk.splice(position, 0, key);
    if (chunk.length > chunkKeysMax) {
      // Keys mostly ascend; a split at the very end leaves full chunks behind instead of half empty ones.
      const half = position === chunk.length - 1 ? chunk.length - 1 : chunk.length >> 1;
      chunks.splice(at + 1, 0, chunk.splice(half));
    }
  }

  /** Removes a key that is there. */
  remove(key: string): void {
    const at = this.#chunkOf(key);
    const chunk = this.#chunks[at];
    if (chunk === undefined) return;
    const position = lowerBound(chunk, key);
    if (chunk[position] !== key) return;
    this.#size--;
    chunk.splice(position, 1);
    if (chunk.length === 0) this.#chunks.splice(at, 1);
  }

  /** Up to `limit` keys that start with `prefix` and come strictly after `startAfter`. */
  page(prefix: string, startAfter: string, limit: number): string[] {
    const out: string[] = [];
    const from = startAfter > prefix ? startAfter : prefix;
    let at = Math.max(0, this.#chunkOf(from));
    let position = lowerBound(this.#chunks[at] ?? [], from);
    for (; at < this.#chunks.length; at++, position = 0) {
      const chunk = this.#chunks[at] as string[];
      for (; position < chunk.length; position++) {
        const key = chunk[position] as string;
        if (!key.startsWith(prefix)) {
          if (key > prefix) return out;
          continue;
        }
        if (key <= startAfter) continue;
        if (out.length === limit) return out;
        out.push(key);
      }
    }
    return out;
  }

  /** The last chunk whose first key is not after `key`; -1 when there is none. */
  #chunkOf(key: string): number {
    let low = 0;
    let high = this.#chunks.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (((this.#chunks[middle] as string[])[0] as string) <= key) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }
}

function lowerBound(keys: readonly string[], key: string): number {
  let low = 0;
  let high = keys.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((keys[middle] as string) < key) low = middle + 1;
    else high = middle;
  }
  return low;
}
