/**
 * Property: a decorated store is still a store; each decorator adds what it says and nothing else.
 * Method: the conformance suite around each and around all of them, then each one's own promise on scripted stores and virtual time.
 */
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { systemEnv } from "../../src/env/index.js";
import { BatchWeaveError } from "../../src/errors.js";
import {
  MemoryStore,
  type ObjectStore,
  openFileStore,
  type StoreCall,
  withHedging,
  withMetrics,
  withPrefix,
  withRetry,
} from "../../src/store/index.js";
import { bytes, describeStoreConformance, listAll, noise } from "./conformance.js";
import { scriptedStore, unavailable } from "./scripted-store.js";
import { makeFolder, removeFolder } from "./temporary-folder.js";
import { VirtualEnv } from "./virtual-env.js";

const eager = { floorMs: 0, percentile: 0.5, slack: 0.1, extraMax: 1 };
const decorators: Record<string, (store: ObjectStore) => ObjectStore> = {
  withPrefix: (store) => withPrefix(store, "some/prefix"),
  withMetrics: (store) => withMetrics(store, systemEnv, { onCall: () => {} }),
  withRetry: (store) => withRetry(store, systemEnv),
  withHedging: (store) => withHedging(store, systemEnv, eager),
};

for (const [name, decorate] of Object.entries(decorators)) {
  describeStoreConformance(`${name} around memory`, async () => ({ store: decorate(new MemoryStore()) }));
}

describeStoreConformance("every decorator around files", async () => {
  const folder = makeFolder();
  const file = await openFileStore(join(folder, "root"), systemEnv, { durability: "process-crash" });
  const store = Object.values(decorators).reduce<ObjectStore>((inner, decorate) => decorate(inner), file);
  return { store, close: async () => removeFolder(folder) };
});

describe("withPrefix", () => {
  test("cannot be left, and shows only its own keys under their own names", async () => {
    const memory = new MemoryStore();
    await memory.put("a/secret", bytes("x"));
    await memory.put("ab/x", bytes("x"));
    const store = withPrefix(memory, "a/b/");
    await store.put("k", bytes("k"));
    await expect(store.get("../secret")).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    expect(await listAll(store, "")).toEqual(["k"]);
    expect(await listAll(memory, "")).toEqual(["a/b/k", "a/secret", "ab/x"]);
    expect(store.uri).toBe("memory:/a/b");
    expect(withPrefix(memory, "")).toBe(memory);
    expect(() => withPrefix(memory, "a/../b")).toThrow(BatchWeaveError);
  });
});

describe("withMetrics", () => {
  test("reports every call once, with bytes, time and outcome", async () => {
    const env = new VirtualEnv();
    const calls: StoreCall[] = [];
    const slow = scriptedStore({
      put: async () => env.sleep(7),
      delete: async () => {
        throw unavailable();
      },
    });
    const store = withMetrics(slow.store, env, { onCall: (call) => calls.push(call) });
    await store.create("a", [bytes("12"), bytes("345")]);
    await store.create("a", bytes("1"));
    await env.run(store.put("b", bytes("1234")));
    await store.get("a");
    await store.get("none");
    await store.getRange("a", 1, 2);
    await store.list("x/");
    await store.delete(["a", "b"]).catch(() => {});
    await store.get("a", { signal: AbortSignal.abort(new Error("no")) }).catch(() => {});
    expect(calls.map((c) => [c.op, c.key, c.bytesOut, c.bytesIn, c.durationMs, c.outcome])).toEqual([
      ["create", "a", 5, 0, 0, "created"],
      ["create", "a", 1, 0, 0, "exists"],
      ["put", "b", 4, 0, 7, "ok"],
      ["get", "a", 0, 5, 0, "ok"],
      ["get", "none", 0, 0, 0, "absent"],
      ["getRange", "a", 0, 2, 0, "ok"],
      ["list", "x/", 0, 0, 0, "ok"],
      ["delete", "a", 0, 0, 0, "STORE_UNAVAILABLE"],
      ["get", "a", 0, 0, 0, "aborted"],
    ]);
  });

  test("an observer that throws changes nothing", async () => {
    const store = withMetrics(new MemoryStore(), systemEnv, {
      onCall: () => {
        throw new Error("observer");
      },
    });
    expect(await store.create("a", bytes("1"))).toBe("created");
  });
});

