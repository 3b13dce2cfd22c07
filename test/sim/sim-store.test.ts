/**
 * Properties: the simulated store keeps the ObjectStore contract, and each fault is exactly the fault it is named after.
 * Method: one process, one call, one fault at probability 1.
 */
import { describe, expect, test } from "vitest";
import type { CallFault, FaultProfile, ProcessContext, SimulationOptions } from "../../sim/index.js";
import { Rng, Simulation } from "../../sim/index.js";
import { KeyIndex } from "../../sim/store/key-index.js";
import { isBatchWeaveError } from "../../src/errors.js";
import type { ObjectStore } from "../../src/store/index.js";

const text = (value: Uint8Array | undefined): string | undefined => value && new TextDecoder().decode(value);
const bytes = (value: string): Uint8Array => new TextEncoder().encode(value);

async function inWorld<T>(
  main: (context: ProcessContext, sim: Simulation) => Promise<T>,
  options: Partial<SimulationOptions> = {},
  prepare?: (sim: Simulation) => void,
): Promise<{ value: T | undefined; sim: Simulation }> {
  const sim = new Simulation({ seed: 3, latency: "constant", ...options });
  prepare?.(sim);
  let value: T | undefined;
  const process = sim.spawn("one", async (context) => {
    value = await main(context, sim);
  });
  await sim.world.run();
  if (process.exit?.reason === "threw") throw process.exit.error;
  return { value, sim };
}

/** The fault at probability 1, the first time only. */
function once(fault: CallFault): { faults: FaultProfile } {
  return { faults: { calls: { [fault]: 1 }, budgets: { [fault]: 1 } } };
}

describe("contract", () => {
  test("six calls", async () => {
    await inWorld(async ({ store }) => {
      expect(await store.create("a/1", bytes("one"))).toBe("created");
      expect(await store.create("a/1", bytes("two"))).toBe("exists");
      await store.put("a/2", [bytes("par"), bytes("ts")]);
      expect(text(await store.get("a/1"))).toBe("one");
      expect(text(await store.get("a/2"))).toBe("parts");
      expect(await store.get("a/3")).toBeUndefined();
      expect(text(await store.getRange("a/2", 1, 3))).toBe("art");
      expect(text(await store.getRange("a/2", 3, 30))).toBe("ts");
      expect(await store.getRange("a/2", 5, 1)).toEqual(new Uint8Array());
      expect(await store.getRange("a/3", 0, 1)).toBeUndefined();
      expect(await store.list("a/")).toEqual({
        objects: [
          { key: "a/1", size: 3 },
          { key: "a/2", size: 5 },
        ],
        more: false,
      });
      expect(await store.list("a/", { limit: 1 })).toEqual({ objects: [{ key: "a/1", size: 3 }], more: true });
      expect(await store.list("", { startAfter: "a/1" })).toEqual({ objects: [{ key: "a/2", size: 5 }], more: false });
      await store.delete(["a/1", "a/9"]);
      expect(await store.get("a/1")).toBeUndefined();
    });
  });

  test("neither a kept body nor a received one changes what is stored", async () => {
    const main = async ({ store }: ProcessContext): Promise<void> => {
      const body = Buffer.from("mine");
      const sent = store.put("k", body);
      body[0] = 0;
      await sent;
      const got = (await store.get("k")) as Uint8Array;
      expect(text(got)).toBe("mine");
      got[0] = 0;
      const part = (await store.getRange("k", 0, 2)) as Uint8Array;
      part[0] = 0;
      expect(text(await store.get("k"))).toBe("mine");
    };
    await inWorld(main, { store: { copies: "both" } });
  });

  test("where readers share the stored bytes, one that writes into them is found out", async () => {
    const { sim } = await inWorld(async ({ store }) => {
      await store.put("k", bytes("mine"));
      await store.put("l", bytes("yours"));
    });
    sim.store.assertUntouched();
    (sim.store.get("l") as Uint8Array)[0] = 0;
    expect(() => sim.store.assertUntouched()).toThrow("a reader changed the bytes of l");
  });

  test("pages hold 1,000 keys", async () => {
    await inWorld(
      async ({ store }) => {
        const first = await store.list("x/");
        expect([first.objects.length, first.more]).toEqual([1000, true]);
        const rest = await store.list("x/", { startAfter: first.objects.at(-1)?.key });
        expect([rest.objects.length, rest.more]).toEqual([500, false]);
      },
      {},
      (sim) => {
        for (let i = 0; i < 1500; i++)
          sim.store.put(`x/${String(i).padStart(5, "0")}`, { size: 1, parts: [bytes("x")] });
      },
    );
  });

  test("the key index agrees with a sorted array", () => {
    const rng = new Rng(5, "keys");
    const index = new KeyIndex();
    const model = new Set<string>();
    for (let i = 0; i < 20_000; i++) {
      const key = `${"abc"[rng.below(3)]}/${rng.below(3000)}`;
      if (model.delete(key)) index.remove(key);
      else {
        model.add(key);
        index.add(key);
      }
    }
    const sorted = [...model].sort();
    expect(index.size).toBe(sorted.length);
    expect(index.page("", "", 1e9)).toEqual(sorted);
    for (const prefix of ["a", "b/", "b/2", "c/29", "d", ""]) {
      for (const after of ["", "a/5", "b/2", "b/2000", "c/999", "z"]) {
        const expected = sorted.filter((key) => key.startsWith(prefix) && key > after).slice(0, 700);
        expect(index.page(prefix, after, 700)).toEqual(expected);
      }
    }
  });
});

