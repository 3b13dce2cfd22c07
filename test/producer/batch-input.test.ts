/**
 * Property: what is not a batch of bytes is refused as INVALID_ARGUMENT before anything is accepted, and takes no seq; empty slices are
 * a batch. Method: a real producer in memory, fed with what people hand over by mistake.
 */
import { expect, test } from "vitest";
import { createNamespace, MemoryStore } from "../../src/index.js";

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

test("of a batch of several objects the last one alone has what the user attached", async () => {
  const store = new MemoryStore();
  const ns = await createNamespace("memory:batch-input", { grid: { rows: 3, chunks: 1 } }, { store });
  await using producer = await ns.producer({ id: "p", extentBytesMax: 40 });
  await producer.append(
    ["a", "b", "c"].map((text) => Buffer.from(text.repeat(30))),
    { resumePoint: { at: "the-resume-point" } },
  );
  await producer.flush();
  const { objects } = await store.list("", {});
  const batches = objects.map(({ key }) => key).filter((key) => key.endsWith(".tgb"));
  expect(batches.length).toBe(3);
  const texts = await Promise.all(
    batches.map(async (key) => Buffer.from((await store.get(key)) ?? []).toString("latin1")),
  );
  const whose = (text: string): number[] =>
    texts.flatMap((t, i) => (t.includes(text) ? [Number(/\.(\d+)\.tgb$/.exec(batches[i] ?? "")?.[1])] : []));
  expect(whose("the-resume-point")).toEqual([2]);
  expect(whose("aaa").concat(whose("bbb"), whose("ccc"))).toEqual([0, 1, 2]);
});
