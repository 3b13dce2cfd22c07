/**
 * Property: what a fork, its pins and a reclaim decide is exact: which answer is tried again and when, what is undone and what must not be, who may go on without a pin, from where on it is too many or too old.
 * Method: small logs and stores whose answers are chosen; each number at its limit and behind it.
 */
import { describe, expect, test } from "vitest";
import { BatchWeaveError, type ErrorCode } from "../../src/errors.js";
import {
  asEpoch,
  asSeq,
  asStep,
  asVersion,
  decodeNamespace,
  encodeManifest,
  encodeNamespace,
  genesisManifest,
  type Manifest,
  manifestKey,
  namespaceKey,
  type Origin,
  type SilentProducer,
} from "../../src/format/index.js";
import { producersAt, writeTables } from "../../src/lifecycle/fork-producers.js";
import {
  confirmPins,
  forkLog,
  type OpenLog,
  reclaim,
  reclaimWarning,
  registerCheckpoint,
  releaseAbandonedPin,
  releaseCheckpoint,
  releasePins,
} from "../../src/lifecycle/index.js";
import { commitPin, commitPinCopy, commitUnpin, needsPins } from "../../src/lifecycle/pins.js";
import type { Log } from "../../src/log/index.js";
import { MemoryStore, type ObjectStore } from "../../src/store/index.js";
import { QuarterEnv } from "../log/scripted-log.js";
import { cursorAt, SmallWorld, Writer } from "./small-world.js";

const uri = "memory:parent";
const pin = (fork: string, from = 0, to = 5) => ({
  fork,
  uri: "memory:f",
  created: 1,
  from: asStep(from),
  to: asStep(to),
});
const refused = (code: ErrorCode) => new BatchWeaveError(code, "refused", {});

async function parentOf(steps = 10): Promise<{ world: SmallWorld; log: Log }> {
  const world = new SmallWorld();
  const log = await world.create(uri);
  await new Writer(log).write(steps, { perCommit: 4 });
  return { world, log };
}

const version = async (log: Log): Promise<number> => (await log.head.jump()).version;
const pinsOf = async (log: Log): Promise<string[]> => [...(await log.head.jump()).pins.keys()];

