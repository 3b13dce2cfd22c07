/** The six calls everything is built on. Backends implement it; decorators wrap it. */

/** What is known after a conditional create. Nothing guesses: a lost answer is `unknown`, never `exists`. */
export type CreateOutcome = "created" | "exists" | "unknown";

/** One buffer, or several that are stored one after another (no copy is made to join them). */
export type Body = Uint8Array | readonly Uint8Array[];

/** Options of every call. An abort rejects with the signal's own reason. */
export interface CallOptions {
  signal?: AbortSignal | undefined;
}

/** Options of {@link ObjectStore.get}. */
export interface GetOptions extends CallOptions {
  /** A larger object is refused (LIMIT) before it takes memory: it is not what its name says. */
  bytesMax?: number | undefined;
}

/** Options of {@link ObjectStore.put} and {@link ObjectStore.delete}. */
export interface WriteOptions extends CallOptions {
  /** Nothing depends on this write. A store may do it in a cheaper way that a power failure can undo. */
  hint?: boolean | undefined;
  /**
   * No reader knows this key before the call has returned, and nothing was ever written under it but these very bytes. A store may write them in
   * place, so that a listing, or a crash, can show part of the object.
   */
  unknownKey?: boolean | undefined;
}

/** Options of {@link ObjectStore.list}. */
export interface ListOptions extends CallOptions {
  /** Only keys strictly after this one, in byte order. */
  startAfter?: string | undefined;
  /** The sizes are of no interest: a store that would have to look for them may say 0. */
  keysOnly?: boolean | undefined;
  /** At most this many keys (and never more than 1,000). */
  limit?: number | undefined;
}

/** Options of {@link ObjectStore.abortUploads}. */
export interface AbortUploadsOptions extends CallOptions {
  /** Asked of every upload that is old enough, by its key: false leaves it alone. Default: all of them. */
  only?: ((key: string) => boolean) | undefined;
}

/** One listed object. */
export interface ListedObject {
  readonly key: string;
  readonly size: number;
}

/** A page of a listing, in byte order of the keys. `more`: call again with `startAfter` the last key. */
export interface ListPage {
  readonly objects: readonly ListedObject[];
  readonly more: boolean;
}

/**
 * A flat map from keys to immutable byte strings.
 *
 * Keys are relative to the store's root: segments of `[A-Za-z0-9._=-]` joined by `/`, no empty, `.` or `..` segment, at most 900 bytes.
 * Reads see every write that has returned. No reader ever sees part of an object.
 * Failures are a `BatchWeaveError` (STORE_*), except an abort, whose reason passes through.
 */
export interface ObjectStore {
  /** For messages: where this is, without secrets. */
  readonly uri: string;
  /** Conditional create (If-None-Match: *). Never retried by a backend or a decorator. Throws only when certainly nothing was written. */
  create(key: string, body: Body, options?: CallOptions): Promise<CreateOutcome>;
  /** Unconditional write of an object whose key no other writer uses for other bytes. May be retried. */
  put(key: string, body: Body, options?: WriteOptions): Promise<void>;
  /** The whole object, or undefined when there is none. */
  get(key: string, options?: GetOptions): Promise<Uint8Array | undefined>;
  /**
   * Bytes `[start, start + length)`, exactly that many unless the object ends before; undefined when there is no object.
   * A start at or past the end gives an empty array.
   */
  getRange(key: string, start: number, length: number, options?: CallOptions): Promise<Uint8Array | undefined>;
  /** One page of the keys that start with `prefix` (any string prefix), in byte order. */
  list(prefix: string, options?: ListOptions): Promise<ListPage>;
  /** Deletes; absent keys are fine. Any number of keys. */
  delete(keys: readonly string[], options?: WriteOptions): Promise<void>;
  /**
   * Resolves when an object that was read under this key survives power loss: its writer may not have come so far yet. Absent where
   * whatever can be read survives it.
   */
  sync?(key: string, options?: CallOptions): Promise<void>;
  /**
   * Gets rid of uploads of keys that start with `prefix` that began more than `olderThanMs` ago and never became an object; gives their
   * number. Objects are never touched; an upload that is still going on fails with STORE_UNAVAILABLE and may be begun again. Absent where
   * nothing is left behind, or where it vanishes by itself.
   */
  abortUploads?(prefix: string, olderThanMs: number, options?: AbortUploadsOptions): Promise<number>;
}
