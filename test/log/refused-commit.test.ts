/**
 * Property: a commit whose PUT could not even be sent is tried again, like every other request; only a store that stays away fails it.
 * Method: a memory store whose conditional creates are refused a number of times. Found by the simulator (chaos).
 */
import { expect, test } from "vitest";
import { BatchWeaveError } from "../../src/errors.js";
import { createNamespace } from "../../src/index.js";
import { MemoryStore, type ObjectStore } from "../../src/store/index.js";

function refusing(store: ObjectStore, state: { refusals: number }): ObjectStore {
  return {
    uri: store.uri,
    create: async (key, body, options) => {
      if (state.refusals-- > 0) throw new BatchWeaveError("STORE_UNAVAILABLE", `create ${key}: connection refused`);
      return await store.create(key, body, options);
    },
    put: (key, body, options) => store.put(key, body, options),
    get: (key, options) => store.get(key, options),
    getRange: (key, start, length, options) => store.getRange(key, start, length, options),
    list: (prefix, options) => store.list(prefix, options),
    delete: (keys, options) => store.delete(keys, options),
  };
}

test("two refused connections at the commit point cost nothing but time", async () => {
  const state = { refusals: 0 };
  const store = refusing(new MemoryStore(), state);
  const namespace = await createNamespace("memory:refused", { grid: { rows: 1, chunks: 1 } }, { store });
  const producer = await namespace.producer({ id: "p", cadence: { kind: "interval", intervalMs: 1 } });
  state.refusals = 2;
  const { committed } = await producer.append([new Uint8Array(8)]);
  await producer.flush();
  expect(await committed).toMatchObject({ seq: 0 });
  await producer.close();
});
