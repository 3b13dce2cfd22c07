/**
 * Property: verify finds nothing in a healthy namespace, however it came to be, and names whatever is damaged; repair removes only what nothing
 * live reaches. Method: damage every object of a small namespace in turn.
 */
import { describe, expect, test } from "vitest";
import { asStep, batchKey, decodeNamespace, namespaceKey } from "../../src/format/index.js";
import {
  forkLog,
  type OpenLog,
  reclaim,
  registerCheckpoint,
  type VerifyReport,
  verifyLog,
} from "../../src/lifecycle/index.js";
import { type Log, publishIntents } from "../../src/log/index.js";
import type { MemoryStore } from "../../src/store/index.js";
import { FailingStore } from "./failing-store.js";
import { cursorAt, keysOf, readAll, SmallWorld, Writer } from "./small-world.js";

const uri = "memory:a";
const now = { graceMs: 0, keepVersions: 2 };

function opener(world: SmallWorld): OpenLog {
  return async (at) => world.open(at, decodeNamespace((await world.store(at).get(namespaceKey)) as Uint8Array, at));
}

const find = (world: SmallWorld) => async (at: string) => {
  const bytes = await world.store(at).get(namespaceKey);
  return bytes && decodeNamespace(bytes, at).uuid;
};

async function lived(): Promise<{ world: SmallWorld; log: Log; store: MemoryStore; fork: Log }> {
  const world = new SmallWorld();
  const log = await world.create(uri);
  const writer = new Writer(log);
  await writer.write(100, { perCommit: 7, samples: [{ source: "web", id: "1", tokens: 3 }] });
  await new Writer(log, "q").write(3);
  const parts = { parent: { log, uri }, target: { uri: "memory:f", store: world.store("memory:f") }, env: world.env };
  const spec = await forkLog({ ...parts, openLog: opener(world) }, { at: 80, skip: [{ from: 5, to: 9 }] });
  const fork = world.open("memory:f", spec);
  await new Writer(fork, "own").write(70, { perCommit: 9 });
  await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 60) });
  await writer.write(40, { perCommit: 3 });
  await reclaim(log, now);
  return { world, log, store: world.store(uri), fork };
}

const codes = ({ problems }: VerifyReport): string[] => problems.map((p) => `${p.severity} ${p.code}`);

