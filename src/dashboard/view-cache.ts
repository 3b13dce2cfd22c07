/** Answers that are made once for all requests that come at about the same time. */
import type { Env } from "../index.js";

interface Kept {
  readonly atMs: number;
  readonly value: Promise<unknown>;
}

/** Answers kept at most. */
const keptMax = 256;

/** Keeps answers for as long as their view says. A failure is kept for a moment too: a store that is down must not be asked by every page. */
export class ViewCache {
  readonly #env: Env;
  readonly #kept = new Map<string, Kept>();

  constructor(env: Env) {
    this.#env = env;
  }

  async get<T>(key: string, keepMs: number, make: () => Promise<T>): Promise<T> {
    const known = this.#kept.get(key);
    if (known && this.#env.monotonic() - known.atMs < keepMs) return (await known.value) as T;
    const value = make();
    this.#kept.delete(key);
    this.#kept.set(key, { atMs: this.#env.monotonic(), value });
    value.catch(() => {});
    const oldest = this.#kept.keys().next().value;
    if (this.#kept.size > keptMax && oldest !== undefined) this.#kept.delete(oldest);
    try {
      return await value;
    } catch (error) {
      // For a second: long enough for all who ask now, short enough that a store which is back is seen.
      if (this.#kept.get(key)?.value === value)
        this.#kept.set(key, { atMs: this.#env.monotonic() - keepMs + Math.min(keepMs, 1_000), value });
      throw error;
    }
  }
}
