/**
 * Property: what is not a batch of bytes is refused as INVALID_ARGUMENT before anything is accepted, and takes no seq; empty slices are
 * a batch. Method: a real producer in memory, fed with what people hand over by mistake.
 */
import { expect, test } from "vitest";
import { createNamespace } from "../../src/index.js";

function transferred(): Uint8Array {
  const bytes = new Uint8Array(8);
  structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
  return bytes;
}

test("no list, no bytes, and bytes that are gone", async () => {
  const ns = await createNamespace("memory:batch-input", { grid: { rows: 2, chunks: 1 } });
  await using producer = await ns.producer({ id: "p" });
  const wrong: unknown[] = [
    null,
    undefined,
    "ab",
    new Uint8Array(2),
    [new ArrayBuffer(2), new ArrayBuffer(2)],
    [null, null],
    ["a", "b"],
    [transferred(), new Uint8Array(1)],
  ];
  for (const slices of wrong)
    await expect(producer.append(slices as Uint8Array[])).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  expect(producer.nextSeq).toBe(0);
  await producer.append([new Uint8Array(0), new Uint8Array(0)]);
  await producer.append([[new Uint8Array(1)], [new Uint8Array(2)]]);
  await producer.flush();
  expect(producer.nextSeq).toBe(2);
});
