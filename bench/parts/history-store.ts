/**
 * Stores for histories that are too long to keep. Index objects go to one file, shared by all the histories that begin alike; of the
 * old manifests only the names exist. Everything else is in memory.
 */
import { closeSync, openSync, readSync, writeSync } from "node:fs";
import { asVersion, manifestKey, parseManifestKey } from "../../src/format/index.js";
import {
  type Body,
  type CallOptions,
  type CreateOutcome,
  type ListOptions,
  type ListPage,
  MemoryStore,
  type ObjectStore,
} from "../../src/index.js";

const bufferBytesMax = 8 * 1024 * 1024;

/** Objects appended to one file. */
export class Pack {
  readonly #fd: number;
  readonly #places = new Map<string, { readonly offset: number; readonly length: number }>();
  #buffer: Uint8Array[] = [];
  #bufferedBytes = 0;
  #end = 0;

  constructor(path: string) {
    this.#fd = openSync(path, "w+");
  }

  add(key: string, bytes: Uint8Array): void {
    this.#places.set(key, { offset: this.#end, length: bytes.length });
    this.#end += bytes.length;
    this.#buffer.push(bytes);
    this.#bufferedBytes += bytes.length;
    if (this.#bufferedBytes > bufferBytesMax) this.#flush();
  }

  read(key: string): Uint8Array | undefined {
    const place = this.#places.get(key);
    if (!place) return undefined;
    this.#flush();
    const bytes = new Uint8Array(place.length);
    readSync(this.#fd, bytes, 0, place.length, place.offset);
    return bytes;
  }

  close(): void {
    closeSync(this.#fd);
  }

  #flush(): void {
    if (this.#bufferedBytes > 0) writeSync(this.#fd, Buffer.concat(this.#buffer));
    this.#buffer = [];
    this.#bufferedBytes = 0;
  }
}

/** One namespace with a long history: versions `[firstVersion, headVersion)` exist by name only. */
export class HistoryStore implements ObjectStore {
  readonly uri = "memory:history";
  readonly #memory = new MemoryStore();
  readonly #pack: Pack;
  readonly #firstVersion: number;
  readonly #headVersion: number;

  constructor(pack: Pack, firstVersion: number, headVersion: number) {
    this.#pack = pack;
    this.#firstVersion = firstVersion;
    this.#headVersion = headVersion;
  }

  async create(key: string, body: Body, options?: CallOptions): Promise<CreateOutcome> {
    return this.#isNameOnly(key) ? "exists" : await this.#memory.create(key, body, options);
  }

  put(key: string, body: Body, options?: CallOptions): Promise<void> {
    return this.#memory.put(key, body, options);
  }

  async get(key: string, options?: CallOptions): Promise<Uint8Array | undefined> {
    if (this.#isNameOnly(key)) throw new Error(`${key} was not kept: nobody should need its content.`);
    return this.#pack.read(key) ?? (await this.#memory.get(key, options));
  }

  async getRange(key: string, start: number, length: number, options?: CallOptions): Promise<Uint8Array | undefined> {
    if (this.#isNameOnly(key) && start === 0 && length === 1) return Buffer.from("{");
    if (this.#isNameOnly(key)) throw new Error(`${key} was not kept: nobody should need its content.`);
    return await this.#memory.getRange(key, start, length, options);
  }

  async list(prefix: string, options: ListOptions = {}): Promise<ListPage> {
    const page = await this.#memory.list(prefix, options);
    if (prefix !== "manifest/") return page;
    const limit = Math.min(options.limit ?? 1_000, 1_000);
    const after = parseManifestKey(options.startAfter ?? "") ?? 0;
    const first = Math.max(this.#firstVersion, after + 1);
    const count = Math.max(0, Math.min(limit, this.#headVersion - first));
    const names = Array.from({ length: count }, (_, i) => ({ key: manifestKey(asVersion(first + i)), size: 100_000 }));
    const objects = [...names, ...page.objects].slice(0, limit);
    return {
      objects,
      more: page.more || names.length + page.objects.length > limit || first + count < this.#headVersion,
    };
  }

  delete(keys: readonly string[], options?: CallOptions): Promise<void> {
    return this.#memory.delete(keys, options);
  }

  #isNameOnly(key: string): boolean {
    const version = parseManifestKey(key) ?? -1;
    return version >= this.#firstVersion && version < this.#headVersion;
  }
}
