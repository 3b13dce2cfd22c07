/** Forks in a small world: several namespaces found by uri, and processes that die over all of their stores. */
import { expect } from "vitest";
import { decodeNamespace, namespaceKey } from "../../src/format/index.js";
import { type ForkSettings, forkLog, type OpenLog, reclaim, registerCheckpoint } from "../../src/lifecycle/index.js";
import type { Log } from "../../src/log/index.js";
import type { ObjectStore } from "../../src/store/index.js";
import { FailingStore } from "./failing-store.js";
import { cursorAt, readAll, SmallWorld, Writer } from "./small-world.js";

export const now = { graceMs: 0, keepVersions: 2 };

export function opener(world: SmallWorld, store: (uri: string) => ObjectStore = (uri) => world.store(uri)): OpenLog {
  return async (uri) => {
    const bytes = await store(uri).get(namespaceKey);
    if (!bytes) throw new Error(`no namespace at ${uri}`);
    return world.open(uri, decodeNamespace(bytes, uri), store(uri));
  };
}

export async function fork(world: SmallWorld, log: Log, uri: string, settings: ForkSettings = {}): Promise<Log> {
  const target = { uri, store: world.store(uri) };
  const parent = { log, uri: log.place.uri };
  const spec = await forkLog({ parent, target, env: world.env, openLog: opener(world) }, settings);
  const stored = decodeNamespace((await target.store.get(namespaceKey)) as Uint8Array, uri);
  expect(stored).toEqual(JSON.parse(JSON.stringify(spec)));
  return world.open(uri, stored);
}

export async function findUuid(world: SmallWorld, uri: string): Promise<string | undefined> {
  const bytes = await world.store(uri).get(namespaceKey);
  return bytes && decodeNamespace(bytes, uri).uuid;
}

/** What the steps of `log` hold, in order. */
export async function texts(log: Log): Promise<string[]> {
  return [...(await readAll(log)).values()];
}

export async function parentOf(steps: number): Promise<{ world: SmallWorld; log: Log }> {
  const world = new SmallWorld();
  const log = await world.create("memory:parent");
  await new Writer(log).write(steps, { perCommit: 7 });
  return { world, log };
}

/** Trims a namespace to `step` and reclaims twice. */
export async function trimTo(log: Log, step: number): Promise<void> {
  await registerCheckpoint(log, { id: `t${step}`, cursor: cursorAt(log, step), keepLast: 1 });
  await new Writer(log, "filler").write(4);
  await reclaim(log, now);
  await reclaim(log, now);
}

/** The stores of one process, which dies at its n-th call over all of them. */
export class FailingStores {
  readonly #world: SmallWorld;
  readonly #dieAt: number;
  readonly #effect: "before" | "after";
  readonly #stores = new Map<string, ObjectStore>();
  calls = 0;

  constructor(world: SmallWorld, dieAt: number, effect: "before" | "after") {
    this.#world = world;
    this.#dieAt = dieAt;
    this.#effect = effect;
  }

  store(uri: string): ObjectStore {
    const known = this.#stores.get(uri);
    if (known) return known;
    const inner = this.#world.store(uri);
    const call = async (name: string, args: unknown[]): Promise<unknown> => {
      const one = new FailingStore(
        inner,
        this.calls === this.#dieAt ? 0 : this.calls > this.#dieAt ? -1 : 9,
        this.#effect,
      );
      this.calls++;
      return await (one[name as "get"] as (...a: unknown[]) => Promise<unknown>).apply(one, args);
    };
    const store = new Proxy({} as ObjectStore, {
      get: (_, name) =>
        name === "uri" ? uri : name === "then" ? undefined : (...args: unknown[]) => call(String(name), args),
    });
    this.#stores.set(uri, store);
    return store;
  }
}
