/**
 * Property: a resume point that is damaged on its way is read again; one that is damaged at rest is CORRUPT.
 * Method: a memory store behind which one bit of chosen range reads is flipped. Found by the simulator (chaos, seed 3).
 */
import { expect, test } from "vitest";
import { systemEnv } from "../../src/env/index.js";
import { createNamespace } from "../../src/namespace/open.js";
import { MemoryStore, type ObjectStore } from "../../src/store/index.js";

/** Flips a bit in the next `damaged` range reads. */
function damaging(store: ObjectStore, state: { damaged: number }): ObjectStore {
  return {
    uri: store.uri,
    create: (key, body, options) => store.create(key, body, options),
    put: (key, body, options) => store.put(key, body, options),
    get: (key, options) => store.get(key, options),
    list: (prefix, options) => store.list(prefix, options),
    delete: (keys, options) => store.delete(keys, options),
    getRange: async (key, start, length, options) => {
      const bytes = (await store.getRange(key, start, length, options))?.slice();
      if (bytes && state.damaged-- > 0) bytes[3] = (bytes[3] ?? 0) ^ 1;
      return bytes;
    },
  };
}

test("hazard 29: a resume point damaged on the wire is read again", async () => {
  const state = { damaged: 0 };
  const store = damaging(new MemoryStore(), state);
  const namespace = await createNamespace("memory:resume", { grid: { rows: 1, chunks: 1 } }, { store, env: systemEnv });
  const cadence = { kind: "interval", intervalMs: 1 } as const;
  const first = await namespace.producer({ id: "p", cadence });
  await first.append([new Uint8Array(8)], { resumePoint: { next: 1 } });
  await first.close();
  state.damaged = 1;
  const second = await namespace.producer({ id: "p", cadence });
  expect(second.resumePoint).toEqual({ next: 1 });
  await second.close();
  state.damaged = Number.POSITIVE_INFINITY;
  await expect(namespace.producer({ id: "p", cadence })).rejects.toMatchObject({ code: "CORRUPT" });
});