describe("pins", () => {
  test("are made once, also when the answer was lost; what is trimmed is not pinned", async () => {
    const { log } = await parentOf();
    const before = await version(log);
    const root = await commitPin(log, pin("a"));
    expect([await commitPin(log, pin("a")), await version(log)]).toEqual([root, before + 1]);
    expect(await commitPin(log, pin("b", 0, 11))).toBeUndefined();
    const origin = { root } as Origin;
    await commitPinCopy(log, "a", origin, pin("c"));
    await commitPinCopy(log, "a", origin, pin("c"));
    expect([await pinsOf(log), await version(log)]).toEqual([["a", "c"], before + 2]);
    await expect(commitPinCopy(log, "nobody", origin, pin("d"))).rejects.toMatchObject({ code: "RECLAIMED" });
    await commitUnpin(log, "a", true);
    await commitUnpin(log, "a", true);
    expect([await pinsOf(log), await version(log)]).toEqual([["c"], before + 3]);
  });

  test("are confirmed by whoever may write; without a pin the fork must not be used", async () => {
    const { world, log } = await parentOf();
    const target = { uri: "memory:f", store: world.store("memory:f") };
    const openLog: OpenLog = async (at) =>
      world.open(at, decodeNamespace((await world.store(at).get(namespaceKey)) as Uint8Array, at));
    const spec = await forkLog({ parent: { log, uri }, target, env: world.env, openLog });
    const before = await version(log);
    expect((await log.head.jump()).pins.get(spec.uuid)?.confirmed).toBe(true);
    await confirmPins(spec, openLog);
    expect(await version(log)).toBe(before);
    expect([needsPins(spec, 9), needsPins(spec, 10), needsPins(log.spec, 0)]).toEqual([true, false, false]);
    const unconfirm = async (): Promise<void> => {
      const { pins } = await log.head.jump();
      const held = pins.get(spec.uuid) as NonNullable<ReturnType<typeof pins.get>>;
      await log.commit({
        by: "t",
        kind: "own",
        stage: (draft) => ({ done: !draft.pins.set(spec.uuid, { ...held, confirmed: false }), result: 0 }),
      });
    };
    await unconfirm();
    const failing = (code: ErrorCode): OpenLog => {
      const store: ObjectStore = Object.create(world.store(uri), {
        create: { value: () => Promise.reject(refused(code)) },
      });
      const bound = new Proxy(world.store(uri), {
        get: (inner, name) =>
          name === "create"
            ? store.create
            : typeof Reflect.get(inner, name) === "function"
              ? (Reflect.get(inner, name) as () => unknown).bind(inner)
              : Reflect.get(inner, name),
      });
      return async () => world.open(uri, log.spec, bound);
    };
    await confirmPins(spec, failing("STORE_DENIED"));
    await expect(confirmPins(spec, failing("STORE_FULL"))).rejects.toMatchObject({ code: "STORE_FULL" });
    await confirmPins(spec, openLog);
    await commitUnpin(log, spec.uuid, false);
    await expect(confirmPins(spec, failing("STORE_DENIED"))).rejects.toMatchObject({ code: "RECLAIMED" });
    await expect(confirmPins(spec, openLog)).rejects.toMatchObject({ code: "RECLAIMED" });
  });

  test("of ancestors that are gone need no release; any other failure is one", async () => {
    const { log } = await parentOf();
    await commitPin(log, pin("a"));
    const origins = [
      { uri: "memory:gone", uuid: "u" },
      { uri, uuid: log.spec.uuid },
    ];
    const opening =
      (code: ErrorCode): OpenLog =>
      async (at) => {
        if (at === uri) return log;
        throw refused(code);
      };
    for (const code of ["NO_NAMESPACE", "WRONG_NAMESPACE", "DELETED"] as const) {
      await commitPin(log, pin("a"));
      await releasePins({ uuid: "a" }, origins, opening(code), { unconfirmed: true });
      expect(await pinsOf(log)).toEqual([]);
    }
    await commitPin(log, pin("a"));
    await expect(
      releasePins({ uuid: "a" }, origins, opening("STORE_DENIED"), { unconfirmed: true }),
    ).rejects.toMatchObject({ code: "STORE_DENIED" });
    const committing =
      (code: ErrorCode): OpenLog =>
      async () =>
        ({ commit: () => Promise.reject(refused(code)) }) as unknown as Log;
    await releasePins({ uuid: "a" }, origins, committing("DELETED"), { unconfirmed: true });
    await expect(
      releasePins({ uuid: "a" }, origins, committing("CONTENDED"), { unconfirmed: true }),
    ).rejects.toMatchObject({ code: "CONTENDED" });
  });

  test("of a fork that does not exist are removed when people ask, and of one that does are not", async () => {
    const { log } = await parentOf();
    await commitPin(log, pin("a"));
    await expect(releaseAbandonedPin(log, "a", async () => "a")).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    await releaseAbandonedPin(log, "b", async () => "b");
    await releaseAbandonedPin(log, "a", async () => "another");
    expect(await pinsOf(log)).toEqual([]);
  });
});

