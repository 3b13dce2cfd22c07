/** A log on a store whose answers a test scripts and whose requests it reads, and a clock that only sleeps move. */
import { BatchWeaveError, type ErrorCode } from "../../src/errors.js";
import type { NamespaceSpec } from "../../src/format/index.js";
import { type Change, Log } from "../../src/log/index.js";
import { MemoryStore, type ObjectStore } from "../../src/store/index.js";
import { AutoEnv } from "../lifecycle/auto-env.js";

export const spec: NamespaceSpec = {
  format: 1,
  uuid: "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5",
  grid: { rows: 2, chunks: 1 },
  order: { kind: "commit" },
  created: 0,
  rest: {},
};

/** Draws a quarter; sleeps that are not cut short are written down. */
export class QuarterEnv extends AutoEnv {
  readonly sleeps: number[] = [];

  override random(): number {
    return 0.25;
  }

  override id(): string {
    return super.id().replace(/^./, String(this.#ids++ % 10));
  }
  #ids = 0;

  override async sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    signal?.throwIfAborted();
    this.sleeps.push(delayMs);
    this.nowMs += delayMs;
  }
}

export type Answer = (inner: () => Promise<unknown>, key: string) => Promise<unknown>;

/** Writes requests down, `manifest/7` for the long name; the next scripted answer for a request, if any, is given instead. */
export class ScriptedStore {
  readonly inner: MemoryStore = new MemoryStore("memory:s");
  readonly seen: string[] = [];
  readonly answers: [pattern: RegExp, answer: Answer][] = [];
  readonly store: ObjectStore;

  constructor(withSync = false) {
    const call = (name: string, key: string, inner: () => Promise<unknown>): Promise<never> => {
      const text = `${name} ${key}`.replaceAll(/\b0+(\d+)(\.json)?/g, "$1");
      this.seen.push(text);
      const at = this.answers.findIndex(([pattern]) => pattern.test(text));
      if (at < 0) return inner() as Promise<never>;
      const [[, answer]] = this.answers.splice(at, 1) as [(typeof this.answers)[0]];
      return answer(inner, key) as Promise<never>;
    };
    const { inner } = this;
    this.store = {
      uri: inner.uri,
      create: (key, ...rest) => call("create", key, () => inner.create(key, ...rest)),
      put: (key, ...rest) => call("put", key, () => inner.put(key, ...rest)),
      get: (key, ...rest) => call("get", key, () => inner.get(key, ...rest)),
      getRange: (key, ...rest) => call("range", key, () => inner.getRange(key, ...rest)),
      list: (prefix, options) =>
        call("list", `${prefix} ${options?.startAfter ?? ""}`.trim(), () => inner.list(prefix, options)),
      delete: (keys, ...rest) => call("delete", keys.join(), () => inner.delete(keys, ...rest)),
      ...(withSync ? { sync: (key: string) => call("sync", key, async () => undefined) } : {}),
    };
  }

  /** The next `times` requests like this are answered so. */
  next(pattern: RegExp, answer: Answer, times = 1): void {
    for (let i = 0; i < times; i++) this.answers.push([pattern, answer]);
  }

  taken(): string[] {
    return this.seen.splice(0);
  }
}

export const refuse =
  (code: ErrorCode): Answer =>
  () =>
    Promise.reject(new BatchWeaveError(code, "refused", {}));
export const openOrigin = (): Promise<never> => Promise.reject(new Error("no forks here"));

export function open(
  of: NamespaceSpec = spec,
  withSync = false,
): { script: ScriptedStore; env: QuarterEnv; log: Log; other: Log } {
  const script = new ScriptedStore(withSync);
  const env = new QuarterEnv();
  const log = new Log({ store: script.store, env, spec: of, openOrigin });
  return { script, env, log, other: new Log({ store: script.inner, env: new AutoEnv(7), spec: of, openOrigin }) };
}

export const lag = (maxLag: number): Change<undefined, boolean> => ({
  by: "test",
  kind: "settings",
  stage: (draft) => {
    const done = draft.settings?.maxLag === maxLag;
    draft.settings = { maxLag };
    return { done, result: done };
  },
});
