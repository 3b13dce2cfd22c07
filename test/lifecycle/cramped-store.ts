/** A memory store that leaves uploads behind, as a server with multipart uploads does, and that can be full or forbid looking at them. */
import { BatchWeaveError } from "../../src/errors.js";
import {
  type AbortUploadsOptions,
  type Body,
  type CallOptions,
  type CreateOutcome,
  MemoryStore,
  type ObjectStore,
} from "../../src/store/index.js";

export class CrampedStore extends MemoryStore implements ObjectStore {
  /** Keys of uploads that were begun and not completed. */
  readonly uploads = new Set<string>();
  isDenied = false;
  /** How many objects may still be written. */
  roomObjects = Number.POSITIVE_INFINITY;
  /** Deleting gives room back. */
  readonly deleted: string[] = [];

  #take(key: string): void {
    if (this.roomObjects-- >= 1) return;
    this.roomObjects = 0;
    throw new BatchWeaveError("STORE_FULL", `no room for ${key}`, { key });
  }

  override async create(key: string, body: Body, options?: CallOptions): Promise<CreateOutcome> {
    this.#take(key);
    return await super.create(key, body, options);
  }

  override async put(key: string, body: Body, options?: CallOptions): Promise<void> {
    this.#take(key);
    await super.put(key, body, options);
  }

  override async delete(keys: readonly string[], options?: CallOptions): Promise<void> {
    await super.delete(keys, options);
    this.deleted.push(...keys);
    this.roomObjects += keys.length;
  }

  async abortUploads(prefix: string, _olderThanMs: number, options: AbortUploadsOptions = {}): Promise<number> {
    if (this.isDenied) throw new BatchWeaveError("STORE_DENIED", "allow s3:ListBucketMultipartUploads");
    const found = [...this.uploads].filter((key) => key.startsWith(prefix) && options.only?.(key) !== false);
    for (const key of found) this.uploads.delete(key);
    return found.length;
  }
}