describe("making a fork", () => {
  const openLog: OpenLog = () => Promise.reject(refused("NO_NAMESPACE"));
  async function forked(
    create: (inner: MemoryStore, key: string, body: Uint8Array, n: number) => Promise<unknown>,
    more: Partial<ObjectStore> = {},
  ) {
    const { log } = await parentOf();
    const inner = new MemoryStore("memory:f");
    const env = new QuarterEnv();
    let creates = 0;
    const store = {
      uri: inner.uri,
      create: (key: string, body: Uint8Array) => create(inner, key, body, ++creates),
      put: (...given: Parameters<MemoryStore["put"]>) => inner.put(...given),
      get: (...given: Parameters<MemoryStore["get"]>) => inner.get(...given),
      getRange: (...given: Parameters<MemoryStore["getRange"]>) => inner.getRange(...given),
      list: (...given: Parameters<MemoryStore["list"]>) => inner.list(...given),
      delete: (...given: Parameters<MemoryStore["delete"]>) => inner.delete(...given),
      ...more,
    } as ObjectStore;
    const outcome = await forkLog({ parent: { log, uri }, target: { uri: "memory:f", store }, env, openLog }).then(
      () => "made",
      ({ code }) => code,
    );
    return [outcome, env.sleeps, (await pinsOf(log)).length];
  }

  test("is tried until there is a verdict, later and later", async () => {
    const waits = [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000];
    expect(
      await forked((inner, key, body, n) => (n < 10 ? Promise.resolve("unknown") : inner.create(key, body))),
    ).toEqual(["made", waits, 1]);
  });

  test("undoes its pins where another came first, but not after an answer that was lost", async () => {
    const other = (inner: MemoryStore): Promise<void> => {
      const spec = { format: 2 as const, uuid: "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5", grid: { rows: 2, chunks: 1 } };
      return inner.put(namespaceKey, encodeNamespace({ ...spec, order: { kind: "commit" }, created: 0, rest: {} }));
    };
    const taken = async (
      inner: MemoryStore,
      key: string,
      body: Uint8Array,
      unknown: number,
      n: number,
    ): Promise<unknown> => {
      await other(inner);
      return n <= unknown ? "unknown" : inner.create(key, body);
    };
    expect(await forked((inner, key, body, n) => taken(inner, key, body, 0, n))).toEqual(["NOT_EMPTY", [], 0]);
    expect(await forked((inner, key, body, n) => taken(inner, key, body, 1, n))).toEqual(["NOT_EMPTY", [50], 1]);
  });

  test("that fails undoes its pins unless the fork may stand", async () => {
    expect(await forked(() => Promise.reject(refused("STORE_DENIED")))).toEqual(["STORE_DENIED", [], 0]);
    expect(
      await forked(async (inner, key, body) => {
        await inner.create(key, body);
        throw refused("STORE_DENIED");
      }),
    ).toEqual(["STORE_DENIED", [], 1]);
    expect(
      await forked((_, __, ___, n) => (n === 1 ? Promise.resolve("unknown") : Promise.reject(refused("STORE_DENIED")))),
    ).toEqual(["STORE_DENIED", [50], 1]);
    const unreadable = { get: () => Promise.reject(refused("STORE_UNAVAILABLE")) };
    expect(await forked(() => Promise.reject(refused("STORE_DENIED")), unreadable)).toEqual(["STORE_DENIED", [], 1]);
  });

  test("has its parent's parts, or none as well", async () => {
    for (const parts of [undefined, 3]) {
      const { world, log } = await parentOf();
      const view = world.open(uri, { ...log.spec, ...(parts === undefined ? {} : { parts }) });
      const spec = await forkLog({
        parent: { log: view, uri },
        target: { uri: "memory:f", store: world.store("memory:f") },
        env: world.env,
        openLog,
      });
      expect(spec.parts).toBe(parts);
      expect("parts" in spec).toBe(parts !== undefined);
    }
  });

  test("needs a step that is there and the parent's grid", async () => {
    const { world, log } = await parentOf();
    const tried = (settings: object, n = 0) =>
      forkLog(
        {
          parent: { log, uri },
          target: { uri: `memory:${n}`, store: world.store(`memory:${n}`) },
          env: world.env,
          openLog,
        },
        settings,
      ).then(
        ({ fork }) => (fork?.tail.start ?? 0) + (fork?.tail.batches.length ?? 0),
        ({ code }) => code,
      );
    expect([
      await tried({ at: 10 }, 1),
      await tried({ at: 0 }, 2),
      await tried({ grid: { rows: 2, chunks: 1 } }, 3),
    ]).toEqual([10, 0, 10]);
    for (const [settings, code] of [
      [{ at: 11 }, "INVALID_ARGUMENT"],
      [{ at: 1.5 }, "INVALID_ARGUMENT"],
      [{ at: -1 }, "RECLAIMED"],
      [{ grid: { rows: 2, chunks: 2 } }, "GRID_MISMATCH"],
      [{ grid: { rows: 1, chunks: 1 } }, "GRID_MISMATCH"],
    ] as const)
      expect(await tried(settings, 9)).toBe(code);
  });
});

