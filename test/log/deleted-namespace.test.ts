/**
 * Property: a process whose namespace is deleted under it stops with DELETED, whatever it was doing and however long it was stopped; nothing is
 * acknowledged after the deletion, and a namespace made again at the place is never touched (hazard 34). Method: a memory store whose calls
 * are held up in the middle, one role after another.
 */
import { describe, expect, test } from "vitest";
import { systemEnv } from "../../src/env/index.js";
import { decodeNamespace, encodeNamespace, lifeFolder, namespaceKey } from "../../src/format/index.js";
import { createNamespace, deleteNamespace, listNamespaces, type Namespace, openNamespace } from "../../src/index.js";
import { Log } from "../../src/log/index.js";
import { Presence } from "../../src/log/presence.js";
import { MemoryStore, withPrefix } from "../../src/store/index.js";
import { AutoEnv } from "../lifecycle/auto-env.js";
import { HookedStore } from "../lifecycle/hooked-store.js";
import { keysOf, SmallWorld, Writer } from "../lifecycle/small-world.js";

const uri = "memory:lives";
const settings = { grid: { rows: 1, chunks: 1 } };
const slice = [Buffer.from("x")];
const cadence = { kind: "interval", intervalMs: 1 } as const;

/** Everything of a namespace, by key and bytes. */
async function contents(store: MemoryStore, uuid: string): Promise<Map<string, string>> {
  const folder = `${lifeFolder({ format: 2, uuid })}/`;
  const keys = [namespaceKey, ...(await keysOf(store, folder))];
  const bytes = await Promise.all(keys.map((key) => store.get(key)));
  return new Map(keys.map((key, i) => [key, Buffer.from(bytes[i] ?? []).toString("latin1")]));
}

/** Deletes, makes again, and fills the new one. */
async function succeed(store: MemoryStore, batches = 5): Promise<{ uuid: string; before: Map<string, string> }> {
  await deleteNamespace(uri, { store });
  const ns = await createNamespace(uri, settings, { store });
  const producer = await ns.producer({ id: "p", cadence });
  for (let i = 0; i < batches; i++) await producer.append([Buffer.from(`new ${i}`)]);
  await producer.close();
  return { uuid: ns.uuid, before: await contents(store, ns.uuid) };
}

async function fill(ns: Namespace, batches: number): Promise<void> {
  await using producer = await ns.producer({ id: "p", cadence });
  for (let i = 0; i < batches; i++) {
    await producer.append(slice);
    await producer.flush();
  }
}

