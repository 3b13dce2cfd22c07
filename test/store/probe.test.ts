/**
 * Property: the probe finds every broken rule by name, and a store's own failure is not taken for one.
 * Method: memory stores with one rule broken each. (That good stores pass is part of the conformance suite.)
 */
import { expect, test } from "vitest";
import { systemEnv } from "../../src/env/index.js";
import { isBatchWeaveError } from "../../src/errors.js";
import { assertSafe, MemoryStore, type ObjectStore, probeStore } from "../../src/store/index.js";
import { listAll } from "./conformance.js";
import { scriptedStore, unavailable } from "./scripted-store.js";

const race = "conditional create: one winner of many";
const overwrite = "conditional create never overwrites";
const fresh = "read after write";
const list = "list in byte order, with start-after and limit";
const range = "ranges at the edges";
const gone = "delete, and delete of what is absent";

const broken: [string, string[], (memory: MemoryStore) => Partial<ObjectStore>][] = [
  [
    "ignores the precondition",
    [race, overwrite],
    (memory) => ({
      create: (key, body) => memory.put(key, body).then(() => "created" as const),
    }),
  ],
  [
    "checks, then writes",
    [race],
    (memory) => ({
      create: async (key, body) => {
        if (await memory.get(key)) return "exists";
        await systemEnv.sleep(1);
        await memory.put(key, body);
        return "created";
      },
    }),
  ],
  [
    "says exists and overwrites",
    [race, overwrite],
    (memory) => ({
      create: async (key, body) => {
        const outcome = await memory.create(key, body);
        await memory.put(key, body);
        return outcome;
      },
    }),
  ],
  [
    "tells everybody that they lost",
    [race],
    (memory) => ({
      create: async (key, body) =>
        (await memory.create(key, body)) === "created" && key.includes("/race")
          ? "exists"
          : (await memory.get(key))
            ? "unknown"
            : "created",
    }),
  ],
  [
    "lists out of order",
    [list],
    (memory) => ({
      list: async (prefix, options) => {
        const page = await memory.list(prefix, options);
        return { ...page, objects: [...page.objects].reverse() };
      },
    }),
  ],
  [
    "ignores start-after",
    [list],
    (memory) => ({
      list: (prefix, options) => memory.list(prefix, { ...options, startAfter: undefined }),
    }),
  ],
  [
    "remembers absence",
    [fresh],
    (memory) => {
      const missing = new Set<string>();
      return {
        get: async (key) => {
          const found = missing.has(key) ? undefined : await memory.get(key);
          if (!found && key.includes("/fresh")) missing.add(key);
          return found;
        },
      };
    },
  ],
  ["ignores ranges", [range], (memory) => ({ getRange: (key) => memory.get(key) })],
  ["does not delete", [gone], () => ({ delete: async () => {} })],
];

test.each(broken)("a store that %s is refused, by the name of the rule", async (_what, rules, breakIt) => {
  const memory = new MemoryStore();
  const { store } = scriptedStore(breakIt(memory), memory);
  const report = await probeStore(store, systemEnv, { rounds: 2, writers: 32 });
  expect(report.cases.filter((one) => !one.ok).map((one) => one.name)).toEqual(rules);
  expect(report.safe).toBe(false);
  try {
    assertSafe(report);
    expect.unreachable();
  } catch (e) {
    if (!isBatchWeaveError(e, "UNSAFE_STORE")) throw e;
    for (const rule of rules) expect(e.message).toContain(rule);
  }
});

test("lost answers do not make a store unsafe, but a store that fails is not judged", async () => {
  const memory = new MemoryStore();
  const lossy = scriptedStore(
    {
      create: async (key, body) => {
        const outcome = await memory.create(key, body);
        return outcome === "created" ? "unknown" : outcome;
      },
    },
    memory,
  );
  expect((await probeStore(lossy.store, systemEnv)).safe).toBe(true);
  const down = scriptedStore(
    {
      getRange: async () => {
        throw unavailable();
      },
    },
    memory,
  );
  await expect(probeStore(down.store, systemEnv)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  expect(await listAll(memory, "")).toEqual([]);
});
