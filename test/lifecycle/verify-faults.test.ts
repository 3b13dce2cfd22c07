/**
 * Property: each thing that a version must never do is found by verify, said once and by name, and what it may do is not; a deletion removes what it is told to and nothing beside it.
 * Method: one fault at a time in the newest manifest of a small log, in its batches or its markers; a place whose answers are chosen.
 */
import { describe, expect, test } from "vitest";
import { BatchWeaveError, type ErrorCode } from "../../src/errors.js";
import {
  asEpoch,
  asSeq,
  asStep,
  asVersion,
  boundaryKey,
  type Descriptor,
  encodeBoundary,
  encodeManifest,
  encodeNamespace,
  indexKey,
  type Manifest,
  manifestKey,
  namespaceKey,
  type Order,
  type ProducerState,
} from "../../src/format/index.js";
import {
  endLife,
  forkLog,
  isEnded,
  livesWithObjects,
  reclaim,
  registerCheckpoint,
  removeBelow,
  removeLeftovers,
  removeNamespaceObject,
  removeObjects,
  verifyLog,
} from "../../src/lifecycle/index.js";
import type { Log } from "../../src/log/index.js";
import { MemoryStore, type ObjectStore } from "../../src/store/index.js";
import { cursorAt, SmallWorld, Writer } from "./small-world.js";

const uri = "memory:faults";

async function grown(
  order: Order = { kind: "commit" },
  ids = ["p"],
): Promise<{ world: SmallWorld; log: Log; head: Manifest }> {
  const world = new SmallWorld();
  const log = await world.create(uri, order);
  const writers = ids.map((id) => new Writer(log, id));
  for (let i = 0; i < 4; i++) for (const writer of writers) await writer.write(1);
  return { world, log, head: await log.head.jump() };
}

/** What verify says when the newest manifest is another one. */
async function found(world: SmallWorld, log: Log, manifest: Manifest): Promise<string[]> {
  await log.store.put(manifestKey(manifest.version), encodeManifest(manifest));
  const { problems } = await verifyLog(world.open(uri, log.spec));
  return problems.map(({ severity, code, message }) => `${severity} ${code}: ${message}`);
}

const stateOf = (head: Manifest, id = "p"): ProducerState => head.producers.get(id) as ProducerState;
const withState = (head: Manifest, more: Partial<ProducerState>): Manifest => ({
  ...head,
  producers: new Map([...head.producers, ["p", { ...stateOf(head), ...more }]]),
});