describe("verify", () => {
  test.each(["footers", "bytes"] as const)("a healthy parent and fork are clean (%s)", async (level) => {
    const { world, log, fork } = await lived();
    const parts = { openLog: opener(world), find: find(world) };
    const parent = await verifyLog(world.open(uri, log.spec), { level }, parts);
    expect(parent.problems).toEqual([]);
    expect(parent).toMatchObject({ ok: true, counts: { steps: 83, checkpoints: 1, pins: 1, producers: 2 } });
    const report = await verifyLog(world.open("memory:f", fork.spec), { level }, parts);
    expect(report.problems).toEqual([]);
    expect(report).toMatchObject({ ok: true, steps: { trim: 0, end: 146 }, counts: { steps: 146, pins: 0 } });
  });

  test("every object that a live step, pin or producer needs is missed when it is gone, and noticed when it is damaged", async () => {
    const { world, log, store } = await lived();
    const clean = await verifyLog(world.open(uri, log.spec), { level: "bytes" });
    const unreferenced = clean.counts.reclaimableObjects + clean.counts.pendingObjects;
    let tolerated = 0;
    for (const key of [...(await keysOf(store, "batch/")), ...(await keysOf(store, "index/"))]) {
      const bytes = (await store.get(key)) as Uint8Array;
      await store.delete([key]);
      const gone = await verifyLog(world.open(uri, log.spec));
      const damaged = Uint8Array.from(bytes);
      damaged[bytes.length >> 1] = (damaged[bytes.length >> 1] as number) ^ 0x10;
      await store.put(key, damaged);
      const corrupt = await verifyLog(world.open(uri, log.spec), { level: "bytes" });
      await store.put(key, bytes);
      if (gone.ok && corrupt.ok) tolerated++;
      else {
        expect(codes(gone)).toContain("error missing");
        expect(codes(corrupt)).toContain("error corrupt");
        expect(corrupt.problems.some((p) => p.key === key)).toBe(true);
      }
    }
    expect(tolerated).toBe(unreferenced);
    expect((await verifyLog(world.open(uri, log.spec))).ok).toBe(true);
  });

  test.each([
    ["the newest", 1],
    ["the newest two", 2],
    ["every", Number.POSITIVE_INFINITY],
  ])("%s manifest gone: keys tell that there were more", async (_, count) => {
    const world = new SmallWorld();
    const log = await world.create(uri);
    const writer = new Writer(log);
    await writer.write(10);
    // Uploaded, not committed: its key names the newest version. The second producer's opening is that version.
    await new Writer(log, "q").open();
    await writer.upload();
    const manifests = await keysOf(log.store, "manifest/");
    expect((await verifyLog(world.open(uri, log.spec))).problems).toEqual([]);
    await log.store.delete(manifests.slice(-Math.min(count, manifests.length)));
    const { ok, problems } = await verifyLog(world.open(uri, log.spec));
    expect(ok).toBe(false);
    expect(problems[0]).toMatchObject({ severity: "error", code: "chain", key: expect.stringMatching(/^batch\//) });
    expect(problems[0]?.message).toMatch(
      count === Number.POSITIVE_INFINITY
        ? /and there are none at all/
        : /and the newest is \d+: manifests were removed/,
    );
  });

  test("the manifest that opened a producer gone: the epoch in its batches and intents tells", async () => {
    const world = new SmallWorld();
    const log = await world.create(uri);
    await new Writer(log).write(3);
    const before = await log.head.jump();
    const other = await new Writer(log, "q").open();
    const batch = await other.upload();
    // As if it had begun on an older base, which is allowed.
    const older = { ...batch, base: before.version };
    await log.store.put(batchKey(older, 0), (await log.store.get(batchKey(batch, 0))) as Uint8Array);
    await publishIntents(log.store, log.spec.uuid, [older]);
    await log.store.delete([batchKey(batch, 0), ...(await keysOf(log.store, "manifest/")).slice(-1)]);
    const { problems } = await verifyLog(world.open(uri, log.spec));
    expect(problems[0]).toMatchObject({ severity: "error", code: "chain" });
    expect(problems[0]?.message).toMatch(/in epoch 1 of q; version \d+ knows no such producer: manifests were removed/);
  });

  test("an object that is too long is noticed from its footer alone", async () => {
    const { world, log, store } = await lived();
    const { descriptor } = await log.locate(await log.head.jump(), asStep(70));
    const key = batchKey(descriptor, 0);
    await store.put(key, Buffer.concat([(await store.get(key)) as Uint8Array, Buffer.from("x")]));
    expect(codes(await verifyLog(world.open(uri, log.spec)))).toEqual(["error corrupt"]);
  });

  test("a seq that comes twice, a gap, and a state that does not fit are found", async () => {
    const { world, log } = await lived();
    const head = await log.head.jump();
    const { descriptor } = await log.locate(head, asStep(head.steps.end - 1));
    await log.commit({
      by: "break it",
      kind: "own",
      stage: (draft) => {
        draft.push(descriptor);
        return { done: false, result: 0 };
      },
    });
    const report = await verifyLog(world.open(uri, log.spec));
    expect(report.ok).toBe(false);
    expect(codes(report)).toContain("error sequence");
  });

  test("manifests and markers that are missing are found", async () => {
    const { world, log, store } = await lived();
    await reclaim(log, { graceMs: 0, keepVersions: 2 });
    const manifests = await keysOf(store, "manifest/");
    const second = manifests.at(-2) as string;
    const bytes = (await store.get(second)) as Uint8Array;
    await store.delete([second]);
    expect(codes(await verifyLog(world.open(uri, log.spec)))).toContain("error chain");
    await store.put(second, bytes);
    const markers = await keysOf(store, "boundary/");
    await store.delete([markers[0] as string]);
    const broken = await verifyLog(world.open(uri, log.spec)).then(codes, (error) => error.code);
    expect(["MISSING_OBJECT", ["error chain"]]).toContainEqual(broken);
  });

  test("pins without a fork are a warning, a fork without pins an error", async () => {
    const { world, log, fork } = await lived();
    const parts = { openLog: opener(world), find: find(world) };
    const { spec } = fork;
    await log.commit(
      { by: "lose pin", kind: "own", stage: (draft) => ({ done: !draft.pins.delete(spec.uuid), result: 0 }) },
      { fresh: true },
    );
    expect(codes(await verifyLog(world.open("memory:f", spec), {}, parts))).toContain("error pin");
    const again = await lived();
    await again.world.store("memory:f").delete([namespaceKey]);
    const report = await verifyLog(again.log, {}, { find: find(again.world) });
    expect([report.ok, codes(report)]).toEqual([true, ["warning pin"]]);
    expect(report.problems[0]?.message).toContain("releaseFork");
  });
});

describe("repair", () => {
  test("finishes what a dead reclaimer announced, and touches nothing else", async () => {
    const { world, log, store } = await lived();
    await registerCheckpoint(log, { id: "d", cursor: cursorAt(log, 120), keepLast: 1 });
    await new Writer(log, "q").write(5);
    // It dies at its first deletion.
    for (let dieAt = 10; ; dieAt++) {
      const dying = new FailingStore(store, dieAt);
      await reclaim(world.open(uri, log.spec, dying), now).catch(() => {});
      if (dying.seen.at(-1)?.startsWith("delete")) break;
    }
    const orphan = await new Writer(world.open(uri, log.spec), "young").upload();
    const before = await verifyLog(world.open(uri, log.spec));
    expect(before.counts.reclaimableObjects).toBeGreaterThan(30);
    const view = world.open(uri, log.spec);
    const { version } = await view.head.jump();
    const report = await verifyLog(view, { repair: true });
    expect(report.repaired?.batches.objects).toBeGreaterThan(30);
    expect((await view.head.jump()).version).toBe(version);
    expect((await verifyLog(world.open(uri, log.spec))).counts.reclaimableObjects).toBe(0);
    expect((await verifyLog(world.open(uri, log.spec))).ok).toBe(true);
    expect(await keysOf(store, `batch/`)).toContainEqual(expect.stringContaining(`${orphan.incarnation}0.0.tgb`));
    await readAll(world.open(uri, log.spec));
  });

  test("does nothing beside damage", async () => {
    const { world, log, store } = await lived();
    const head = await log.head.jump();
    const key = (await keysOf(store, "batch/")).find((k) => k.includes(`p-1-${head.steps.trim + 5}-`));
    await store.delete([key as string]);
    const before = await keysOf(store);
    const report = await verifyLog(world.open(uri, log.spec), { repair: true });
    expect([report.ok, report.repaired]).toEqual([false, undefined]);
    expect(await keysOf(store)).toEqual(before);
  });
});
