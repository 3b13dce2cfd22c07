/**
 * What every store must do, whatever it is made of. Each backend and each decorator runs this suite;
 * cases that need several processes or a broken disk are beside the backend they concern.
 */
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { systemEnv } from "../../src/env/index.js";
import { isBatchWeaveError } from "../../src/errors.js";
import { assertSafe, isKey, type ObjectStore, probeStore } from "../../src/store/index.js";

/** A store to test and how to get rid of it. */
export interface OpenedStore {
  readonly store: ObjectStore;
  /** Where uploads can be left behind: begins one of `key` in the store and leaves it. */
  leaveUpload?(key: string): Promise<void>;
  /** It gives objects of any size whatever the caller can take: only the simulation may. */
  readonly hasNoLimits?: boolean;
  /** The server says that every upload began long ago (moto). */
  readonly hasNoAges?: boolean;
  close?(): Promise<void>;
}

export function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** Pseudo-random bytes, the same for the same seed. */
export function noise(length: number, seed = 1): Uint8Array {
  const out = new Uint8Array(length);
  let x = seed * 2654435761 || 1;
  for (let i = 0; i < length; i++) {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    out[i] = x;
  }
  return out;
}

/** Compares by value without vitest's element-wise diff, which takes seconds on a megabyte. */
export function same(a: Uint8Array | undefined, b: Uint8Array | undefined): boolean {
  return a !== undefined && b !== undefined && Buffer.compare(a, b) === 0;
}

export async function listAll(store: ObjectStore, prefix: string, limit?: number): Promise<string[]> {
  const keys: string[] = [];
  for (;;) {
    const page = await store.list(prefix, { startAfter: keys.at(-1), limit });
    keys.push(...page.objects.map((one) => one.key));
    if (!page.more) return keys;
  }
}

const escapes = [
  "../x",
  "a/../../x",
  "..",
  ".",
  "a/./b",
  "/etc/passwd",
  "a//b",
  "a/",
  "",
  "a\\b",
  "a\0b",
  "ä",
  "a b",
  "a%2e",
  "a/..",
  "~x",
  `k${"x".repeat(900)}`,
];