describe("the newest version", () => {
  test("as it is, and with what may rise", async () => {
    const { world, log, head } = await grown();
    expect(await found(world, log, head)).toEqual([]);
    expect(await found(world, log, { ...head, closed: true })).toEqual([]);
    expect(await found(world, log, { ...head, orphanCutoff: asVersion(1) })).toEqual([]);
    expect(await found(world, log, { ...head, steps: { ...head.steps, trim: asStep(1) } })).toEqual([]);
    expect(await found(world, log, withState(head, { epoch: asEpoch(2) }))).toEqual([]);
  });

  test("must not lower the trim, the end, the cutoff, a producer, or open what is closed", async () => {
    const { world, log } = await grown();
    const raised = await log.commit({
      by: "raise",
      kind: "own",
      stage: (draft) => {
        draft.trim = asStep(2);
        draft.orphanCutoff = asVersion(3);
        draft.closed = true;
        draft.producers.set("p", { ...(draft.producers.get("p") as ProducerState), epoch: asEpoch(3) });
        return { done: false, result: 0 };
      },
    });
    const next = await log.commit({ by: "next", kind: "own", stage: () => ({ done: false, result: 0 }) });
    const { manifest: head } = next;
    expect(head.version).toBe(raised.manifest.version + 1);
    expect(await found(world, log, head)).toEqual([]);
    const lowers = (what: string) => [expect.stringContaining(`error chain: Version ${head.version} lowers ${what}.`)];
    expect(await found(world, log, { ...head, steps: { ...head.steps, trim: asStep(1) } })).toEqual(lowers("the trim"));
    expect(await found(world, log, { ...head, orphanCutoff: asVersion(2) })).toEqual(lowers("the orphan cutoff"));
    expect(await found(world, log, { ...head, closed: false })).toEqual(lowers("a closed log to an open one"));
    expect(await found(world, log, withState(head, { epoch: asEpoch(2) }))).toEqual(lowers("the state of producer p"));
    const shorter = {
      ...head,
      steps: { ...head.steps, end: asStep(3) },
      tail: { ...head.tail, batches: head.tail.batches.slice(0, 3) },
    };
    expect(await found(world, log, withState(shorter, { seq: asSeq(3) }))).toEqual(
      expect.arrayContaining(lowers("the end")),
    );
    expect(await found(world, log, withState(head, { seq: asSeq(3) }))).toEqual([
      expect.stringContaining("error sequence: The last batch of p in the log is seq 3, and its state says 2."),
      expect.stringContaining("error missing: batch/"),
      ...lowers("the state of producer p"),
    ]);
  });

  test("must have its producers' batches in sequence, and know them all", async () => {
    const { world, log, head } = await grown();
    const [first, second, third, last] = head.tail.batches as [Descriptor, Descriptor, Descriptor, Descriptor];
    const withTail = (...batches: Descriptor[]): Manifest => ({ ...head, tail: { ...head.tail, batches } });
    const swapped = await found(world, log, withTail(first, third, second, last));
    expect(swapped.filter((text) => text.startsWith("error sequence"))).toEqual([
      expect.stringContaining("Step 1 is seq 2 of p, and 1 must come next."),
      expect.stringContaining("Step 2 is seq 1 of p, and 3 must come next."),
      expect.stringContaining("Step 3 is seq 3 of p, and 2 must come next."),
    ]);
    const older = await found(world, log, withTail(first, { ...second, epoch: asEpoch(2) }, third, last));
    expect(older.filter((text) => text.startsWith("error sequence"))).toEqual([
      expect.stringContaining("Step 2 is of epoch 1 of p, after one of 2."),
    ]);
    expect(await found(world, log, { ...head, producers: new Map() })).toEqual([
      expect.stringContaining("error sequence: The last batch of p in the log is seq 3, and its state says -1."),
    ]);
  });

  test("of lanes must have each batch at its step, what waits as well", async () => {
    const { world, log, head } = await grown({ kind: "lanes", lanes: 2 }, ["lane-0", "lane-1"]);
    expect(await found(world, log, head)).toEqual([]);
    const [a, b, ...rest] = head.tail.batches as [Descriptor, Descriptor, ...Descriptor[]];
    const swapped = await found(world, log, { ...head, tail: { ...head.tail, batches: [b, a, ...rest] } });
    expect(swapped.filter((text) => text.includes("which is step"))).toEqual([
      expect.stringContaining("Step 0 holds seq 0 of lane-1, which is step 1."),
      expect.stringContaining("Step 1 holds seq 0 of lane-0, which is step 0."),
    ]);
    const ahead = new Writer(log, "lane-1");
    await ahead.open();
    const waiting = [await ahead.upload({ seq: 4 }), await ahead.upload({ seq: 5 })] as [Descriptor, Descriptor];
    await ahead.commit(waiting);
    const now = await log.head.jump();
    expect([...now.waiting.keys()]).toEqual([9, 11]);
    expect(await found(world, log, now)).toEqual([]);
    const wrong = {
      ...now,
      waiting: new Map([...now.waiting].reverse().map(([step, batch]) => [asStep(step + 2), batch])),
    };
    expect((await found(world, log, wrong)).filter((text) => text.includes("which is step"))).toEqual([
      expect.stringContaining("Step 11 holds seq 4 of lane-1, which is step 9."),
      expect.stringContaining("Step 13 holds seq 5 of lane-1, which is step 11."),
    ]);
    await log.store.delete([
      ...(await log.store.list("batch/", {})).objects
        .map(({ key }) => key)
        .filter((key) => key.includes("lane-1-2-5-")),
    ]);
    expect(await found(world, log, now)).toEqual([expect.stringContaining("error missing: ")]);
  });

  test("must have its checkpoints within its rows", async () => {
    const { world, log } = await grown();
    await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 2) });
    const head = await log.head.jump();
    const at = (row: number, trim: number): Manifest => {
      const live = new Map([["c", { row: row as never, iteration: 0, at: head.version }]]);
      return {
        ...head,
        steps: { ...head.steps, trim: asStep(trim) },
        checkpoints: new Map([["default", { live, released: [] }]]),
      };
    };
    expect([await found(world, log, at(2, 1)), await found(world, log, at(8, 1))]).toEqual([[], []]);
    for (const row of [1, 9])
      expect(await found(world, log, at(row, 1))).toEqual([
        `error checkpoint: Checkpoint c of group default is at row ${row}, outside of the log's rows 2 to 8. Report this.`,
      ]);
  });

  test("must know that its batches have all of their slices", async () => {
    const { world, log } = await grown();
    const writer = await new Writer(log, "p").open();
    await writer.commit([await writer.upload({ cellsPerExtent: 1 })]);
    const head = await log.head.jump();
    const last = head.tail.batches.at(-1) as Descriptor;
    expect(await found(world, log, head)).toEqual([]);
    const half = { ...last, extents: last.extents.slice(0, 1) };
    const said = await found(world, log, {
      ...head,
      tail: { ...head.tail, batches: [...head.tail.batches.slice(0, -1), half] },
    });
    expect(said).toEqual([expect.stringContaining("it has 1 slices, and a batch of this namespace has 2.")]);
  });
});