describe("inherited producers", () => {
  test("are written 64 to a table", async () => {
    const state = {
      epoch: asEpoch(1),
      incarnation: "aaaaaaaaaaaa",
      seq: asSeq(1),
      at: asVersion(0),
      resume: { kind: "none" as const },
    };
    const many = (n: number): Map<string, SilentProducer> =>
      new Map(Array.from({ length: n }, (_, i) => [`p${i}`, { state, resumePoint: i }]));
    const sizes = async (n: number): Promise<number[]> => {
      const store = new MemoryStore();
      const refs = await writeTables(store, "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5", "c00000000000", many(n));
      expect(refs.map(({ base, commitId, k }) => [base, commitId, k])).toEqual(
        refs.map((_, k) => [0, "c00000000000", k]),
      );
      const { objects } = await store.list("", {});
      return Promise.all(
        objects.map(
          async ({ key }) =>
            Buffer.from((await store.get(key)) as Uint8Array)
              .toString()
              .match(/"p\d/g)?.length ?? 0,
        ),
      );
    };
    expect([await sizes(0), await sizes(64), await sizes(65)]).toEqual([[], [64], [64, 1]]);
  });

  test("stand where they stood at the step, also after their very first batch", async () => {
    const world = new SmallWorld();
    const log = await world.create(uri);
    const [a, b] = [new Writer(log, "a"), new Writer(log, "b")];
    for (const writer of [a, b, a, a, b]) await writer.write(1);
    const manifest = await log.head.jump();
    const at = async (step: number) =>
      [...(await producersAt(log, manifest, step))].map(([id, { state, resumePoint }]) => [id, state.seq, resumePoint]);
    expect(await at(0)).toEqual([]);
    expect(await at(1)).toEqual([["a", 1, { after: 0 }]]);
    expect(await at(2)).toEqual([
      ["a", 1, { after: 0 }],
      ["b", 1, { after: 0 }],
    ]);
    expect(await at(4)).toEqual([
      ["a", 3, { after: 2 }],
      ["b", 1, { after: 0 }],
    ]);
    expect(await at(5)).toEqual([
      ["a", 3, { after: 2 }],
      ["b", 2, { after: 1 }],
    ]);
  });

  test("are searched for over 262,144 steps at most, and 4,096 of them", async () => {
    const { log } = await parentOf(1);
    const at = async (steps: number, producers = 1): Promise<unknown> => {
      const state = (await log.head.jump()).producers.get("p") as never;
      const end = asStep(steps);
      const manifest: Manifest = {
        ...(await log.head.jump()),
        ...{ steps: { trim: asStep(0), end }, tail: { start: end, batches: [] }, index: [] },
        producers: new Map(Array.from({ length: producers }, (_, i) => [`p${i}`, state])),
      };
      return await producersAt(log, manifest, 0).then(
        () => "found",
        ({ code }) => code,
      );
    };
    expect([await at(262_144), await at(262_145)]).toEqual(["CORRUPT", "LIMIT"]);
    expect([await at(64, 4_096), await at(64, 4_097)]).toEqual(["CORRUPT", "LIMIT"]);
  });
});

describe("a reclaim", () => {
  test("is missed when the boundary is ten thousand versions and six hours behind", async () => {
    const { world, log } = await parentOf(1);
    const head = await log.head.jump();
    const warned = async (versions: number, ms: number): Promise<boolean> => {
      const now = { ...head, version: asVersion(versions + 5) };
      const oldest = {
        ...genesisManifest(log.spec),
        version: asVersion(6),
        commit: { id: "c00000000000", by: "t", time: world.env.now() - ms },
      };
      await log.store.put(manifestKey(asVersion(6)), encodeManifest(oldest));
      return (await reclaimWarning(world.open(uri, log.spec), now, asVersion(5))) !== undefined;
    };
    const hours = 6 * 3_600_000;
    world.env.nowMs = 2 * hours;
    expect([await warned(9_999, hours), await warned(10_000, hours), await warned(10_000, hours - 1)]).toEqual([
      false,
      true,
      false,
    ]);
    await log.store.delete([manifestKey(asVersion(6))]);
  });

  test("whose index vanishes under it goes on with a newer version, three times, and stops where there is none", async () => {
    const settings = { graceMs: 0, keepVersions: 1 };
    const overtaken = async (times: number, isNewer: boolean): Promise<unknown> => {
      const world = new SmallWorld();
      const log = await world.create(uri);
      const writer = new Writer(log);
      await writer.write(70, { perCommit: 35 });
      const other = new Writer(world.open(uri, log.spec), "q");
      await other.open();
      let left = times;
      const vanishing = new Proxy(world.store(uri), {
        get: (inner, name) => {
          if (name === "get")
            return async (key: string) => {
              if (!key.startsWith("index/") || left === 0) return inner.get(key);
              left--;
              if (isNewer) await other.write(1);
              return undefined;
            };
          const value = Reflect.get(inner, name);
          return typeof value === "function" ? (value as () => unknown).bind(inner) : value;
        },
      });
      return await reclaim(world.open(uri, log.spec, vanishing), settings).then(
        ({ version }) => version - 3,
        ({ code }) => code,
      );
    };
    expect(await overtaken(0, true)).toBe(2);
    expect(await overtaken(1, true)).toBe(3);
    expect(await overtaken(2, true)).toBe(4);
    expect([await overtaken(3, true), await overtaken(1, false)]).toEqual(["MISSING_OBJECT", "MISSING_OBJECT"]);
  });

  test("and a checkpoint has a name, a group with a name, and a number to keep", async () => {
    const { log } = await parentOf();
    const cursor = cursorAt(log, 1);
    const registered = (request: object) =>
      registerCheckpoint(log, { id: "c", cursor, ...request }).then(
        () => "in",
        ({ code }) => code,
      );
    const released = (request: object) =>
      releaseCheckpoint(log, { id: "c", ...request } as never).then(
        () => "out",
        ({ code }) => code,
      );
    for (const wrong of [{ id: "" }, { id: "a/b" }, { group: "" }, { group: "a b" }]) {
      expect([wrong, await registered(wrong)]).toEqual([wrong, "INVALID_ARGUMENT"]);
      expect([wrong, await released(wrong)]).toEqual([wrong, "INVALID_ARGUMENT"]);
    }
    for (const keepLast of [0, 1.5, -1, "2"]) expect(await registered({ keepLast })).toBe("INVALID_ARGUMENT");
    expect([await registered({ keepLast: 1 }), await released({}), await released({ id: "d" })]).toEqual([
      "in",
      "out",
      "NO_CHECKPOINT",
    ]);
  });

  test("of a full store deletes what may go, and says so when there is nothing", async () => {
    const { world, log } = await parentOf();
    const full = new Proxy(world.store(uri), {
      get: (inner, name) => {
        if (name === "create") return () => Promise.reject(refused("STORE_FULL"));
        const value = Reflect.get(inner, name);
        return typeof value === "function" ? (value as () => unknown).bind(inner) : value;
      },
    });
    const settings = { graceMs: 0, keepVersions: 1 };
    await expect(reclaim(world.open(uri, log.spec, full), settings)).rejects.toThrow(/Make a little room/);
    const denied = new Proxy(world.store(uri), {
      get: (inner, name) => {
        if (name === "create") return () => Promise.reject(refused("STORE_DENIED"));
        const value = Reflect.get(inner, name);
        return typeof value === "function" ? (value as () => unknown).bind(inner) : value;
      },
    });
    await expect(reclaim(world.open(uri, log.spec, denied), settings)).rejects.toMatchObject({ code: "STORE_DENIED" });
  });
});
