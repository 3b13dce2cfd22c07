/** Whole immutable objects kept in memory, within a byte limit. */
import { onAbort } from "../../env/index.js";
import { type LinkedAbort, linkAbort } from "../linked-abort.js";
import type { CallOptions, ObjectStore } from "../object-store.js";
import { withUploads } from "./uploads.js";

/** Settings of {@link withCache}. */
export interface CacheSettings {
  /** Bytes kept at most. */
  bytesMax: number;
  /** Only keys that start with one of these are kept. Default: all. */
  prefixes?: readonly string[] | undefined;
}

/** One fetch that several callers wait for. It is aborted only when all of them have gone. */
interface Flight {
  readonly result: Promise<Uint8Array | undefined>;
  readonly abort: LinkedAbort;
  waiting: number;
}

type Load = (signal: AbortSignal) => Promise<Uint8Array | undefined>;

class ObjectCache {
  readonly #bytesMax: number;
  /** In order of last use, oldest first. */
  readonly #objects = new Map<string, Uint8Array>();
  readonly #flights = new Map<string, Flight>();
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** The cached object, now the most recently used. */
  find(key: string): Uint8Array | undefined {
    const bytes = this.#objects.get(key);
    if (bytes === undefined) return undefined;
    this.#objects.delete(key);
    this.#objects.set(key, bytes);
    return bytes;
  }

  /** Drops the object, and keeps a fetch that is under way from bringing it back. */
  drop(key: string): void {
    this.#bytes -= this.#objects.get(key)?.byteLength ?? 0;
    this.#objects.delete(key);
    this.#flights.delete(key);
  }

  /** Joins the fetch of `key` that is under way, or begins one. */
  async fetch(key: string, options: CallOptions | undefined, load: Load): Promise<Uint8Array | undefined> {
    const underWay = this.#flights.get(key);
    const joined = underWay && (await this.#board(key, underWay, options?.signal));
    // Absence that was looked up before this call began proves nothing: the object may have been created in between.
    return joined ?? this.#board(key, this.#begin(key, load), options?.signal);
  }

  async #board(key: string, flight: Flight, signal: AbortSignal | undefined): Promise<Uint8Array | undefined> {
    flight.waiting++;
    try {
      return await untilAborted(flight.result, signal);
    } finally {
      if (--flight.waiting === 0) {
        if (this.#flights.get(key) === flight) this.#flights.delete(key);
        flight.abort.abort(signal?.reason);
      }
    }
  }

  #begin(key: string, load: Load): Flight {
    const abort = linkAbort(undefined);
    const result = load(abort.signal).then(
      (bytes) => {
        if (this.#flights.get(key) === flight) {
          this.#flights.delete(key);
          // Absence is never kept: the next writer may create the object at any moment.
          if (bytes !== undefined) this.#keep(key, bytes);
        }
        return bytes;
      },
      (e: unknown) => {
        if (this.#flights.get(key) === flight) this.#flights.delete(key);
        throw e;
      },
    );
    result.catch(() => {}); // everybody who waited may be gone
    const flight: Flight = { result, abort, waiting: 0 };
    this.#flights.set(key, flight);
    return flight;
  }

  #keep(key: string, bytes: Uint8Array): void {
    if (bytes.byteLength > this.#bytesMax) return;
    this.#bytes += bytes.byteLength - (this.#objects.get(key)?.byteLength ?? 0);
    this.#objects.delete(key);
    this.#objects.set(key, bytes);
    for (const [oldest, dropped] of this.#objects) {
      if (this.#bytes <= this.#bytesMax) break;
      this.#objects.delete(oldest);
      this.#bytes -= dropped.byteLength;
    }
  }
}

/** `promise`, or the signal's reason if that comes first. */
async function untilAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return promise;
  let unlisten: (() => void) | undefined;
  const aborted = new Promise<never>((_, reject) => {
    unlisten = onAbort(signal, () => reject(signal.reason));
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    unlisten?.();
  }
}

/**
 * `store`, with whole objects that `get` fetched kept in memory, least recently used first out; simultaneous gets of one key are one request.
 * Only for objects that never change: another process's delete is not seen. Callers share the returned bytes and must not change them.
 */
export function withCache(store: ObjectStore, settings: CacheSettings): ObjectStore {
  const cache = new ObjectCache(settings.bytesMax);
  const { prefixes } = settings;
  const isKept = (key: string): boolean => prefixes === undefined || prefixes.some((prefix) => key.startsWith(prefix));
  return {
    ...withUploads(store),
    uri: store.uri,
    create: (key, body, options) => store.create(key, body, options),
    async put(key, body, options) {
      cache.drop(key);
      await store.put(key, body, options).finally(() => cache.drop(key));
    },
    async get(key, options) {
      options?.signal?.throwIfAborted();
      if (!isKept(key)) return store.get(key, options);
      return cache.find(key) ?? cache.fetch(key, options, (signal) => store.get(key, { signal }));
    },
    async getRange(key, start, length, options) {
      options?.signal?.throwIfAborted();
      const whole = isKept(key) && start >= 0 && length >= 0 ? cache.find(key) : undefined;
      return whole?.subarray(start, start + length) ?? store.getRange(key, start, length, options);
    },
    list: (prefix, options) => store.list(prefix, options),
    async delete(keys, options) {
      for (const key of keys) cache.drop(key);
      await store.delete(keys, options).finally(() => {
        for (const key of keys) cache.drop(key);
      });
    },
  };
}
