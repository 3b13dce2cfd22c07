/** A store where a test can step in between: before a call takes effect, after it did, or with another answer. */
import type { Body, CallOptions, CreateOutcome, ListOptions, ListPage, ObjectStore } from "../../src/store/index.js";

/** What a test may do. Each is called for every call of its kind. */
export interface Hooks {
  /** Around a conditional create; the default is `inner()`. */
  create?: (key: string, inner: () => Promise<CreateOutcome>) => Promise<CreateOutcome>;
  afterList?: (prefix: string, page: ListPage) => Promise<void>;
  afterGet?: (key: string) => Promise<void>;
  beforeDelete?: (keys: readonly string[]) => Promise<void>;
}

export class HookedStore implements ObjectStore {
  readonly uri: string;
  readonly #store: ObjectStore;
  readonly #hooks: Hooks;
  readonly deleted: string[] = [];

  constructor(store: ObjectStore, hooks: Hooks = {}) {
    this.uri = store.uri;
    this.#store = store;
    this.#hooks = hooks;
  }

  async create(key: string, body: Body, options?: CallOptions): Promise<CreateOutcome> {
    const inner = (): Promise<CreateOutcome> => this.#store.create(key, body, options);
    return await (this.#hooks.create?.(key, inner) ?? inner());
  }

  async put(key: string, body: Body, options?: CallOptions): Promise<void> {
    await this.#store.put(key, body, options);
  }

  async get(key: string, options?: CallOptions): Promise<Uint8Array | undefined> {
    const bytes = await this.#store.get(key, options);
    await this.#hooks.afterGet?.(key);
    return bytes;
  }

  async getRange(key: string, start: number, length: number, options?: CallOptions): Promise<Uint8Array | undefined> {
    return await this.#store.getRange(key, start, length, options);
  }

  async list(prefix: string, options?: ListOptions): Promise<ListPage> {
    const page = await this.#store.list(prefix, options);
    await this.#hooks.afterList?.(prefix, page);
    return page;
  }

  async delete(keys: readonly string[], options?: CallOptions): Promise<void> {
    await this.#hooks.beforeDelete?.(keys);
    this.deleted.push(...keys);
    await this.#store.delete(keys, options);
  }
}
