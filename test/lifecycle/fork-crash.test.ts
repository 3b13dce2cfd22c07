/**
 * Property: wherever a forker dies, there is no fork, or one that works; pins and forks never miss each other. Method: a process that dies at every call
 * in turn, and hooks at the moments where two processes could cross.
 */
import { describe, expect, test } from "vitest";
import { decodeNamespace, type Manifest, namespaceKey, nodeRefKey, type Pin } from "../../src/format/index.js";
import { confirmPins, forkLog, reclaim, releaseAbandonedPin, releasePins } from "../../src/lifecycle/index.js";
import type { Log } from "../../src/log/index.js";
import { MemoryStore } from "../../src/store/index.js";
import { FailingStores, findUuid, fork, now, opener, parentOf, texts, trimTo } from "./fork-world.js";
import { HookedStore } from "./hooked-store.js";
import { type SmallWorld, Writer } from "./small-world.js";

describe("a forker that dies at any call", () => {
  test.each(["before", "after"] as const)(
    "leaves either no fork, or one that works once it is opened (%s the effect)",
    async (effect) => {
      const build = async (): Promise<{ world: SmallWorld; f1: Log; expected: string[] }> => {
        const { world, log } = await parentOf(150);
        const f1 = await fork(world, log, "memory:f1", { at: 140 });
        await new Writer(f1, "one").write(70, { perCommit: 9 });
        return { world, f1, expected: (await texts(f1)).filter((_, i) => i < 200 && !(i >= 20 && i < 25)) };
      };
      let calls = Number.POSITIVE_INFINITY;
      let created = 0;
      for (let dieAt = 0; dieAt < calls; dieAt++) {
        const { world, f1, expected } = await build();
        // One process: its calls are counted over all stores it uses.
        const process = new FailingStores(world, dieAt, effect);
        const parent = { log: world.open("memory:f1", f1.spec, process.store("memory:f1")), uri: "memory:f1" };
        const target = { uri: "memory:f2", store: process.store("memory:f2") };
        const openLog = opener(world, (uri) => process.store(uri));
        await forkLog({ parent, target, env: world.env, openLog }, { at: 200, skip: [{ from: 20, to: 25 }] }).catch(
          () => {},
        );
        calls = process.calls <= dieAt ? process.calls : Number.POSITIVE_INFINITY;
        // Whatever the ancestors do now, the fork works or does not exist.
        const root = await opener(world)("memory:parent", "");
        const bytes = await world.store("memory:f2").get(namespaceKey);
        if (bytes) {
          created++;
          const spec = decodeNamespace(bytes, "f2");
          await confirmPins(spec, opener(world));
          for (const { uri } of spec.fork?.origins ?? [])
            await expect(
              releaseAbandonedPin(await opener(world)(uri, ""), spec.uuid, (u) => findUuid(world, u)),
            ).rejects.toThrow("exists");
          await trimTo(root, 150);
          await trimTo(world.open("memory:f1", f1.spec), 205);
          expect(await texts(world.open("memory:f2", spec))).toEqual(expected);
        } else {
          for (const log of [root, world.open("memory:f1", f1.spec)]) {
            for (const [id] of abandoned(await log.head.jump(), f1.spec.uuid))
              await releaseAbandonedPin(log, id, (u) => findUuid(world, u));
            expect(abandoned(await log.head.jump(), f1.spec.uuid)).toEqual([]);
          }
        }
      }
      expect(created).toBeGreaterThan(2);
    },
  );

  test("a slow forker whose pin was removed as abandoned does not create a fork that would lose its data", async () => {
    const { world, log } = await parentOf(100);
    const store = new MemoryStore("memory:slow");
    let removed = 0;
    const target = new Proxy(store, {
      get(on, name) {
        if (name !== "create")
          return typeof on[name as never] === "function"
            ? (on[name as never] as () => void).bind(on)
            : on[name as never];
        return async (...args: Parameters<MemoryStore["create"]>) => {
          // While it slept, somebody found the pin abandoned.
          for (const [id] of (await log.head.jump()).pins) {
            await releaseAbandonedPin(log, id, async () => undefined);
            removed++;
          }
          return await on.create(...args);
        };
      },
    });
    const parts = {
      parent: { log, uri: "memory:parent" },
      target: { uri: "memory:slow", store: target },
      env: world.env,
      openLog: opener(world),
    };
    await expect(forkLog(parts, { at: 80 })).rejects.toMatchObject({ code: "RECLAIMED" });
    expect(removed).toBe(1);
    expect(await store.get(namespaceKey)).toBeUndefined();
  });

  test("an abandoned pin that is confirmed at the last moment stays", async () => {
    const { world, log } = await parentOf(100);
    const forked = await fork(world, log, "memory:f", { at: 80 });
    const { spec } = forked;
    await log.commit(
      {
        by: "as if not yet",
        kind: "own",
        stage: (draft) => {
          const pin = draft.pins.get(spec.uuid);
          draft.pins.set(spec.uuid, { ...(pin as NonNullable<typeof pin>), confirmed: false });
          return { done: false, result: 0 };
        },
      },
      { fresh: true },
    );
    // It looked before the fork was created, and removes after the fork was confirmed.
    await releaseAbandonedPin(log, spec.uuid, async () => {
      await confirmPins(spec, opener(world));
      return undefined;
    });
    expect((await log.head.jump()).pins.get(spec.uuid)).toMatchObject({ confirmed: true });
  });

  test("a trim that overtakes the plan makes it plan again, on what is still live", async () => {
    const { world, log } = await parentOf(100);
    let struck = false;
    const hooked = new HookedStore(world.store("memory:parent"), {
      create: async (key, inner) => {
        if (!struck && key.startsWith("manifest/")) {
          struck = true;
          await trimTo(log, 50);
        }
        return await inner();
      },
    });
    const parent = { log: world.open("memory:parent", log.spec, hooked), uri: "memory:parent" };
    const target = { uri: "memory:f", store: world.store("memory:f") };
    const spec = await forkLog({ parent, target, env: world.env, openLog: opener(world) }, { at: 80 });
    expect(struck).toBe(true);
    await trimTo(log, 100);
    const forked = world.open("memory:f", spec);
    expect((await forked.head.jump()).steps).toMatchObject({ trim: 50, end: 80 });
    expect(await texts(forked)).toHaveLength(30);
  });

  test("a reclaimer that reads a pin's root while the pin is released and swept goes on with the newer version", async () => {
    const { world, log } = await parentOf(100);
    const forked = await fork(world, log, "memory:f", { at: 80 });
    const root = nodeRefKey(((await log.head.jump()).pins.get(forked.spec.uuid) as Pin).root);
    let struck = false;
    const store = world.store("memory:parent");
    const hooked = new HookedStore(store, {
      create: async (key, inner) => {
        const outcome = await inner();
        if (!struck && key.startsWith("manifest/")) {
          struck = true;
          await releasePins(forked.spec, forked.spec.fork?.origins ?? [], async () => log, { unconfirmed: false });
          for (let i = 0; (await store.getRange(root, 0, 1)) && i < 5; i++) await trimTo(log, 0);
        }
        return outcome;
      },
    });
    await reclaim(world.open("memory:parent", log.spec, hooked), now);
    expect(struck).toBe(true);
    expect(await store.getRange(root, 0, 1)).toBeUndefined();
  });

  test("a fork whose pins are gone is refused when it is opened", async () => {
    const { world, log } = await parentOf(100);
    const forked = await fork(world, log, "memory:f", { at: 80 });
    await releasePins(forked.spec, forked.spec.fork?.origins ?? [], opener(world), { unconfirmed: false });
    await expect(confirmPins(forked.spec, opener(world))).rejects.toMatchObject({ code: "RECLAIMED" });
  });
});

/** Pins that are not the one of `besides`. */
function abandoned(manifest: Manifest, besides: string): [string, unknown][] {
  return [...manifest.pins].filter(([id]) => id !== besides);
}
