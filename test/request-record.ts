/**
 * Requests written down and compared with a stored file: how often each process made each kind of request, and when on average, in virtual time. A change of what a store is asked shows as a
 * diff of that file, which somebody has to mean: `UPDATE_REQUESTS=1 npx vitest run FILE` writes it anew.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";
import type { ObjectStore } from "../src/store/index.js";
import { root } from "./source-tree.js";

const isUpdate = process.env["UPDATE_REQUESTS"] !== undefined;

export class RequestRecord {
  readonly #counts = new Map<string, { count: number; sumMs: number }>();
  readonly #told: string[] = [];
  readonly #nowMs: () => number;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Something that is only counted. */
  count(what: string, times = 1): void {
    const { count, sumMs } = this.#counts.get(what) ?? { count: 0, sumMs: 0 };
    if (times > 0) this.#counts.set(what, { count: count + times, sumMs: sumMs + times * this.#nowMs() });
  }

  /** Something that happened, as it is. */
  tell(text: string): void {
    this.#told.push(`${this.#nowMs().toFixed(0)} ms: ${text}`);
  }

  /** The store of one process. */
  counting(inner: ObjectStore, name: string): ObjectStore {
    const folderOf = (key: string): string => key.split("/", 1)[0] as string;
    const seen = (what: string, key: string): void => this.count(`${name} ${what} ${folderOf(key)}`);
    return {
      uri: inner.uri,
      create: (key, ...rest) => {
        seen("create", key);
        return inner.create(key, ...rest);
      },
      put: (key, ...rest) => {
        seen("put", key);
        return inner.put(key, ...rest);
      },
      get: (key, ...rest) => {
        seen("get", key);
        return inner.get(key, ...rest);
      },
      getRange: (key, start, length, ...rest) => {
        seen("range", key);
        this.count(`${name} bytes of ranges`, length);
        return inner.getRange(key, start, length, ...rest);
      },
      list: (prefix, ...rest) => {
        seen("list", prefix);
        return inner.list(prefix, ...rest);
      },
      delete: (keys, ...rest) => {
        seen(`delete ${keys.length}`, keys[0] ?? "");
        return inner.delete(keys, ...rest);
      },
    };
  }

  /** Compares with what is stored under `name` in a file of the repository. */
  compare(file: string, name: string): void {
    const path = join(root, file);
    const stored: Record<string, unknown> = existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : {};
    const rows = [...this.#counts]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([what, { count, sumMs }]) => `${what}: ${count}, ${(sumMs / count).toFixed(0)} ms`);
    const found = { rows, told: this.#told };
    if (isUpdate) writeFileSync(path, `${JSON.stringify({ ...stored, [name]: found }, undefined, 2)}\n`);
    else expect(found).toEqual(stored[name]);
  }
}
