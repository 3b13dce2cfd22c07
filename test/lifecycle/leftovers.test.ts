/**
 * Property: reclaim also takes what crashes leave beside the log: parts of uploads (hazard 8), by the same rule as batch objects and without a
 * clock, and intents whose names mean nothing; and on a store without any room it frees what the chain has let go of before it writes. Method: a
 * memory store with uploads and a limit.
 */
import { beforeEach, describe, expect, test } from "vitest";
import { batchKey, type Descriptor } from "../../src/format/index.js";
import { reclaim, registerCheckpoint } from "../../src/lifecycle/index.js";
import type { Log } from "../../src/log/index.js";
import { withPrefix } from "../../src/store/index.js";
import { CrampedStore } from "./cramped-store.js";
import { cursorAt, keysOf, readAll, SmallWorld, Writer } from "./small-world.js";

const now = { graceMs: 0, keepVersions: 2 };
const uri = "memory:a";

let world: SmallWorld;
let store: CrampedStore;
let log: Log;

beforeEach(async () => {
  world = new SmallWorld();
  store = new CrampedStore(uri);
  world.stores.set(uri, store);
  log = await world.create(uri);
});

/** Steps of data with a checkpoint at one of them. */
async function train(steps: number, checkpointAt: number): Promise<Descriptor[]> {
  const batches = await new Writer(log).write(steps);
  await registerCheckpoint(log, { id: `c${checkpointAt}`, cursor: cursorAt(log, checkpointAt) });
  return batches;
}

describe("uploads that were never completed", () => {
  test("go when their base is below the cutoff; those that may still be committed and those of live batches stay", async () => {
    const crashed = await new Writer(log, "crashed").open();
    const dead = { ...(crashed.holder as object), seq: 0, attempt: 0, base: 1 } as Descriptor;
    const batches = await train(30, 20);
    const live = batches[25] as Descriptor;
    const young = await new Writer(log, "slow").upload();
    const expected = [batchKey(young, 0), batchKey(live, 1), "batch/zz/what.tgb"];
    for (const key of [batchKey(dead, 0), ...expected]) store.uploads.add(key);
    const dry = await reclaim(log, { ...now, dryRun: true });
    expect(dry.dead?.filter(({ kind }) => kind === "upload")).toEqual([
      { key: batchKey(dead, 0), size: 0, kind: "upload", reason: "unfinished" },
    ]);
    expect(store.uploads.size).toBe(4);
    const report = await reclaim(log, now);
    expect([report.uploads.objects, report.warning]).toEqual([1, undefined]);
    expect([...store.uploads].sort()).toEqual(expected.sort());
    expect((await reclaim(log, now)).uploads.objects).toBe(0);
  });

  test("a store that does not let anybody look at them does not stop a reclaim", async () => {
    await train(30, 20);
    store.isDenied = true;
    const report = await reclaim(log, now);
    expect(report.batches.objects).toBe(20);
    expect(report.warning).toContain("allow s3:ListBucketMultipartUploads");
  });

  test("below a prefix, keys are asked about as the prefix's user knows them", async () => {
    const below = withPrefix(store, "runs/7b");
    for (const key of ["runs/7b/batch/1", "runs/7b/batch/2", "runs/8b/batch/1"]) store.uploads.add(key);
    const asked: string[] = [];
    const only = (key: string): boolean => asked.push(key) === 1;
    expect(await below.abortUploads?.("batch/", 0, { only })).toBe(1);
    expect(asked).toEqual(["batch/1", "batch/2"]);
    expect([...store.uploads]).toEqual(["runs/7b/batch/2", "runs/8b/batch/1"]);
  });
});

test("intents whose names mean nothing go", async () => {
  await train(3, 1);
  for (const key of ["intent/0/garbage", "intent/what.json"]) await store.put(key, new Uint8Array(0));
  const report = await reclaim(log, { ...now, dryRun: true });
  expect(report.dead?.filter(({ reason }) => reason === "unreadable").map(({ key }) => key)).toEqual([
    "intent/0/garbage",
    "intent/what.json",
  ]);
  await reclaim(log, now);
  expect(await keysOf(store, "intent/")).toEqual([]);
});

describe("a full store", () => {
  test("what the chain let go of before goes first, and then there is room", async () => {
    await train(30, 20);
    // A run that died after its commit and before its deletes.
    store.roomObjects = 1;
    const died = await reclaim(log, now);
    expect(died.batches.objects).toBe(20);
    expect(store.deleted[0]).toMatch(/^batch\//);
    expect((await readAll(world.open(uri, log.spec))).size).toBe(10);
    expect((await keysOf(store, "boundary/")).length).toBe(1);
  });

  test("when nothing may go without a commit, it says so and deletes nothing", async () => {
    await train(30, 20);
    const before = await keysOf(store);
    store.roomObjects = 0;
    await expect(reclaim(log, now)).rejects.toMatchObject({
      code: "STORE_FULL",
      message: expect.stringMatching(/must write two small objects.*run it again; do not delete objects by hand/),
    });
    expect(await keysOf(store)).toEqual(before);
    store.roomObjects = 2;
    expect((await reclaim(log, now)).batches.objects).toBe(20);
  });
});
