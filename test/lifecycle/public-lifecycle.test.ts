/**
 * Property: what a training engineer does by hand works by the public API alone: checkpoint, reclaim, roll back, fork with a skip, look samples up,
 * verify, delete. Method: named memory stores and the real clock.
 */
import { expect, test } from "vitest";
import {
  type Cursor,
  createNamespace,
  deleteNamespace,
  type Namespace,
  openNamespace,
  parseSkip,
  type StartFrom,
} from "../../src/index.js";

const grid = { rows: 2, chunks: 1 };
const cadence = { kind: "interval", intervalMs: 1 } as const;

async function produce(ns: Namespace, id: string, count: number): Promise<void> {
  await using producer = await ns.producer({ id, cadence });
  const first = ((producer.resumePoint as number | undefined) ?? -1) + 1;
  for (let i = first; i < first + count; i++) {
    const slices = [0, 1].map((row) => Buffer.from(`${id} ${i} ${row}`));
    const lineage = [0, 1].map((row) => ({ source: id, id: String(2 * i + row), tokens: 10, row }));
    await producer.append(slices, { resumePoint: i, lineage });
  }
}

async function read(ns: Namespace, from: StartFrom, iterations: number): Promise<string[]> {
  await using consumer = await ns.consumer({ mesh: { dp: 2 }, rank: 0, from, waitTimeoutMs: 5_000 });
  const seen: string[] = [];
  for (let i = 0; i < iterations; i++) {
    const { value } = await consumer.next();
    seen.push(Buffer.from(value?.slices[0]?.bytes ?? []).toString());
  }
  return seen;
}