describe("withRetry", () => {
  const failing = (failures: number, error: () => unknown = unavailable): (() => Promise<void>) => {
    let left = failures;
    return async () => {
      if (left-- > 0) throw error();
    };
  };

  test("tries STORE_UNAVAILABLE again on everything but create, which is tried once", async () => {
    const env = new VirtualEnv();
    const memory = new MemoryStore();
    const fail = {
      create: failing(1),
      put: failing(3),
      get: failing(3),
      getRange: failing(3),
      list: failing(3),
      delete: failing(3),
    };
    const { store: flaky, calls } = scriptedStore({
      create: (...a) => fail.create().then(() => memory.create(...a)),
      put: (...a) => fail.put().then(() => memory.put(...a)),
      get: (...a) => fail.get().then(() => memory.get(...a)),
      getRange: (...a) => fail.getRange().then(() => memory.getRange(...a)),
      list: (...a) => fail.list().then(() => memory.list(...a)),
      delete: (...a) => fail.delete().then(() => memory.delete(...a)),
    });
    const store = withRetry(flaky, env);
    await expect(store.create("k", bytes("x"))).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    await env.run(store.put("k", bytes("x")));
    expect(await env.run(store.get("k"))).toEqual(bytes("x"));
    expect(await env.run(store.getRange("k", 0, 1))).toEqual(bytes("x"));
    expect((await env.run(store.list(""))).objects).toHaveLength(1);
    await env.run(store.delete(["k"]));
    expect(calls).toEqual({ create: 1, put: 4, get: 4, getRange: 4, list: 4, delete: 4 });
  });

  test("passes an unknown create through untouched", async () => {
    const { store, calls } = scriptedStore({ create: async () => "unknown" });
    expect(await withRetry(store, systemEnv).create("k", bytes("x"))).toBe("unknown");
    expect(calls.create).toBe(1);
  });

  test("does not repeat what will not get better", async () => {
    for (const code of ["STORE_DENIED", "STORE_FULL", "INVALID_ARGUMENT"] as const) {
      const { store, calls } = scriptedStore({
        put: async () => {
          throw new BatchWeaveError(code, "no");
        },
      });
      await expect(withRetry(store, systemEnv).put("k", bytes("x"))).rejects.toMatchObject({ code });
      expect(calls.put).toBe(1);
    }
  });

  test("waits at random below a bound that doubles up to its maximum, then gives the last error", async () => {
    const env = new VirtualEnv();
    const starts: number[] = [];
    const { store } = scriptedStore({
      get: async () => {
        starts.push(env.now());
        throw unavailable();
      },
    });
    const call = withRetry(store, env, { attemptsMax: 8, firstDelayMs: 100, delayMaxMs: 1000 }).get("k");
    await expect(env.run(call)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    const waits = starts.slice(1).map((at, i) => at - (starts[i] as number));
    expect(waits).toHaveLength(7);
    for (const [i, wait] of waits.entries()) expect(wait).toBeLessThanOrEqual(Math.min(1000, 100 * 2 ** i));
    expect(new Set(waits).size).toBe(7);
  });

  test("waits at least as long as the store asks for", async () => {
    const env = new VirtualEnv();
    const fail = failing(1, () => unavailable({ retryAfterMs: 3000 }));
    const { store } = scriptedStore({ list: () => fail().then(() => ({ objects: [], more: false })) });
    await env.run(withRetry(store, env).list(""));
    expect(env.now()).toBeGreaterThanOrEqual(3000);
    expect(env.now()).toBeLessThanOrEqual(3100);
  });

  test("gives up after its patience, and soon at a place that never answered; one that did is waited for", async () => {
    const env = new VirtualEnv();
    let error = (): Error => unavailable();
    const { store: flaky, calls } = scriptedStore({
      get: async () => {
        await env.sleep(5_000);
        throw error();
      },
      list: async () => ({ objects: [], more: false }),
    });
    await env.run(
      withRetry(flaky, env)
        .get("k")
        .catch(() => {}),
    );
    expect([calls.get > 3, env.now() < 40_000]).toEqual([true, true]);
    let store = withRetry(flaky, env);
    for (const details of [{ isForeign: true }, { errno: "EBADHTTP" }, { errno: "ECONNREFUSED" }]) {
      error = () => unavailable(details);
      calls.get = 0;
      store = withRetry(flaky, env);
      await env.run(store.get("k").catch(() => {}));
      expect(calls.get).toBe(3);
    }
    await store.list("");
    calls.get = 0;
    await env.run(store.get("k").catch(() => {}));
    expect(calls.get).toBeGreaterThan(3);
  });

  test("an abort ends the wait with its reason", async () => {
    const env = new VirtualEnv();
    const { store } = scriptedStore({
      get: async () => {
        throw unavailable({ retryAfterMs: 60_000 });
      },
    });
    const controller = new AbortController();
    const call = withRetry(store, env).get("k", { signal: controller.signal });
    const reason = new Error("enough");
    setImmediate(() => controller.abort(reason));
    await expect(call).rejects.toBe(reason);
  });

  test("a range that comes back short is continued where it broke", async () => {
    const memory = new MemoryStore();
    const body = noise(1000);
    await memory.put("k", body);
    const { store: short, calls } = scriptedStore({
      getRange: (key, start, length) => memory.getRange(key, start, Math.min(length, 300)),
    });
    const store = withRetry(short, systemEnv);
    expect(await store.getRange("k", 50, 900)).toEqual(body.subarray(50, 950));
    expect(calls.getRange).toBe(3);
    expect(await store.getRange("k", 900, 500)).toEqual(body.subarray(900));
    expect(await store.getRange("none", 900, 500)).toBeUndefined();
  });
});

describe("withHedging", () => {
  /** Reads around 60 ms; `slowShare` of them take a second. */
  function remote(
    env: VirtualEnv,
    slowShare: number,
  ): { store: ObjectStore; requests: () => number; aborted: () => number } {
    let aborted = 0;
    const { store, calls } = scriptedStore({
      getRange: async (_key, _start, length, options) => {
        const normal = Math.sqrt(-2 * Math.log(1 - env.random())) * Math.cos(2 * Math.PI * env.random());
        const delayMs = env.random() < slowShare ? 1000 : 63 * Math.exp(0.09 * normal);
        await env.sleep(delayMs, options?.signal).catch((e: unknown) => {
          aborted++;
          throw e;
        });
        return new Uint8Array(length);
      },
    });
    return { store, requests: () => calls.getRange, aborted: () => aborted };
  }

  async function readMany(env: VirtualEnv, store: ObjectStore, count: number): Promise<number[]> {
    const took: number[] = [];
    for (let i = 0; i < count; i++) {
      const begun = env.now();
      await env.run(store.getRange("k", 0, 100_000));
      took.push(env.now() - begun);
    }
    return took.sort((a, b) => a - b);
  }

  test("with 1 % of reads a second late: p99 within 3 times p50, at most 5 % extra requests, losers aborted", async () => {
    const env = new VirtualEnv();
    const { store, requests, aborted } = remote(env, 0.01);
    const hedged = withHedging(store, env);
    await readMany(env, hedged, 100); // until there is something to go by
    const before = requests();
    const took = await readMany(env, hedged, 3000);
    const [p50, p99] = [took[1500] as number, took[2970] as number];
    expect(p99 / p50).toBeLessThanOrEqual(3);
    expect((requests() - before) / 3000).toBeLessThanOrEqual(1.05);
    expect(aborted()).toBeGreaterThan(20);
    const bare = await readMany(env, store, 3000);
    expect((bare[2985] as number) / (bare[1500] as number)).toBeGreaterThan(10);
  });

  test("a store that is slow throughout is not asked twice as often", async () => {
    const env = new VirtualEnv();
    const { store, requests } = remote(env, 0.5);
    await readMany(env, withHedging(store, env), 2000);
    expect(requests()).toBeLessThanOrEqual(2000 * 1.05 + 1);
  });

  test("an upload that is never answered is sent once more, long before its timeout; one too large for a single PUT is not", async () => {
    const env = new VirtualEnv();
    let silent = false;
    const { store, calls } = scriptedStore({
      put: async (_key, _body, options) => {
        const delayMs = silent ? 15_000 : 100;
        silent = false;
        await env.sleep(delayMs, options?.signal);
      },
    });
    const hedged = withHedging(store, env);
    const took = async (body: Uint8Array): Promise<number> => {
      const begun = env.now();
      await env.run(hedged.put("k", body));
      return env.now() - begun;
    };
    const megabyte = new Uint8Array(1_000_000);
    for (let i = 0; i < 50; i++) expect(await took(megabyte)).toBe(100);
    expect(calls.put).toBe(50);
    silent = true;
    expect(await took(megabyte)).toBe(350); // 2.5 times the usual, and once more
    expect(calls.put).toBe(52);
    const large = new Uint8Array(17_000_000);
    for (let i = 0; i < 50; i++) await took(large);
    silent = true;
    expect(await took(large)).toBe(15_000);
  });

  test("a failing first read waits for the second, and two failures give the first's error", async () => {
    const env = new VirtualEnv();
    let script: (() => Promise<Uint8Array>)[] = [];
    const { store } = scriptedStore({ get: () => (script.shift() ?? (async () => bytes("quick")))() });
    const hedged = withHedging(store, env, { ...eager, floorMs: 10 });
    for (let i = 0; i < 40; i++) await env.run(hedged.get("k"));
    const later = (delayMs: number, result: Uint8Array | Error) => async () => {
      await env.sleep(delayMs);
      if (result instanceof Error) throw result;
      return result;
    };
    script = [later(50, unavailable()), later(100, bytes("second"))];
    expect(await env.run(hedged.get("k"))).toEqual(bytes("second"));
    const first = unavailable({ n: 1 });
    script = [later(100, first), later(20, unavailable({ n: 2 }))];
    await expect(env.run(hedged.get("k"))).rejects.toBe(first);
  });
});
