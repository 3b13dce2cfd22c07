/**
 * Property: what is stored is what was appended. Buffers that the caller uses again too early are noticed before the batch is
 * committed, never read back as wrong data; a generator may reuse one buffer for all its slices.
 */
import { expect, test } from "vitest";
import { createNamespace } from "../../src/index.js";
import { MemoryStore } from "../../src/store/index.js";

const grid = { rows: 2, chunks: 1 };

test("a buffer that is changed before its upload is over fails the producer and commits nothing", async () => {
  const slow = new MemoryStore();
  let release: (() => void) | undefined;
  const put = slow.put.bind(slow);
  slow.put = async (key, body, options) => {
    if (key.includes("/batch/")) await new Promise<void>((resolve) => (release = resolve));
    await put(key, body, options);
  };
  const ns = await createNamespace("memory:changed", { grid }, { store: slow });
  const producer = await ns.producer({ id: "p" });
  const slices = [Buffer.alloc(100, 1), Buffer.alloc(100, 2)];
  const ticket = await producer.append(slices);
  slices[1]?.fill(9);
  release?.();
  await expect(ticket.committed).rejects.toMatchObject({ code: "INVALID_ARGUMENT", details: { slice: 1 } });
  await expect(producer.close()).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  expect((await ns.endLog()).end).toBe(0);
});

test("a stream may yield the same buffer again and again", async () => {
  const ns = await createNamespace("memory:", { grid }, { store: new MemoryStore() });
  const producer = await ns.producer({ id: "p" });
  const buffer = Buffer.alloc(4);
  await producer.append(
    (async function* () {
      for (const value of [1, 2]) yield buffer.fill(value);
    })(),
  );
  await producer.close();
  const stored = await Promise.all([0, 1].map((row) => ns.readSlice({ step: 0, row, chunk: 0 })));
  expect(stored.map((bytes) => [...bytes])).toEqual([
    [1, 1, 1, 1],
    [2, 2, 2, 2],
  ]);
});