describe("whoever has it open", () => {
  test("a producer, at once, without being told by a clock", async () => {
    const store = new MemoryStore();
    const ns = await createNamespace(uri, settings, { store });
    const producer = await ns.producer({ id: "p", cadence });
    await producer.append(slice);
    await producer.flush();
    const { uuid, before } = await succeed(store);
    const ticket = await producer.append(slice);
    await expect(ticket.committed).rejects.toMatchObject({ code: "DELETED" });
    await expect(producer.flush()).rejects.toMatchObject({ code: "DELETED" });
    expect(await contents(store, uuid)).toEqual(before);
  });

  test("a producer that is stopped right before its commit, while everything is deleted and made again", async () => {
    const store = new MemoryStore();
    let next: { uuid: string; before: Map<string, string> } | undefined;
    const held = new HookedStore(store, {
      create: async (key, inner) => {
        if (key.includes("/manifest/") && isArmed && !next) next = await succeed(store);
        return await inner();
      },
    });
    let isArmed = false;
    const ns = await createNamespace(uri, settings, { store: held });
    const producer = await ns.producer({ id: "p", cadence });
    isArmed = true;
    const ticket = await producer.append(slice);
    await expect(ticket.committed).rejects.toMatchObject({ code: "DELETED" });
    expect(next).toBeDefined();
    expect(await contents(store, next?.uuid ?? "")).toEqual(next?.before);
    const again = await openNamespace(uri, { store });
    expect((await again.verify({ level: "bytes" })).problems).toEqual([]);
    expect((await again.info()).steps.end).toBe(5);
  });

  test("a reclaimer that is stopped in the middle of its deletes destroys nothing of the new one", async () => {
    const store = new MemoryStore();
    let next: { uuid: string; before: Map<string, string> } | undefined;
    const held = new HookedStore(store, {
      beforeDelete: async (keys) => {
        if (keys.some((key) => key.includes("/manifest/")) && !next) next = await succeed(store, 30);
      },
    });
    const ns = await createNamespace(uri, settings, { store: held });
    await fill(ns, 30);
    await ns.reclaim({ graceMs: 0, keepVersions: 2 }).catch(() => {});
    expect(next).toBeDefined();
    expect(await contents(store, next?.uuid ?? "")).toEqual(next?.before);
    const again = await openNamespace(uri, { store });
    expect((await again.info()).steps.end).toBe(30);
    await expect(ns.reclaim()).rejects.toMatchObject({ code: "DELETED" });
  });

  test("a rank that waits, a checkpoint, a fork, verify, info and a reclaim loop", async () => {
    const store = new MemoryStore();
    const ns = await createNamespace(uri, settings, { store });
    await fill(ns, 2);
    const consumer = await ns.consumer({ mesh: { dp: 1 }, rank: 0, from: "earliest", pollDelayMs: 5 });
    const seen = await consumer.next();
    await consumer.next();
    const waiting = consumer.next();
    const loop = ns.watchReclaim({ intervalMs: 5 }, { signal: new AbortController().signal });
    loop.catch(() => {});
    const { uuid, before } = await succeed(store);
    const ends = [
      waiting,
      loop,
      ns.checkpoint("c", seen.value?.next ?? ""),
      ns.fork("memory:fork-of-deleted"),
      ns.verify(),
      ns.info(),
      ns.endLog(),
      ns.setMaxLag(5),
      ns.producer({ id: "q" }),
    ];
    // All of them fail at once, and are looked at one after another.
    for (const end of ends) end.catch(() => {});
    for (const end of ends) await expect(end).rejects.toMatchObject({ code: "DELETED" });
    expect(await contents(store, uuid)).toEqual(before);
  });

  test("one whose commit was answered with exists, and who finds nothing under that name any more", async () => {
    const store = new MemoryStore();
    let isArmed = false;
    const held = new HookedStore(store, {
      create: async (key, inner) => {
        if (!isArmed || !key.includes("/manifest/")) return await inner();
        isArmed = false;
        await deleteNamespace(uri, { store });
        return "exists";
      },
    });
    const ns = await createNamespace(uri, settings, { store: held });
    await fill(ns, 3);
    isArmed = true;
    await expect(ns.setMaxLag(7)).rejects.toMatchObject({ code: "DELETED" });
  });

  test("a process that is stopped while it opens", async () => {
    const store = new MemoryStore();
    await createNamespace(uri, settings, { store });
    let isFirst = true;
    const held = new HookedStore(store, {
      afterGet: async (key) => {
        if (key !== namespaceKey || !isFirst) return;
        isFirst = false;
        await deleteNamespace(uri, { store });
      },
    });
    const opening = openNamespace(uri, { store: held }).then((ns) => ns.producer({ id: "p" }));
    await expect(opening).rejects.toMatchObject({ code: "DELETED" });
  });

  test("one whose folder was removed by hand, when it looks", async () => {
    const store = new MemoryStore();
    let pausedMs = 0;
    const env = { ...systemEnv, monotonic: () => systemEnv.monotonic() + pausedMs };
    const ns = await createNamespace(uri, settings, { store, env });
    const producer = await ns.producer({ id: "p", cadence });
    await store.delete(await keysOf(store));
    pausedMs = 60_000;
    await producer.append(slice);
    await expect(producer.flush()).rejects.toMatchObject({ code: "DELETED" });
  });
});