describe("a conditional create", () => {
  const cases: [CallFault, { outcome: string; stored: boolean }][] = [
    ["requestLost", { outcome: "unknown", stored: false }],
    ["responseLost", { outcome: "unknown", stored: true }],
    ["errorAfterApply", { outcome: "unknown", stored: true }],
    ["errorBeforeApply", { outcome: "unknown", stored: false }],
    ["conflict", { outcome: "unknown", stored: false }],
    ["slowDown", { outcome: "unknown", stored: false }],
    ["duplicate", { outcome: "created", stored: true }],
    ["duplicateAnswer", { outcome: "exists", stored: true }],
    ["slow", { outcome: "created", stored: true }],
  ];
  test.each(cases)("%s", async (fault, expected) => {
    const { value } = await inWorld(async ({ store }, sim) => {
      const outcome = await store.create("m/1", bytes("x"));
      return { outcome, stored: sim.store.sizeOf("m/1") !== undefined };
    }, once(fault));
    expect(value).toEqual(expected);
  });

  test("refused: throws, since certainly nothing was written", async () => {
    const { sim } = await inWorld(async ({ store }) => {
      await expect(store.create("m/1", bytes("x"))).rejects.toSatisfy((e) => isBatchWeaveError(e, "STORE_UNAVAILABLE"));
    }, once("refused"));
    expect(sim.store.size).toBe(0);
  });

  test("requestLate: unknown, absent when looked for, and there minutes later", async () => {
    const { value, sim } = await inWorld(async ({ store, env }, sim) => {
      const start = env.monotonic();
      const outcome = await store.create("m/1", bytes("late"));
      const waited = env.monotonic() - start;
      const seen = await store.get("m/1");
      await env.sleep(700_000);
      return { outcome, waited, seen, later: text(await store.get("m/1")), landings: sim.stats.lateLandings };
    }, once("requestLate"));
    expect(value).toEqual({ outcome: "unknown", waited: 15_000, seen: undefined, later: "late", landings: 1 });
    expect(sim.stats.unknownCreates).toBe(1);
  });

  test("a late create loses to what took the name meanwhile", async () => {
    const { value } = await inWorld(async ({ store, env }) => {
      await store.create("m/1", bytes("late"));
      const second = await store.create("m/1", bytes("second"));
      await env.sleep(700_000);
      return [second, text(await store.get("m/1"))];
    }, once("requestLate"));
    expect(value).toEqual(["created", "second"]);
  });

  test("a store that ignores preconditions says created twice", async () => {
    const { value } = await inWorld(
      async ({ store }) => [await store.create("m/1", bytes("a")), await store.create("m/1", bytes("b"))],
      { store: { ignoresPreconditions: true } },
    );
    expect(value).toEqual(["created", "created"]);
  });
});