/** Registers the suite for one kind of store; `open` gives a fresh, empty one for every test. */
export function describeStoreConformance(name: string, open: () => Promise<OpenedStore>): void {
  describe(`${name}: conformance`, () => {
    let opened: OpenedStore;
    let store: ObjectStore;
    beforeEach(async () => {
      opened = await open();
      store = opened.store;
    });
    afterEach(async () => {
      await opened.close?.();
    });

    describe("create", () => {
      test("stores the bytes once and never overwrites them", async () => {
        expect(await store.create("a/b", bytes("first"))).toBe("created");
        expect(await store.create("a/b", bytes("second"))).toBe("exists");
        expect(await store.get("a/b")).toEqual(bytes("first"));
      });

      test("has one winner among 32 at once, and the winner's bytes are stored", async () => {
        for (let round = 0; round < 5; round++) {
          const bodies = Array.from({ length: 32 }, (_, i) => noise(3000, 100 * round + i + 1));
          const outcomes = await Promise.all(bodies.map((body) => store.create(`race/${round}`, body)));
          expect(outcomes.filter((one) => one === "created")).toHaveLength(1);
          expect(outcomes.filter((one) => one === "exists")).toHaveLength(31);
          expect(same(await store.get(`race/${round}`), bodies[outcomes.indexOf("created")])).toBe(true);
        }
      });

      test("works again after a delete", async () => {
        expect(await store.create("x", bytes("1"))).toBe("created");
        await store.delete(["x"]);
        expect(await store.create("x", bytes("2"))).toBe("created");
        expect(await store.get("x")).toEqual(bytes("2"));
      });
    });

    describe("bodies", () => {
      test("of several parts are stored one after another, empty ones too", async () => {
        const parts = [noise(10, 1), new Uint8Array(0), noise(100_000, 2), noise(1, 3), new Uint8Array(0)];
        await store.put("put", parts);
        await store.create("create", parts);
        expect(same(await store.get("put"), Buffer.concat(parts))).toBe(true);
        expect(same(await store.get("create"), Buffer.concat(parts))).toBe(true);
      });

      test("of no bytes are objects", async () => {
        await store.put("empty", new Uint8Array(0));
        expect(await store.create("none", [])).toBe("created");
        expect(await store.get("empty")).toEqual(new Uint8Array(0));
        expect(await store.get("none")).toEqual(new Uint8Array(0));
        expect((await store.list("empty")).objects).toEqual([{ key: "empty", size: 0 }]);
      });

      test("of thousands of parts, and of parts that are views into larger buffers", async () => {
        const backing = noise(30_000, 4);
        const parts = Array.from({ length: 3000 }, (_, i) => backing.subarray(i * 10, i * 10 + 10));
        await store.put("many", parts);
        expect(same(await store.get("many"), backing)).toBe(true);
      });

      test.each([1, 65_535, 131_071, 131_072, 131_073, 3_000_000])("of %i bytes come back whole", async (size) => {
        const body = noise(size, size);
        await store.put("sized", body);
        expect(same(await store.get("sized"), body)).toBe(true);
        expect((await store.list("sized")).objects).toEqual([{ key: "sized", size }]);
      });

      test("belong to the caller again after the call", async () => {
        const body = bytes("before");
        await store.put("mine", body);
        body.fill(0);
        expect(await store.get("mine")).toEqual(bytes("before"));
      });
    });

    describe("reads", () => {
      test("of absent keys give undefined, also when a key goes on below them", async () => {
        await store.put("a/b/c", bytes("x"));
        for (const key of ["none", "a", "a/b", "a/b/d", "a/b/c/d"]) {
          expect(await store.get(key)).toBeUndefined();
          expect(await store.getRange(key, 0, 10)).toBeUndefined();
          expect(await store.getRange(key, 0, 0)).toBeUndefined();
        }
      });

      test.each([
        [0, 1000],
        [0, 1],
        [999, 1],
        [100, 200],
        [990, 100],
        [0, 5000],
        [1000, 1],
        [4000, 5],
        [10, 0],
        [0, 2 ** 40],
        [500, Number.MAX_SAFE_INTEGER],
      ])("of the range [%i, +%i) of 1000 bytes give what is there", async (start, length) => {
        const body = noise(1000, 7);
        await store.put("range", body);
        expect(same(await store.getRange("range", start, length), body.subarray(start, start + length))).toBe(true);
      });

      test("refuse an object of more bytes than can be right, and give one of exactly as many", async (context) => {
        if (opened.hasNoLimits) return context.skip();
        for (const length of [10, 200_000]) {
          const key = `limited/${length}`;
          await store.put(key, noise(length));
          expect(same(await store.get(key, { bytesMax: length }), noise(length))).toBe(true);
          const refused = await store.get(key, { bytesMax: length - 1 }).catch((e: unknown) => e);
          expect(isBatchWeaveError(refused, "LIMIT"), `${length}: ${String(refused)}`).toBe(true);
        }
        expect(await store.get("limited/absent", { bytesMax: 1 })).toBeUndefined();
      });

      test("refuse ranges that are none", async () => {
        await store.put("range", bytes("abc"));
        for (const [start, length] of [
          [-1, 1],
          [0, -1],
          [0.5, 1],
          [0, Number.NaN],
        ] as const) {
          await expect(store.getRange("range", start, length)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
        }
      });

      test("see a put that returned, and the later of two", async () => {
        for (let i = 0; i < 20; i++) {
          await store.put("again", bytes(`version ${i}`));
          expect(await store.get("again")).toEqual(bytes(`version ${i}`));
        }
      });

      test("never see part of an object while it is replaced", async () => {
        const versions = [new Uint8Array(200_000).fill(1), new Uint8Array(300_000).fill(2)];
        await store.put("torn", versions[0] as Uint8Array);
        let isWriting = true;
        const writer = (async () => {
          for (let i = 0; i < 30; i++) await store.put("torn", versions[i % 2] as Uint8Array);
          isWriting = false;
        })();
        let reads = 0;
        while (isWriting) {
          const seen = await store.get("torn");
          expect(versions.some((version) => same(seen, version))).toBe(true);
          reads++;
          await new Promise((resolve) => setImmediate(resolve)); // a cached read would never let the writer go on
        }
        await writer;
        expect(reads).toBeGreaterThan(0);
      });
    });

    describe("list", () => {
      // "-" and "." come before "/", digits and letters after it: order of whole keys, not of folder names.
      const keys = [
        "a",
        "b-",
        "b-x/y",
        "b.",
        "b/a",
        "b/b/c",
        "b/b/d",
        "b/b0",
        "b0",
        "bA/z",
        "b_",
        "ba",
        "c/00000000000000000010",
        "c/00000000000000000011",
        "c/1",
      ];

      beforeEach(async () => {
        await Promise.all([...keys].sort(() => 1).map((key) => store.put(key, bytes(key))));
      });

      test("gives all keys in byte order with their sizes", async () => {
        const page = await store.list("");
        expect(page).toEqual({ objects: keys.map((key) => ({ key, size: key.length })), more: false });
      });

      test.each([1, 2, 3, 7, 14])("in pages of %i gives the same", async (limit) => {
        expect(await listAll(store, "", limit)).toEqual(keys);
      });

      test("takes any string as a prefix", async () => {
        const prefixes = [
          "",
          "b",
          "b-",
          "b/",
          "b/b",
          "b/b/",
          "c/0000",
          "c/00000000000000000010",
          "zzz",
          "b//",
          "../",
          "b/../",
          "/",
          "b/b/c/",
          "ü",
        ];
        for (const prefix of prefixes) {
          expect(await listAll(store, prefix), prefix).toEqual(keys.filter((key) => key.startsWith(prefix)));
        }
      });

      test("starts strictly after any string, present or not", async () => {
        for (const startAfter of [
          "",
          "0",
          "a",
          "b",
          "b-",
          "b-x",
          "b-x/",
          "b-x/y",
          "b/",
          "b/b",
          "b/b/",
          "b/b/c",
          "b/b/z",
          "b/b0",
          "b/zzz",
          "bZ",
          "c",
          "c/1",
          "zzz",
          "ü",
        ]) {
          for (const prefix of ["", "b", "b/", "b/b"]) {
            const page = await store.list(prefix, { startAfter });
            const wanted = keys.filter((key) => key.startsWith(prefix) && key > startAfter);
            expect(
              page.objects.map((one) => one.key),
              `${prefix} after ${startAfter}`,
            ).toEqual(wanted);
          }
        }
      });

      test("says whether there is more", async () => {
        expect((await store.list("", { limit: keys.length })).more).toBe(false);
        expect((await store.list("", { limit: keys.length - 1 })).more).toBe(true);
        expect((await store.list("b/", { limit: 4 })).more).toBe(false);
      });

      test("refuses a limit of nothing", async () => {
        await expect(store.list("", { limit: 0 })).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
      });
    });

    test("list gives at most 1,000 keys a page, and every key once over the pages", async () => {
      const keys = Array.from({ length: 1203 }, (_, i) => `many/${String((i * 7919) % 1203).padStart(20, "0")}.json`);
      for (let i = 0; i < keys.length; i += 100) {
        await Promise.all(keys.slice(i, i + 100).map((key) => store.put(key, bytes("x"))));
      }
      const first = await store.list("many/", { limit: 5000 });
      expect(first.objects).toHaveLength(1000);
      expect(first.more).toBe(true);
      expect(await listAll(store, "many/")).toEqual([...keys].sort());
    });

    describe("delete", () => {
      test("removes many, ignores what is absent, leaves the rest", async () => {
        const keys = Array.from({ length: 40 }, (_, i) => `d/${i % 7}/${i}`);
        await Promise.all(keys.map((key) => store.put(key, bytes(key))));
        await store.delete([...keys.slice(0, 30), "never/there", "d", keys[0] as string]);
        expect(await listAll(store, "")).toEqual(keys.slice(30).sort());
        expect(await store.get(keys[0] as string)).toBeUndefined();
        await store.delete([]);
        await store.delete(keys);
        expect(await listAll(store, "")).toEqual([]);
      });

      test("does not disturb creators of neighbours", async () => {
        // Emptying a folder and filling it at once: a creator whose folder vanishes makes it again.
        for (let round = 0; round < 30; round++) {
          await store.put(`p/q/${round}-old`, bytes("old"));
          const create = (): Promise<string> => store.create(`p/q/${round}-new`, bytes("new"));
          const [outcome] = await Promise.all([
            create(),
            store.delete([`p/q/${round}-old`]),
            store.delete([`p/q/${round - 1}-new`]),
          ]);
          // Nothing known is settled by the same bytes again.
          if (outcome === "unknown") expect(["created", "exists"]).toContain(await create());
          else expect(outcome).toBe("created");
        }
        expect(await listAll(store, "p/")).toEqual(["p/q/29-new"]);
      });
    });

    test("uploads left behind are aborted by prefix and age, and never an object", async (context) => {
      await store.put("u/object", bytes("x"));
      if (!store.abortUploads) return context.skip("leaves no uploads behind that anybody could abort");
      expect(await store.abortUploads("", 0)).toBe(0);
      if (!opened.leaveUpload) throw new Error("a test of a store that has abortUploads must be able to leave one");
      for (const key of ["u/1", "u/object", "v/1"]) await opened.leaveUpload(key);
      if (!opened.hasNoAges) expect(await store.abortUploads("", 60_000)).toBe(0);
      await expect(store.abortUploads("", 0, { signal: AbortSignal.abort("mine") })).rejects.toBe("mine");
      await new Promise((resolve) => setTimeout(resolve, 1_100)); // ages are told in whole seconds
      expect(await store.abortUploads("", 0, { only: () => false })).toBe(0);
      expect(await store.abortUploads("u/", 0, { only: (key) => key === "u/1" })).toBe(1);
      expect(await store.abortUploads("u/", 0)).toBe(1);
      expect(await store.abortUploads("", 0)).toBe(1);
      expect(await store.abortUploads("", 0)).toBe(0);
      expect(await listAll(store, "")).toEqual(["u/object"]);
    });

    test("keys that could lead elsewhere are refused by every call, and nothing is written", async () => {
      for (const key of escapes) {
        expect(isKey(key), key).toBe(false);
        const refused = { code: "INVALID_ARGUMENT" };
        await expect(store.create(key, bytes("x")), key).rejects.toMatchObject(refused);
        await expect(store.put(key, bytes("x")), key).rejects.toMatchObject(refused);
        await expect(store.get(key), key).rejects.toMatchObject(refused);
        await expect(store.getRange(key, 0, 1), key).rejects.toMatchObject(refused);
        await expect(store.delete(["fine", key]), key).rejects.toMatchObject(refused);
      }
      expect(await listAll(store, "")).toEqual([]);
    });

    test("keys of every allowed kind work", async () => {
      const keys = [".hidden", "...", "a/.b", "=", "-", "_", "A.b-C_d=9", `${"x/".repeat(400)}x`, "probe", "a/...."];
      for (const key of keys) {
        expect(await store.create(key, bytes(key)), key).toBe("created");
        expect(await store.get(key), key).toEqual(bytes(key));
      }
      expect(await listAll(store, "")).toEqual([...keys].sort());
    });

    describe("abort", () => {
      const reason = new Error("the caller's own reason");
      const calls: [string, (signal: AbortSignal) => Promise<unknown>][] = [
        ["create", (signal) => store.create("k", bytes("x"), { signal })],
        ["put", (signal) => store.put("k", bytes("x"), { signal })],
        ["get", (signal) => store.get("there", { signal })],
        ["getRange", (signal) => store.getRange("there", 0, 1, { signal })],
        ["list", (signal) => store.list("", { signal })],
        ["delete", (signal) => store.delete(["there"], { signal })],
      ];
      test.each(calls)("before %s begins rejects with the reason itself and does nothing", async (_name, call) => {
        await store.put("there", bytes("x"));
        await expect(call(AbortSignal.abort(reason))).rejects.toBe(reason);
        expect(await listAll(store, "")).toEqual(["there"]);
      });

      test("in the middle of a create either wrote nothing or tells the truth", async () => {
        const seen = new Set<string>();
        for (let i = 0; i < 60; i++) {
          const controller = new AbortController();
          const call = store.create(`k/${i}`, noise(100_000, i), { signal: controller.signal });
          setTimeout(() => controller.abort(reason), (i % 20) * 0.3);
          const outcome = await call.catch((e: unknown) => e);
          const stored = await store.get(`k/${i}`);
          if (outcome === reason) expect(stored).toBeUndefined();
          // What is under way on a network cannot be taken back: then nothing is known, and nobody claims to.
          else if (outcome === "unknown") expect(stored === undefined || same(stored, noise(100_000, i))).toBe(true);
          else expect([outcome, same(stored, noise(100_000, i))]).toEqual(["created", true]);
          seen.add(String(outcome));
        }
        expect(seen.size).toBeGreaterThan(0);
      });

      test("of one reader leaves another alone", async () => {
        await store.put("there", noise(500_000));
        const controller = new AbortController();
        const [one, other] = [store.get("there", { signal: controller.signal }), store.get("there")];
        controller.abort(reason);
        await one.catch((e: unknown) => expect(e).toBe(reason));
        expect(same(await other, noise(500_000))).toBe(true);
      });
    });

    test("the probe finds it safe and leaves nothing behind", async () => {
      const report = await probeStore(store, systemEnv, { rounds: 2, writers: 32 });
      expect(report.cases.filter((one) => !one.ok)).toEqual([]);
      expect(() => assertSafe(report)).not.toThrow();
      expect(await listAll(store, "")).toEqual([]);
    });

    test("its uri is for people and holds no secret", () => {
      expect(store.uri).toMatch(/^[a-z0-9]+:/);
      expect(isBatchWeaveError(store)).toBe(false);
    });
  });
}
