/** The bytes of a shard, wherever it is: a local file of any name, or an object of any store the package knows. Range reads only. */
import { type FileHandle, open } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { BatchWeaveError, type Env, type ObjectStore, openStore, type StoreSettings, withRetry } from "../../index.js";

/** Random access to the bytes of one shard. */
export interface ShardBytes extends AsyncDisposable {
  readonly uri: string;
  readonly size: number;
  /** Bytes `[start, start + length)`, fewer at the end. */
  read(start: number, length: number, signal?: AbortSignal | undefined): Promise<Uint8Array>;
}

/** How shards are reached. */
export interface ShardAccess {
  readonly env: Env;
  readonly storeSettings?: StoreSettings | undefined;
  /** Told how many bytes each read took. */
  readonly onRead?: ((bytes: number) => void) | undefined;
}

/** A path, or undefined when the URI names a store. */
export function localPath(uri: string): string | undefined {
  if (uri.startsWith("file:")) return fileURLToPath(uri);
  return /^[A-Za-z][A-Za-z0-9+.-]+:/.test(uri) ? undefined : uri;
}

/** A store and a key from the URI of one object: `s3://bucket/a/b.jsonl` is `b.jsonl` below `s3://bucket/a`. */
export function splitObjectUri(uri: string): { readonly folder: string; readonly key: string } {
  const slash = uri.lastIndexOf("/");
  return { folder: uri.slice(0, slash), key: uri.slice(slash + 1) };
}

/** Opens a shard. A shard that is not there is MISSING_OBJECT. */
export async function openShardBytes(uri: string, access: ShardAccess): Promise<ShardBytes> {
  const path = localPath(uri);
  const bytes = path === undefined ? await openObject(uri, access) : await openPath(uri, path);
  const { onRead } = access;
  if (!onRead) return bytes;
  return {
    uri,
    size: bytes.size,
    async read(start, length, signal) {
      const piece = await bytes.read(start, length, signal);
      onRead(piece.length);
      return piece;
    },
    [Symbol.asyncDispose]: () => bytes[Symbol.asyncDispose](),
  };
}

function missing(uri: string, cause?: unknown): BatchWeaveError {
  return new BatchWeaveError(
    "MISSING_OBJECT",
    `The shard ${uri} is not there. Put it back, or leave it out of its source.`,
    { uri },
    cause,
  );
}

async function openPath(uri: string, path: string): Promise<ShardBytes> {
  let handle: FileHandle;
  try {
    handle = await open(path, "r");
  } catch (cause) {
    throw missing(uri, cause);
  }
  const { size } = await handle.stat();
  return {
    uri,
    size,
    async read(start, length, signal) {
      signal?.throwIfAborted();
      const bytes = Buffer.allocUnsafe(Math.max(0, Math.min(length, size - start)));
      let done = 0;
      while (done < bytes.length) {
        const { bytesRead } = await handle.read(bytes, done, bytes.length - done, start + done);
        if (bytesRead === 0) break;
        done += bytesRead;
      }
      return bytes.subarray(0, done);
    },
    [Symbol.asyncDispose]: () => handle.close(),
  };
}

async function openObject(uri: string, { env, storeSettings }: ShardAccess): Promise<ShardBytes> {
  const { folder, key } = splitObjectUri(uri);
  const store: ObjectStore = withRetry(await openStore(folder, storeSettings, env), env);
  const { objects } = await store.list(key, { limit: 1 });
  const found = objects[0];
  if (found?.key !== key) throw missing(uri);
  return {
    uri,
    size: found.size,
    async read(start, length, signal) {
      const bytes = await store.getRange(key, start, Math.max(0, Math.min(length, found.size - start)), { signal });
      if (!bytes) throw missing(uri);
      return bytes;
    },
    async [Symbol.asyncDispose]() {},
  };
}

/** Reads forward through a shard in large steps, so that small pieces cost no request each; going forward, no byte is read twice. */
export class ReadAhead {
  readonly #bytes: ShardBytes;
  readonly #stepBytes: number;
  #start = 0;
  #held: Uint8Array = new Uint8Array(0);

  constructor(bytes: ShardBytes, stepBytes = 262_144) {
    this.#bytes = bytes;
    this.#stepBytes = stepBytes;
  }

  /** What is held from `start` on, without a read. */
  held(start: number): Uint8Array {
    const from = start - this.#start;
    return from < 0 || from > this.#held.length ? new Uint8Array(0) : this.#held.subarray(from);
  }

  /** Bytes `[start, start + length)` as a view that the next call may not change; fewer at the end of the shard. */
  async slice(start: number, length: number, signal?: AbortSignal | undefined): Promise<Uint8Array> {
    const end = Math.min(start + length, this.#bytes.size);
    if (start + this.held(start).length < end) await this.extend(start, Math.max(end, start + this.#stepBytes), signal);
    return this.held(start).subarray(0, Math.max(start, end) - start);
  }

  /** Holds `[start, end)` from now on, and nothing before. Only what was not held is read. */
  async extend(start: number, end: number, signal?: AbortSignal | undefined): Promise<void> {
    const rest = this.held(start);
    const more = await this.#bytes.read(start + rest.length, end - start - rest.length, signal);
    this.#held = rest.length === 0 ? more : Buffer.concat([rest, more]);
    this.#start = start;
  }

  get heldBytes(): number {
    return this.#held.length;
  }

  get stepBytes(): number {
    return this.#stepBytes;
  }
}
