/** A store inside a store. */
import { assertKey } from "../key.js";
import type {
  Body,
  CallOptions,
  CreateOutcome,
  GetOptions,
  ListOptions,
  ListPage,
  ObjectStore,
  WriteOptions,
} from "../object-store.js";
import { withOptionalCalls } from "./optional-calls.js";

/** The keys of `store` below `prefix` (a trailing slash is optional), as a store of their own. An empty prefix gives `store` itself. */
export function withPrefix(store: ObjectStore, prefix: string): ObjectStore {
  const folder = prefix.replace(/\/$/, "");
  if (folder === "") return store;
  assertKey(folder);
  return new PrefixStore(store, `${folder}/`);
}

class PrefixStore implements ObjectStore {
  readonly uri: string;
  readonly abortUploads?: NonNullable<ObjectStore["abortUploads"]>;
  readonly sync?: NonNullable<ObjectStore["sync"]>;
  readonly #store: ObjectStore;
  readonly #prefix: string;

  constructor(store: ObjectStore, prefix: string) {
    this.#store = store;
    this.#prefix = prefix;
    this.uri = `${store.uri.replace(/\/$/, "")}/${prefix.slice(0, -1)}`;
    const { abortUploads, sync } = withOptionalCalls(store);
    if (sync) this.sync = (key, options) => sync(this.#key(key), options);
    if (!abortUploads) return;
    this.abortUploads = (below, age, { only, ...options } = {}) =>
      abortUploads(prefix + below, age, { ...options, only: only && ((key) => only(key.slice(prefix.length))) });
  }

  /** A key must be one by itself, or `..` would lead out of the prefix. */
  #key(key: string): string {
    assertKey(key);
    return this.#prefix + key;
  }

  async create(key: string, body: Body, options?: CallOptions): Promise<CreateOutcome> {
    return this.#store.create(this.#key(key), body, options);
  }

  async put(key: string, body: Body, options?: WriteOptions): Promise<void> {
    return this.#store.put(this.#key(key), body, options);
  }

  async get(key: string, options?: GetOptions): Promise<Uint8Array | undefined> {
    return this.#store.get(this.#key(key), options);
  }

  async getRange(key: string, start: number, length: number, options?: CallOptions): Promise<Uint8Array | undefined> {
    return await this.#store.getRange(this.#key(key), start, length, options);
  }

  async list(prefix: string, options?: ListOptions): Promise<ListPage> {
    const startAfter = options?.startAfter === undefined ? undefined : this.#prefix + options.startAfter;
    const page = await this.#store.list(this.#prefix + prefix, { ...options, startAfter });
    return {
      objects: page.objects.map(({ key, size }) => ({ key: key.slice(this.#prefix.length), size })),
      more: page.more,
    };
  }

  async delete(keys: readonly string[], options?: WriteOptions): Promise<void> {
    return this.#store.delete(
      keys.map((key) => this.#key(key)),
      options,
    );
  }
}