test("the life of a run: train, roll back, leave bad batches out, trace, reclaim, delete", async () => {
  const [uri, forkUri] = ["memory:run", "memory:run-fixed"];
  const ns = await createNamespace(uri, { grid });
  await produce(ns, "tok", 60);
  await using consumer = await ns.consumer({ mesh: { dp: 2 }, rank: 0 });
  const saved: Cursor[] = [];
  for await (const share of consumer) {
    if (share.iteration % 10 === 9) {
      saved.push(share.next);
      await consumer.checkpoint(`i-${share.iteration + 1}`, share.next, { keepLast: 3 });
    }
    if (share.iteration === 49) break;
  }
  expect((await ns.checkpoints()).map((c) => c.id)).toEqual(["i-50", "i-40", "i-30"]);

  const plan = await ns.reclaim({ dryRun: true, graceMs: 0, keepVersions: 1 });
  // Both spell a key alike: below the namespace's uri.
  expect(plan.dead?.map((o) => o.key)).toContain((await ns.inspect(0)).keys[0]);
  const done = await ns.reclaim({ graceMs: 0, keepVersions: 1 });
  expect(done.trim).toEqual({ before: 0, after: 30 });
  expect(done.batches.objects).toBe(plan.dead?.filter((o) => o.kind === "batch").length);
  expect(done.batches.objects).toBeGreaterThan(0);
  await expect(read(ns, saved[1] as Cursor, 1)).rejects.toMatchObject({ code: "RECLAIMED" });

  // Its id is enough, while it is live; the ids that are live are named when it is not.
  expect(await read(ns, { checkpoint: "i-40" }, 2)).toEqual(["tok 40 0", "tok 41 0"]);
  await expect(read(ns, { checkpoint: "i-20" }, 1)).rejects.toMatchObject({
    code: "NO_CHECKPOINT",
    message: expect.stringMatching(/"i-20" in group "default"\. It has .*i-40/),
  });
  await expect(read(ns, { checkpoint: "i-40", group: "other" }, 1)).rejects.toThrow(
    /group "other"\. The group has none/,
  );

  // Steps 42 to 44 were bad: go back to i-40, without them.
  const fixed = await ns.fork(forkUri, { at: 50, skip: parseSkip("42-44") });
  expect((await fixed.info()).steps).toEqual({ trim: 30, end: 47 });
  expect(await read(fixed, saved[3] as Cursor, 5)).toEqual([40, 41, 45, 46, 47].map((i) => `tok ${i} 0`));
  await produce(fixed, "tok", 5);
  expect(await read(fixed, { step: 46 }, 3)).toEqual(["tok 49 0", "tok 0 0", "tok 1 0"]);

  expect(await fixed.samples(42)).toMatchObject([
    { source: "tok", id: "90", row: 0 },
    { id: "91", row: 1 },
  ]);
  const found = await fixed.find("91", { from: 35, to: 46 });
  expect(found).toMatchObject({ matches: [{ step: 42, index: 1 }], from: 35, to: 46, stepsWithoutLineage: 0 });
  expect((await fixed.find("86")).matches).toEqual([]);

  await ns.releaseCheckpoint("i-30");
  await ns.releaseCheckpoint("i-40");
  await ns.reclaim({ graceMs: 0, keepVersions: 1 });
  expect(await read(await openNamespace(forkUri), { step: 30 }, 17)).toHaveLength(17);
  for (const one of [ns, fixed]) expect((await one.verify({ level: "bytes" })).problems).toEqual([]);

  await expect(deleteNamespace(uri)).rejects.toMatchObject({ code: "NOT_EMPTY" });
  await expect(ns.releaseFork(fixed.uuid)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  await deleteNamespace(forkUri);
  expect((await ns.info()).forks).toEqual([]);
  await deleteNamespace(uri);
});

test("a consumer of rank 0 reclaims while it trains, and stops with it", async () => {
  const ns = await createNamespace("memory:watched", { grid });
  await produce(ns, "tok", 40);
  const reclaim = { intervalMs: 5, graceMs: 0, keepVersions: 1 };
  await using consumer = await ns.consumer({ mesh: { dp: 2 }, rank: 0, reclaim });
  for (let i = 0; i < 30; i++) await consumer.next();
  await consumer.checkpoint("i-30");
  await produce(ns, "other", 5);
  for (let i = 0; i < 200 && (await ns.info()).steps.trim < 30; i++)
    await new Promise((resolve) => setTimeout(resolve, 10));
  expect((await ns.info()).steps.trim).toBe(30);
  await consumer.return();
  await new Promise((resolve) => setTimeout(resolve, 30));
  const runs = ns.metrics.value("batchweave_reclaims_total");
  await new Promise((resolve) => setTimeout(resolve, 60));
  expect(ns.metrics.value("batchweave_reclaims_total")).toBe(runs);
  expect(ns.metrics.value("batchweave_reclaims_total", { outcome: "failed" })).toBe(0);
});

test("a fork that has trimmed all it inherited gives its parent free, and can still be opened", async () => {
  const ns = await createNamespace("memory:outlived", { grid });
  await produce(ns, "tok", 20);
  const fork = await ns.fork("memory:outlived-fork", { at: 15 });
  await produce(fork, "own", 10);
  await fork.checkpoint("c", { batchweave: 1, namespace: fork.uuid, row: 36, iteration: 18 } as never);
  const opened = await openNamespace("memory:outlived-fork");
  await opened.reclaim({ graceMs: 0, keepVersions: 1 });
  expect((await ns.info()).forks).toEqual([]);
  await deleteNamespace("memory:outlived");
  const alone = await openNamespace("memory:outlived-fork");
  expect(await read(alone, "earliest", 7)).toHaveLength(7);
  expect((await alone.verify({ level: "bytes" })).problems).toEqual([]);
});

test("a fork whose parent was made again is refused with the reason", async () => {
  const ns = await createNamespace("memory:again", { grid });
  await produce(ns, "tok", 5);
  await ns.fork("memory:again-fork");
  await deleteNamespace("memory:again", { force: true });
  await expect(openNamespace("memory:again-fork")).rejects.toMatchObject({ code: "NO_NAMESPACE" });
  await createNamespace("memory:again", { grid });
  await expect(openNamespace("memory:again-fork")).rejects.toMatchObject({ code: "WRONG_NAMESPACE" });
});
