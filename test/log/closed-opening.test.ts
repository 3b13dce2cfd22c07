/**
 * Property: no producer is opened on a closed log, and an attempt spends no epoch and writes nothing. Method: a memory store, closed, opened
 * by a new id, by a known one and by one that was opened before the close.
 */
import { expect, test } from "vitest";
import { createNamespace } from "../../src/index.js";
import { MemoryStore } from "../../src/store/index.js";

test("an opening after the close is refused, and the log is what it was", async () => {
  const store = new MemoryStore();
  const namespace = await createNamespace("memory:closed-opening", { grid: { rows: 1, chunks: 1 } }, { store });
  const producer = await namespace.producer({ id: "p" });
  await producer.append([new Uint8Array(8)]);
  await producer.close();
  await namespace.endLog();
  const before = { info: await namespace.info(), keys: (await store.list("")).objects };
  for (const id of ["p", "new"])
    await expect(namespace.producer({ id })).rejects.toMatchObject({
      code: "CLOSED",
      message: expect.stringMatching(/closed at step 1/),
    });
  expect({ info: await namespace.info(), keys: (await store.list("")).objects }).toEqual(before);
});
