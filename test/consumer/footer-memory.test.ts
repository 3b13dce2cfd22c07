/**
 * Property: what a reader keeps of slice tables is bounded by what it really takes, not by the bytes of the tables, which are the smaller part of it where a batch
 * has few slices. Method: thousands of batches of one slice are read, and the heap is measured after a collection.
 */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test } from "vitest";
import { createNamespace, MemoryStore } from "../../src/index.js";

const batches = 12_000;
const footerBytesMax = 1_048_576;

test("a rank that read thousands of small batches holds no more than it was given for slice tables", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const heapBytes = (): number => {
    collect();
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  const store = new MemoryStore();
  const ns = await createNamespace("memory:", { grid: { rows: 1, chunks: 1 } }, { store });
  {
    await using producer = await ns.producer({ id: "p" });
    for (let i = 0; i < batches; i++) await producer.append([Buffer.from([i & 255])]);
  }
  const consumer = await ns.consumer({
    mesh: { dp: 1 },
    rank: 0,
    environment: {},
    footerBytesMax,
    prefetchIterationsMax: 4,
  });
  await consumer.next();
  const before = heapBytes();
  for (let i = 1; i < batches; i++) await consumer.next();
  const grownBytes = heapBytes() - before;
  await consumer.return();
  // Index nodes and manifests that the log keeps are in it too, about a megabyte.
  expect(grownBytes).toBeLessThan(footerBytesMax + 3_000_000);
});