describe("other faults", () => {
  test.each(["requestLost", "responseLost", "errorAfterApply", "errorBeforeApply", "slowDown", "refused"] as const)(
    "%s makes a read STORE_UNAVAILABLE",
    async (fault) => {
      await inWorld(async ({ store }) => {
        await expect(store.get("k")).rejects.toSatisfy((e) => isBatchWeaveError(e, "STORE_UNAVAILABLE"));
        expect(await store.get("k")).toBeUndefined();
      }, once(fault));
    },
  );

  test("a late duplicate of a put brings old bytes back", async () => {
    const { value } = await inWorld(
      async ({ store, env }) => {
        await store.put("k", bytes("old"));
        await store.delete(["k"]);
        await env.sleep(700_000);
        return text(await store.get("k"));
      },
      { faults: { calls: { duplicate: { put: 1 } }, lateMs: [60_000, 60_001] }, seed: 5 },
    );
    expect(value).toBe("old");
  });

  test("ranges are cut short or flipped, and good the next time", async () => {
    for (const fault of ["truncated", "corrupted"] as const) {
      await inWorld(
        async ({ store }) => {
          const bad = (await store.getRange("k", 0, 10)) as Uint8Array;
          const good = (await store.getRange("k", 0, 10)) as Uint8Array;
          expect(text(good)).toBe("0123456789");
          if (fault === "truncated") expect(bad.length).toBeLessThan(10);
          else {
            expect(bad.length).toBe(10);
            expect(bad).not.toEqual(good);
          }
        },
        once(fault),
        (sim) => sim.store.put("k", { size: 10, parts: [bytes("0123456789")] }),
      );
    }
  });

  test("a short page says that there is more, and paging on finds every key once", async () => {
    await inWorld(
      async ({ store }) => {
        const keys: string[] = [];
        for (let page = await store.list("x/"); ; page = await store.list("x/", { startAfter: keys.at(-1) })) {
          keys.push(...page.objects.map((o) => o.key));
          if (!page.more) break;
        }
        expect(keys).toEqual(Array.from({ length: 20 }, (_, i) => `x/${10 + i}`));
      },
      { faults: { calls: { shortPage: 0.9 } } },
      (sim) => {
        for (let i = 0; i < 20; i++) sim.store.put(`x/${10 + i}`, { size: 1, parts: [bytes("x")] });
      },
    );
  });

  test("a bulk delete fails half way", async () => {
    const { sim } = await inWorld(
      async ({ store }) => {
        const keys = Array.from({ length: 40 }, (_, i) => `x/${i}`);
        await expect(store.delete(keys)).rejects.toSatisfy((e) => isBatchWeaveError(e, "STORE_UNAVAILABLE"));
      },
      once("partialDelete"),
      (sim) => {
        for (let i = 0; i < 40; i++) sim.store.put(`x/${i}`, { size: 1, parts: [bytes("x")] });
      },
    );
    expect(sim.store.size).toBeGreaterThan(5);
    expect(sim.store.size).toBeLessThan(35);
  });

  test("stalled before sending: the request goes out when the zombie wakes", async () => {
    const { value } = await inWorld(
      async ({ store, process }, sim) => {
        const sent = store.put("k", bytes("zombie"));
        sim.world.after(50_000, () => expect(sim.store.size).toBe(0));
        await sent;
        return process.world.nowMs;
      },
      { faults: { ...once("stall").faults, stallMs: [100_000, 100_001] } },
    );
    expect(value).toBeGreaterThan(100_000);
  });

  test.each([
    ["crashBeforeSend", 0],
    ["crashAfterApply", 1],
    ["crashBeforeAnswer", 1],
  ] as const)("%s", async (fault, stored) => {
    let after = false;
    const { sim } = await inWorld(async ({ store }) => {
      await store.put("k", bytes("x"));
      after = true;
    }, once(fault));
    expect(after).toBe(false);
    expect(sim.store.size).toBe(stored);
    expect(sim.world.processes[0]?.exit).toEqual({ reason: "crashed" });
  });
});

describe("limits", () => {
  test("64 connections: the 65th call waits for the first answer", async () => {
    const { value, sim } = await inWorld(async ({ store, env }) => {
      const start = env.monotonic();
      await Promise.all(Array.from({ length: 65 }, (_, i) => store.get(`k/${i}`)));
      return env.monotonic() - start;
    });
    expect(value).toBe(20);
    expect(sim.stats.queued).toBe(1);
  });

  test("a prefix takes 3,500 writes and 5,500 reads a second, then says SlowDown; other prefixes are not hit", async () => {
    const { value } = await inWorld(
      async ({ store, env }) => {
        const count = async (calls: Promise<unknown>[]): Promise<number> =>
          (await Promise.allSettled(calls)).filter((r) => r.status === "fulfilled").length;
        const many = (n: number): number[] => Array.from({ length: n }, (_, i) => i);
        const writes = await count(many(4000).map((i) => store.put(`hot/${i}`, bytes("x"))));
        const reads = await count(many(6000).map((i) => store.get(`hot/${i}`)));
        const others = await count(many(1000).map((i) => store.put(`cold/${i}`, bytes("x"))));
        await env.sleep(1000);
        const later = await count(many(1000).map((i) => store.put(`hot/${i}`, bytes("x"))));
        return { writes, reads, others, later };
      },
      { store: { ceiling: {} }, connectionsMax: 10_000 },
    );
    expect(value).toEqual({ writes: 3500, reads: 5500, others: 1000, later: 1000 });
  });

  test("bytes take time: 90 MB/s a connection, all connections together what the process has", async () => {
    const { value } = await inWorld(
      async ({ store, env }) => {
        const start = env.monotonic();
        const body = new Uint8Array(9_000_000);
        await store.put("one", body);
        const one = env.monotonic() - start;
        await Promise.all(Array.from({ length: 50 }, (_, i) => store.put(`many/${i}`, body)));
        return [one, Math.round(env.monotonic() - start - one)];
      },
      { store: { copies: "none" } },
    );
    expect(value).toEqual([110, 370]);
  });

  test("what nobody will read can be forgotten, and then reading or listing it is a loud error", async () => {
    const options = { store: { forgets: (key: string) => key.startsWith("batch/") } };
    const { sim } = await inWorld(async ({ store }) => store.put("batch/1", new Uint8Array(1000)), options);
    expect(sim.store.size).toBe(0);
    expect(sim.stats.bytesSent).toBe(1000);
    for (const read of [(store: ObjectStore) => store.get("batch/1"), (store: ObjectStore) => store.list("batch/")]) {
      await expect(
        inWorld(async ({ store }) => {
          await store.put("batch/1", new Uint8Array(1000));
          await read(store);
        }, options),
      ).rejects.toThrow(/told to forget/);
    }
  });
});