describe("what nothing names", () => {
  test("is counted by whether a reclaim may take it", async () => {
    const { world, log } = await grown();
    await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 2) });
    await reclaim(log, { graceMs: 0, keepVersions: 2 });
    const counts = async () => {
      const { reclaimableObjects, pendingObjects } = (await verifyLog(world.open(uri, log.spec))).counts;
      return [reclaimableObjects, pendingObjects];
    };
    const cutoff = (await log.head.jump()).orphanCutoff;
    expect([cutoff > 1, await counts()]).toEqual([true, [0, 0]]);
    await log.store.put(indexKey(asVersion(cutoff - 1), "0123456789ab", 0), new Uint8Array(1));
    expect(await counts()).toEqual([1, 0]);
    await log.store.put(indexKey(cutoff, "0123456789ab", 0), new Uint8Array(1));
    expect(await counts()).toEqual([1, 1]);
    const writer = await new Writer(log, "q").open();
    await writer.upload({ attempt: 1, cellsPerExtent: 1 });
    expect(await counts()).toEqual([1, 3]);
    await log.store.put("batch/strange", new Uint8Array(1));
    await log.store.put("index/strange", new Uint8Array(1));
    expect(await counts()).toEqual([1, 3]);
  });

  test("and a listing that has no end and no keys is the end", async () => {
    const { world, log } = await grown();
    const store = log.store;
    const endless: ObjectStore = {
      uri: store.uri,
      create: (...given) => store.create(...given),
      put: (...given) => store.put(...given),
      get: (...given) => store.get(...given),
      getRange: (...given) => store.getRange(...given),
      list: async (prefix, options) =>
        prefix === "index/" ? { objects: [], more: true } : store.list(prefix, options),
      delete: (...given) => store.delete(...given),
    };
    const view = world.open(uri, log.spec, endless);
    expect((await verifyLog(view)).ok).toBe(true);
    const short: ObjectStore = { ...endless, list: (prefix, options) => store.list(prefix, { ...options, limit: 2 }) };
    const paged = await verifyLog(world.open(uri, log.spec, short));
    expect(paged.counts).toEqual((await verifyLog(world.open(uri, log.spec))).counts);
    expect(paged.counts.manifests).toBeGreaterThan(4);
  });

  test("a fork is clean by itself, also where its ancestors cannot be opened", async () => {
    const { world, log } = await grown();
    const target = { uri: "memory:ff", store: world.store("memory:ff") };
    const openLog = () => Promise.reject(new Error("never asked"));
    const spec = await forkLog({ parent: { log, uri }, target, env: world.env, openLog });
    const report = await verifyLog(world.open("memory:ff", spec));
    expect([report.problems, report.counts.steps]).toEqual([[], 4]);
  });
});