describe("a deletion", () => {
  test("leaves one marker of each life, and a place that is free", async () => {
    const store = new MemoryStore();
    for (let life = 1; life <= 3; life++) {
      const ns = await createNamespace(uri, settings, { store });
      await fill(ns, 3);
      await store.put("probe/died/race-0", Buffer.from("left by a probe"));
      await deleteNamespace(uri, { store });
      expect((await keysOf(store)).length).toBe(life);
      expect((await keysOf(store)).every((key) => /^life\/[0-9a-f-]{36}\/boundary\/0{19}1\.json$/.test(key))).toBe(
        true,
      );
    }
    await expect(deleteNamespace(uri, { store })).rejects.toMatchObject({ code: "NO_NAMESPACE" });
  });

  test("what it leaves behind is no namespace for a listing, and hides none", async () => {
    const store = new MemoryStore();
    const other = await createNamespace("memory:", settings, { store: withPrefix(store, "runs/other") });
    const here = withPrefix(store, "runs/place");
    const found = async (): Promise<(string | undefined)[]> => {
      const uuids: (string | undefined)[] = [];
      for await (const { uuid } of listNamespaces("memory:", { store })) uuids.push(uuid);
      return uuids;
    };
    for (let life = 0; life < 3; life++) {
      const ns = await createNamespace(uri, settings, { store: here });
      await fill(ns, 2);
      expect(await found()).toEqual([other.uuid, ns.uuid]);
      await deleteNamespace(uri, { store: here });
      expect(await found()).toEqual([other.uuid]);
    }
    expect((await other.info()).version).toBe(0);
    expect((await other.verify()).problems).toEqual([]);
  });

  test("goes on from wherever it was interrupted, and until then the namespace answers DELETED", async () => {
    for (let calls = 1; ; calls++) {
      const store = new MemoryStore();
      const ns = await createNamespace(uri, settings, { store });
      await fill(ns, 3);
      let left = calls;
      const die = async (): Promise<void> => {
        if (left-- <= 0) throw new Error("crashed");
      };
      const mortal = new HookedStore(store, {
        create: async (_, inner) => {
          await die();
          return await inner();
        },
        beforeDelete: die,
      });
      const isDone = await deleteNamespace(uri, { store: mortal }).then(
        () => true,
        () => false,
      );
      if (isDone) {
        expect(calls).toBeGreaterThan(4);
        return;
      }
      // One call: nothing but the marking commit was made.
      await expect(openNamespace(uri, { store }), `after ${calls} calls`).rejects.toMatchObject({ code: "DELETED" });
      await expect(createNamespace(uri, settings, { store })).rejects.toMatchObject({ code: "DELETED" });
      await deleteNamespace(uri, { store });
      expect((await keysOf(store)).length).toBe(1);
      await createNamespace(uri, settings, { store });
    }
  });

  test("is refused while a fork shares batches, also one that slips in", async () => {
    const world = new SmallWorld();
    const log = await world.create("memory:parent");
    await new Writer(log).write(3);
    const { commitDeletion, forkLog } = await import("../../src/lifecycle/index.js");
    const target = { uri: "memory:child", store: world.store("memory:child") };
    const openLog = async (): Promise<typeof log> => log;
    await forkLog({ parent: { log, uri: log.place.uri }, target, env: world.env, openLog });
    await expect(commitDeletion(world.open("memory:parent", log.spec), false)).rejects.toMatchObject({
      code: "NOT_EMPTY",
    });
    await commitDeletion(world.open("memory:parent", log.spec), true);
    await expect(log.head.jump()).rejects.toMatchObject({ code: "DELETED" });
  });

  test("what a writer of the deleted life leaves later is nobody's, and `delete` removes it", async () => {
    const store = new MemoryStore();
    const ns = await createNamespace(uri, settings, { store });
    await deleteNamespace(uri, { store });
    const folder = lifeFolder({ format: 2, uuid: ns.uuid });
    await store.put(`${folder}/batch/00/00000000000000000001/p-1-0-0123456789ab0.0.tgb`, slice[0] as Uint8Array);
    await createNamespace(uri, settings, { store });
    await deleteNamespace(uri, { store });
    await deleteNamespace(uri, { store });
    expect((await keysOf(store)).every((key) => key.includes("/boundary/"))).toBe(true);
  });

  test("a life that lost its namespace.json is not overlooked, and whoever commits there puts it back", async () => {
    const store = new MemoryStore();
    let pausedMs = 0;
    const env = { ...systemEnv, monotonic: () => systemEnv.monotonic() + pausedMs };
    const ns = await createNamespace(uri, settings, { store, env });
    const producer = await ns.producer({ id: "p", cadence });
    const bytes = await store.get(namespaceKey);
    // A deleter of an earlier life, stopped right before its last request.
    await store.delete([namespaceKey]);
    await expect(createNamespace(uri, settings, { store })).rejects.toMatchObject({ code: "NOT_EMPTY" });
    pausedMs = 60_000;
    await producer.append(slice);
    await producer.close();
    expect(await store.get(namespaceKey)).toEqual(bytes);
  });

  test("what a stopped process of a deleted life writes late brings no namespace.json back", async () => {
    const store = new MemoryStore();
    const ns = await createNamespace(uri, settings, { store });
    await fill(ns, 2);
    const folder = `${lifeFolder({ format: 2, uuid: ns.uuid })}/`;
    const newest = (await keysOf(store, `${folder}manifest/`)).at(-1) as string;
    const late = (await store.get(newest)) as Uint8Array;
    const env = new AutoEnv(1);
    const spec = decodeNamespace((await store.get(namespaceKey)) as Uint8Array, namespaceKey);
    const log = new Log({ store, env, spec, openOrigin: async () => store });
    await log.head.jump();
    await deleteNamespace(uri, { store });
    await store.put(newest, late);
    const presence = new Presence(store, env, log.head, spec);
    await expect(presence.ask()).rejects.toMatchObject({ code: "DELETED" });
    expect(await store.get(namespaceKey)).toBe(undefined);
  });
});

describe("a log of the first version of the format", () => {
  test("is read and written as one, deleted so that its clients stop, and followed by one of the second", async () => {
    const store = new MemoryStore();
    const uuid = systemEnv.uuid();
    const spec = { format: 1, uuid, ...settings, order: { kind: "commit" }, created: 0, rest: {} } as const;
    await store.create(namespaceKey, encodeNamespace(spec));
    const ns = await openNamespace(uri, { store });
    await fill(ns, 3);
    expect((await keysOf(store, "life/")).length).toBe(0);
    // The opening, three batches, the farewell.
    expect((await keysOf(store, "manifest/")).length).toBe(5);
    const producer = await ns.producer({ id: "p", cadence });
    const { uuid: next, before } = await succeed(store);
    await producer.append(slice);
    await expect(producer.flush()).rejects.toMatchObject({ code: "DELETED" });
    expect(await contents(store, next)).toEqual(before);
    // What tells its clients to stop has a version that the first release refuses.
    const [marker] = await keysOf(store, "boundary/");
    expect(JSON.parse(Buffer.from((await store.get(marker as string)) ?? []).toString())).toMatchObject({
      format: 2,
      namespace: uuid,
      deleted: true,
    });
  });
});
