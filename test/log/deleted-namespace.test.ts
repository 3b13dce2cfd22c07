/**
 * Property: a producer whose namespace is deleted under it stops and says so; one that comes back after a pause, when the namespace was
 * made again at the same place, writes nothing into the new one (hazard 34).
 */
import { expect, test } from "vitest";
import { systemEnv } from "../../src/env/index.js";
import { createNamespace, deleteNamespace, openNamespace } from "../../src/index.js";
import { MemoryStore } from "../../src/store/index.js";

const settings = { grid: { rows: 1, chunks: 1 } };
const slice = [Buffer.from("x")];

test("a running producer learns that its log was closed for deletion", async () => {
  const store = new MemoryStore();
  const remove = store.delete.bind(store);
  store.delete = async (keys, options) => {
    await systemEnv.sleep(300);
    await remove(keys, options);
  };
  const ns = await createNamespace("memory:deleted", settings, { store });
  const producer = await ns.producer({ id: "p" });
  await producer.append(slice);
  await producer.flush();
  const deletion = deleteNamespace("memory:deleted", { store });
  await systemEnv.sleep(100);
  await producer.append(slice);
  await expect(producer.flush()).rejects.toMatchObject({ code: "CLOSED" });
  await deletion;
});

test("a paused producer of the old namespace does not write into the new one", async () => {
  const store = new MemoryStore();
  let pausedMs = 0;
  const env = { ...systemEnv, monotonic: () => systemEnv.monotonic() + pausedMs };
  const ns = await createNamespace("memory:again", settings, { store, env });
  const producer = await ns.producer({ id: "p" });
  await producer.append(slice);
  await producer.flush();
  await deleteNamespace("memory:again", { store });
  await createNamespace("memory:again", settings, { store });
  pausedMs = 60_000;
  await producer.append(slice);
  await expect(producer.flush()).rejects.toMatchObject({ code: "WRONG_NAMESPACE" });
  expect((await store.list("manifest/")).objects).toEqual([]);
});

test("one that is paused while it opens the old namespace opens nothing after its deletion", async () => {
  const store = new MemoryStore();
  await createNamespace("memory:opening", settings, { store });
  let pausedMs = 0;
  const env = { ...systemEnv, monotonic: () => systemEnv.monotonic() + pausedMs };
  const paused = new MemoryStore();
  const get = store.get.bind(store);
  // The answer is read before the deletion and reaches the process a minute after it.
  Object.assign(paused, {
    ...bound(store),
    get: async (key: string) => {
      const bytes = await get(key);
      if (key === "namespace.json" && pausedMs === 0) {
        pausedMs = 60_000;
        await deleteNamespace("memory:opening", { store });
      }
      return bytes;
    },
  });
  const opening = openNamespace("memory:opening", { store: paused, env }).then((ns) => ns.producer({ id: "p" }));
  await expect(opening).rejects.toMatchObject({ code: "NO_NAMESPACE" });
  expect((await store.list("manifest/")).objects).toEqual([]);
});

function bound(store: MemoryStore): Pick<MemoryStore, "create" | "put" | "getRange" | "list" | "delete"> {
  const { create, put, getRange, list, delete: remove } = store;
  return {
    create: create.bind(store),
    put: put.bind(store),
    getRange: getRange.bind(store),
    list: list.bind(store),
    delete: remove.bind(store),
  };
}