describe("boundary markers", () => {
  test("must be contiguous and rise", async () => {
    const { world, log } = await grown();
    await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 3) });
    for (let i = 0; i < 3; i++) {
      await new Writer(log, "q").write(2);
      await reclaim(log, { graceMs: 0, keepVersions: 1 });
    }
    await new Writer(log, "q").write(1);
    const problems = async (): Promise<string[]> =>
      (await verifyLog(world.open(uri, log.spec))).problems.map(({ code, message }) => `${code}: ${message}`);
    expect(await problems()).toEqual([]);
    const two = (await log.store.get(boundaryKey(2))) as Uint8Array;
    const upTo = log.head.boundary.newest.upTo;
    await log.store.put(boundaryKey(2), encodeBoundary(log.spec.uuid, { n: 2, upTo }));
    expect(await problems()).toEqual([`chain: ${boundaryKey(3)} does not raise the boundary.`]);
    await log.store.put(boundaryKey(2), encodeBoundary(log.spec.uuid, { n: 2, upTo: asVersion(upTo - 1) }));
    expect(await problems()).toEqual([]);
    await log.store.delete([boundaryKey(2)]);
    expect(await problems()).toEqual([`chain: Boundary markers are not contiguous: ${boundaryKey(3)} is number 2.`]);
    await log.store.put(boundaryKey(2), two);
    expect(await problems()).toEqual([]);
  });
});

