/**
 * Property: batches that a closing drops are in no log, and no command says that they are: info counts what the log holds, verify knows it exactly,
 * and a fork's producers go on right behind the last batch that the fork shares. (That a producer which had not been told yet is refused is a
 * conformance case of both languages.)
 * Method: lanes on memory stores, closed while one lane is ahead; forks, and forks of forks, continue from their resume points.
 */
import { expect, test } from "vitest";
import { createNamespace, type Namespace } from "../../src/index.js";

const cadence = { kind: "interval", intervalMs: 1 } as const;

/** Writes batches until the lane has made `count` in all, as its resume point tells; what it made, by number. */
async function produce(namespace: Namespace, id: string, count: number): Promise<number[]> {
  const producer = await namespace.producer({ id, cadence });
  const made: number[] = [];
  for (let i = (producer.resumePoint as { made: number } | undefined)?.made ?? 0; i < count; i++) {
    await producer.append([Buffer.from(`${id} ${i}`)], { resumePoint: { made: i + 1 } });
    made.push(i);
  }
  await producer.close();
  return made;
}

async function texts(namespace: Namespace): Promise<string[]> {
  const found: string[] = [];
  for await (const share of await namespace.consumer({ from: "earliest" }))
    found.push(...share.slices.map(({ bytes }) => Buffer.from(bytes).toString()));
  return found;
}

async function closedAhead(uri: string): Promise<Namespace> {
  const namespace = await createNamespace(uri, { grid: { rows: 1, chunks: 1 }, order: "lanes", lanes: 2 });
  await produce(namespace, "lane-1", 5);
  await produce(namespace, "lane-0", 2);
  expect(await namespace.endLog({ dropWaiting: true })).toEqual({ end: 4 });
  return namespace;
}

test("info counts what is in the log, not what was dropped, and verify finds nothing wrong", async () => {
  const namespace = await closedAhead("memory:dropped-info");
  const seqs = (await namespace.info()).producers.map(({ id, seq }) => [id, seq]).sort();
  expect(seqs).toEqual([
    ["lane-0", 2],
    ["lane-1", 2],
  ]);
  expect((await namespace.verify({ level: "bytes" })).problems).toEqual([]);
});

test("a fork that inherits producers makes the dropped batches again, each once", async () => {
  const namespace = await closedAhead("memory:dropped-parent");
  const fork = await namespace.fork("memory:dropped-fork", { producers: "inherit" });
  expect(await produce(fork, "lane-1", 5)).toEqual([2, 3, 4]);
  expect(await produce(fork, "lane-0", 5)).toEqual([2, 3, 4]);
  await fork.endLog();
  const expected = Array.from({ length: 10 }, (_, i) => `lane-${i % 2} ${Math.floor(i / 2)}`);
  expect(await texts(fork)).toEqual(expected);
});

test("a fork of a fork inherits what a lane inherited and has not added to", async () => {
  const namespace = await closedAhead("memory:dropped-grandparent");
  const fork = await namespace.fork("memory:dropped-child", { producers: "inherit" });
  await produce(fork, "lane-0", 4);
  const again = await fork.fork("memory:dropped-grandchild", { producers: "inherit" });
  // Lane 1 wrote nothing in the child; lane 0 wrote steps 4 and 6, of which 4 is shared.
  expect(await produce(again, "lane-1", 5)).toEqual([2, 3, 4]);
  expect(await produce(again, "lane-0", 5)).toEqual([3, 4]);
  const early = await fork.fork("memory:dropped-early", { at: 4, producers: "inherit" });
  expect(await produce(early, "lane-0", 3)).toEqual([2]);
});

test("commit order: a fork of a fork at its first own step inherits what was inherited there", async () => {
  const namespace = await createNamespace("memory:inherit-a", { grid: { rows: 1, chunks: 1 } });
  await produce(namespace, "p", 3);
  const fork = await namespace.fork("memory:inherit-b", { producers: "inherit" });
  expect(await produce(fork, "p", 5)).toEqual([3, 4]);
  const again = await fork.fork("memory:inherit-c", { at: 3, producers: "inherit" });
  expect(await produce(again, "p", 4)).toEqual([3]);
});