describe("a deletion", () => {
  const life = (place: ObjectStore, uuid: string) => ({ place, spec: { format: 2 as const, uuid } });
  const uuid = "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5";
  const env = new SmallWorld().env;
  const failing = (store: MemoryStore, more: Partial<ObjectStore>): ObjectStore => ({
    uri: store.uri,
    create: (...given) => store.create(...given),
    put: (...given) => store.put(...given),
    get: (...given) => store.get(...given),
    getRange: (...given) => store.getRange(...given),
    list: (...given) => store.list(...given),
    delete: (...given) => store.delete(...given),
    ...more,
  });
  const refuse = (code: ErrorCode) => () => Promise.reject(new BatchWeaveError(code, "refused", {}));

  test("has ended a life when its last marker is there, and says so of nothing else", async () => {
    const store = new MemoryStore();
    expect(await isEnded(life(store, uuid))).toBe(false);
    await endLife(life(store, uuid), env);
    expect(await isEnded(life(store, uuid))).toBe(true);
    await endLife(life(store, uuid), env);
    expect((await store.list("", {})).objects).toHaveLength(1);
    await expect(isEnded(life(failing(store, { get: refuse("STORE_DENIED") }), uuid))).rejects.toMatchObject({
      code: "STORE_DENIED",
    });
    const empty = new MemoryStore();
    await expect(isEnded(life(failing(empty, { get: refuse("STORE_DENIED") }), uuid))).rejects.toMatchObject({
      code: "STORE_DENIED",
    });
    const late = failing(empty, { list: () => Promise.resolve({ objects: [], more: false }) });
    await empty.put(
      `life/${uuid}/${boundaryKey(1)}`,
      encodeBoundary(uuid, { n: 1, upTo: asVersion(1), deleted: true }),
    );
    expect(await isEnded(life(late, uuid))).toBe(true);
  });

  test("takes the empty folders of a folder along, and leaves uploads to others where it may not see them", async () => {
    const store = new MemoryStore("file:///x");
    for (const key of ["batch/00/a", "intent/0/b", "manifest/c", "index/d", "boundary/e", "pulse/f"])
      await store.put(key, new Uint8Array(1));
    const deleted: number[] = [];
    const aborted: [string, number][] = [];
    const place = failing(store, {
      delete: async (keys) => {
        deleted.push(keys.length);
        await store.delete(keys);
      },
      abortUploads: async (prefix: string, before: number) => {
        aborted.push([prefix, before]);
        return 0 as never;
      },
    });
    const old = { place, spec: { format: 1 as const, uuid } };
    expect(await removeObjects(old)).toBe(5);
    expect((await store.list("", {})).objects.map(({ key }) => key)).toEqual(["boundary/e"]);
    expect([deleted.at(-1), aborted]).toEqual([256 + 16, [["batch/", 0]]]);
    const elsewhere = failing(new MemoryStore("memory:y"), { delete: refuse("STORE_DENIED") });
    expect(await removeObjects({ ...old, place: elsewhere })).toBe(0);
    await removeObjects({ ...old, place: failing(store, { abortUploads: refuse("STORE_DENIED") as never }) });
    const broken = failing(store, { abortUploads: refuse("STORE_UNAVAILABLE") as never });
    await expect(removeObjects({ ...old, place: broken })).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  });

  test("removes namespace.json only while it is this life's", async () => {
    const store = new MemoryStore();
    expect(await removeNamespaceObject(life(store, uuid))).toBe(0);
    const spec = {
      format: 2 as const,
      uuid,
      grid: { rows: 1, chunks: 1 },
      order: { kind: "commit" as const },
      created: 0,
      rest: {},
    };
    await store.put(namespaceKey, encodeNamespace(spec));
    expect(await removeNamespaceObject(life(store, uuid.replace("6f", "7f")))).toBe(0);
    expect(await store.get(namespaceKey)).toBeDefined();
    expect(await removeNamespaceObject(life(store, uuid))).toBe(1);
    expect(await store.get(namespaceKey)).toBeUndefined();
  });

  test("of leftovers ends each life before it takes its objects", async () => {
    const store = new MemoryStore();
    for (const key of [`life/${uuid}/batch/1`, `life/${uuid}/manifest/1`, "batch/00/old"])
      await store.put(key, new Uint8Array(1));
    expect(await removeLeftovers(store, env)).toBe(3);
    expect([await isEnded(life(store, uuid)), (await store.list("", {})).objects.length]).toEqual([true, 1]);
    expect(await removeLeftovers(store, env)).toBe(0);
  });

  test("finds the lives that hold more than markers, page by page", async () => {
    const store = new MemoryStore();
    const other = uuid.replace("6f", "7f");
    for (const key of [
      `life/${uuid}/boundary/1`,
      `life/${other}/batch/1`,
      `life/${other}/boundary/1`,
      "life/strange/batch/1",
    ])
      await store.put(key, new Uint8Array(1));
    expect(await livesWithObjects(store, 9)).toEqual([other]);
    let pages = 0;
    const endless = failing(store, {
      list: async (_, options) => {
        pages++;
        const key = `life/${uuid.replace("6f", String(10 + pages))}/manifest/1`;
        expect(options?.startAfter === undefined).toBe(pages === 1);
        return { objects: [{ key, size: 1 }], more: true };
      },
    });
    expect(await livesWithObjects(endless, 3)).toHaveLength(3);
    expect(pages).toBe(3);
    for (let i = 0; i < 1_500; i++) await store.put(`many/${i}`, new Uint8Array(0));
    expect(await removeBelow(store, "many/")).toBe(1_500);
  });
});
