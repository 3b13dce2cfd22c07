/**
 * Property: reclaim deletes exactly what nothing live needs, in the order commit, boundary, deletes, and wherever it dies or whichever other process
 * runs, a live checkpoint, a resume point and every visible step stay readable. Method: memory stores, a store that dies at every call in turn.
 */

import { describe, expect, test } from "vitest";
import { openProducer } from "../../src/cadence/index.js";
import {
  asVersion,
  batchKey,
  boundaryKey,
  type Descriptor,
  encodeManifest,
  encodeNamespace,
  manifestKey,
  type NamespaceSpec,
  namespaceKey,
  nodeRefKey,
} from "../../src/format/index.js";
import { reclaim, registerCheckpoint, releaseCheckpoint } from "../../src/lifecycle/index.js";
import type { Log } from "../../src/log/index.js";
import { MemoryStore } from "../../src/store/index.js";
import { FailingStore } from "./failing-store.js";
import { cursorAt, keysOf, readAll, SmallWorld, Writer } from "./small-world.js";

const now = { graceMs: 0, keepVersions: 2 };
const uri = "memory:a";

async function trained(steps = 30, checkpointAt = 20): Promise<{ world: SmallWorld; log: Log; batches: Descriptor[] }> {
  const world = new SmallWorld();
  const log = await world.create(uri);
  const batches = await new Writer(log).write(steps);
  await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, checkpointAt) });
  return { world, log, batches };
}

const batchKeys = (log: Log): Promise<string[]> => keysOf(log.store, "batch/");

async function copyOf(store: MemoryStore): Promise<MemoryStore> {
  const copy = new MemoryStore(store.uri);
  for (const key of await keysOf(store)) await copy.put(key, (await store.get(key)) as Uint8Array);
  return copy;
}

describe("reclaim", () => {
  test("deletes trimmed batches, orphans, old manifests; keeps the rest", async () => {
    const { world, log, batches } = await trained();
    const writer = new Writer(log, "crashed");
    const orphan = await writer.upload();
    await new Writer(log, "q").write(5);
    const report = await reclaim(log, now);
    expect(report).toMatchObject({ trim: { before: 0, after: 20 }, dryRun: false, full: true });
    const kept = new Set(await batchKeys(log));
    for (const [i, batch] of batches.entries()) {
      expect(kept.has(batchKey(batch, 0))).toBe(i >= 20);
    }
    expect(report.batches.objects).toBe(20 + (orphan.base < report.cutoff.after ? 1 : 0));
    expect(report.boundary.after).toBe(report.cutoff.after - 1);
    const manifests = await keysOf(log.store, "manifest/");
    expect(manifests[0]).toBe(manifestKey(asVersion(report.boundary.after + 1)));
    expect((await readAll(world.open(uri, log.spec))).size).toBe(15);
    // Nothing is left to do but the versions it made itself.
    const again = await reclaim(log, now);
    expect([again.batches.objects, again.index.objects]).toEqual([0, 0]);
  });

  test("storage follows the checkpoints, not the grace: what was committed and trimmed goes at once, young orphans stay", async () => {
    const { world, log } = await trained(100, 90);
    const young = await new Writer(world.open(uri, log.spec), "young").upload();
    const report = await reclaim(log, { graceMs: 3_600_000 });
    expect(report).toMatchObject({ cutoff: { after: 0 }, boundary: { after: 0 }, batches: { objects: 90 } });
    expect(await batchKeys(log)).toHaveLength(11);
    expect(await batchKeys(log)).toContain(batchKey(young, 0));
    expect((await readAll(world.open(uri, log.spec))).size).toBe(10);
  });

  test("without a checkpoint nothing is trimmed, and only orphans and manifests go", async () => {
    const world = new SmallWorld();
    const log = await world.create(uri);
    await new Writer(log).write(30);
    const report = await reclaim(log, now);
    expect(report.trim.after).toBe(0);
    expect(report.batches.objects).toBe(0);
    expect(report.manifests.objects).toBeGreaterThan(20);
    expect((await readAll(world.open(uri, log.spec))).size).toBe(30);
  });

  test("a dry run says exactly what would go, and changes nothing", async () => {
    const { world, log } = await trained(200, 150);
    await new Writer(log, "crashed").upload();
    await new Writer(log, "q").write(8);
    const before = await keysOf(log.store);
    const plan = await reclaim(log, { ...now, dryRun: true });
    expect(await keysOf(log.store)).toEqual(before);
    const deleted: string[] = [];
    const report = await reclaim(world.open(uri, log.spec), now, {
      observer: { onDeleted: (objects) => deleted.push(...objects.map((o) => o.key)) },
    });
    expect(plan.dead?.map((o) => o.key).sort()).toEqual(deleted.sort());
    expect(plan.batches).toEqual(report.batches);
    expect(plan.cutoff).toEqual(report.cutoff);
    expect(new Set(plan.dead?.map((o) => `${o.kind} ${o.reason}`))).toEqual(
      new Set(["batch trimmed", "batch orphan", "index unreferenced", "manifest superseded"]),
    );
  });

  test("a large namespace is listed by hash, up to the cutoff and no further", async () => {
    const world = new SmallWorld();
    const log = await world.create(uri);
    const writer = new Writer(log);
    await writer.write(1_500, { perCommit: 100 });
    await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 200) });
    await new Writer(log, "q").write(4);
    const store = new FailingStore(world.store(uri));
    const report = await reclaim(world.open(uri, log.spec, store), now);
    expect(report.batches.objects).toBe(200);
    const lists = store.seen.filter((call) => call.startsWith("list batch/"));
    expect(lists.length).toBe(257);
    expect((await readAll(world.open(uri, log.spec))).size).toBe(1_304);
  });
});

describe("hazard 14: producer state expired with trimmed data", () => {
  test("a returning producer finds its seq and its resume point, however far the trim went", async () => {
    const { world, log } = await trained();
    const quiet = new Writer(log, "quiet");
    await quiet.write(1);
    const busy = new Writer(log, "busy");
    await busy.write(40);
    await registerCheckpoint(log, { id: "d", cursor: cursorAt(log, 70), keepLast: 1 });
    await reclaim(log, now);
    const opened = await openProducer(world.open(uri, log.spec), "quiet");
    expect(opened.state.seq).toBe(1);
    expect(opened.resumePoint).toEqual({ after: 0 });
    // With its next batch the old one is not needed any more.
    const again = new Writer(world.open(uri, log.spec), "quiet");
    await again.write(1);
    await busy.open();
    await busy.write(6);
    const report = await reclaim(world.open(uri, log.spec), now);
    expect(report.batches.objects).toBeGreaterThanOrEqual(1);
    expect((await openProducer(world.open(uri, log.spec), "quiet")).resumePoint).toEqual({ after: 1 });
  });

  test("a silent producer's table stays while it holds the copy, and goes when nothing needs it", async () => {
    const world = new SmallWorld();
    const made = await world.create(uri);
    const log = world.open(uri, made.spec, world.store(uri), { silentVersions: 30, inlineProducersMin: 2 });
    for (let i = 0; i < 20; i++) await new Writer(log, `s${i}`).write(1);
    const busy = new Writer(log, "busy");
    await busy.write(60);
    const moved = await log.head.jump();
    expect(moved.tables.length).toBeGreaterThan(0);
    await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 75) });
    await reclaim(log, now);
    const opened = await openProducer(world.open(uri, log.spec), "s3");
    expect([opened.state.seq, opened.resumePoint]).toEqual([1, { after: 0 }]);
    // All return and go on: the table is superseded, dropped from the manifest, and deleted.
    for (let i = 0; i < 20; i++) await new Writer(world.open(uri, log.spec), `s${i}`).write(1);
    await new Writer(world.open(uri, log.spec), "busy").write(6);
    await world.open(uri, log.spec).commit(
      {
        by: "second table",
        kind: "own",
        stage: (draft) => {
          // Two tables, so that the older can be seen to be superseded.
          draft.tables.push(draft.tables[0] as never);
          return { done: false, result: undefined };
        },
      },
      { fresh: true },
    );
    const fresh = world.open(uri, log.spec);
    await reclaim(fresh, now);
    expect((await fresh.head.jump()).tables).toEqual([]);
    await new Writer(world.open(uri, log.spec), "busy").write(6);
    await reclaim(world.open(uri, log.spec), now);
    for (const table of moved.tables) expect(await keysOf(log.store, nodeRefKey(table))).toEqual([]);
    expect((await openProducer(world.open(uri, log.spec), "s3")).resumePoint).toEqual({ after: 1 });
  });
});

describe("what is live for other reasons than its step", () => {
  test("tables of silent producers stay until each of them is superseded, and those named by a resume point for longer", async () => {
    const world = new SmallWorld();
    const made = await world.create(uri);
    const log = world.open(uri, made.spec, world.store(uri), { silentVersions: 30, inlineProducersMin: 2 });
    const busy = new Writer(log, "busy");
    for (const generation of ["a", "b"]) {
      for (let i = 0; i < 18; i++) await new Writer(log, `${generation}${i}`).write(1);
      await busy.write(60);
    }
    expect((await log.head.jump()).tables.length).toBe(2);
    await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 150) });
    const look = async (id: string): Promise<unknown> => {
      const { state, resumePoint } = await openProducer(world.open(uri, made.spec), id);
      return [state.seq, resumePoint];
    };
    await reclaim(log, now);
    expect((await log.head.jump()).tables.length).toBe(2);
    expect(await look("b3")).toEqual([1, { after: 0 }]);
    // The older generation returns without writing: its table is not needed as a table, but still for the resume points.
    for (let i = 0; i < 18; i++) expect(await look(`a${i}`)).toEqual([1, { after: 0 }]);
    await new Writer(world.open(uri, made.spec), "busy").write(6);
    const fresh = world.open(uri, made.spec);
    await reclaim(fresh, now);
    expect((await fresh.head.jump()).tables.length).toBe(1);
    await new Writer(world.open(uri, made.spec), "busy").write(6);
    await reclaim(world.open(uri, made.spec), now);
    for (const id of ["a3", "b5"]) expect(await look(id)).toEqual([1, { after: 0 }]);
  });

  test("batches that wait above a missing step (lanes)", async () => {
    const world = new SmallWorld();
    const log = await world.create(uri, { kind: "lanes", lanes: 2 });
    await new Writer(log, "lane-1").write(20);
    for (let i = 0; i < 10; i++) await openProducer(log, `lane-0`);
    expect((await reclaim(log, now)).cutoff.after).toBeGreaterThan(20);
    await new Writer(log, "lane-0").write(20);
    expect((await readAll(world.open(uri, log.spec))).size).toBe(40);
  });

  test("a manifest that names too few index objects stops everything (hazard 42)", async () => {
    const { world, log } = await trained(200, 10);
    const head = await log.head.jump();
    const [level] = head.index;
    const index = [{ start: (level?.start ?? 0) + 1, refs: level?.refs.slice(1) ?? [] }];
    const broken = { ...head, version: asVersion(head.version + 1), index };
    await log.store.create(manifestKey(broken.version), encodeManifest(broken));
    const before = await batchKeys(log);
    await expect(reclaim(world.open(uri, log.spec), now)).rejects.toMatchObject({ code: "CORRUPT" });
    expect(await batchKeys(log)).toEqual(before);
  });
});

describe("hazard 15: name reuse after reclaim", () => {
  test("a very stale writer recreates an old version; nobody believes it, and the next run removes it", async () => {
    const { world, log } = await trained();
    const old = await log.head.read(asVersion(5));
    await reclaim(log, now);
    await log.store.create(manifestKey(asVersion(5)), encodeManifest(old as never));
    const fresh = world.open(uri, log.spec);
    expect((await fresh.head.load()).version).toBeGreaterThan(30);
    await new Writer(log, "q").write(3);
    await reclaim(log, now);
    expect(await log.store.get(manifestKey(asVersion(5)))).toBeUndefined();
  });
});

describe("hazard 23 and 26: a slow reader against the reclaimer", () => {
  test("with a live checkpoint it finds its data; without one it is told RECLAIMED, never wrong bytes", async () => {
    const { world, log } = await trained(60, 10);
    const slow = world.open(uri, log.spec);
    const stale = await slow.head.newest();
    await registerCheckpoint(log, { id: "other", cursor: cursorAt(log, 50), group: "fast" });
    await reclaim(log, now);
    await slow.locate(stale, 12 as never);
    await releaseCheckpoint(log, { id: "c" });
    await reclaim(log, now);
    const head = await slow.head.jump();
    await expect(slow.locate(head, 12 as never)).rejects.toMatchObject({ code: "RECLAIMED", details: { trim: 50 } });
  });
});

describe("hazard 37 and 55: orphan removal against an upload in flight", () => {
  test("the cutoff is committed first: a slow upload is staged or expires, and is never lost", async () => {
    const { world, log } = await trained();
    const slow = new Writer(world.open(uri, log.spec), "slow");
    const upload = await slow.upload();
    await new Writer(log, "q").write(10);
    await reclaim(log, now);
    expect(await log.store.get(batchKey(upload, 0))).toBeUndefined();
    await expect(slow.commit([upload])).rejects.toThrow("expired");
    await slow.commit([await slow.upload({ attempt: 1 })]);
    await readAll(world.open(uri, log.spec));
  });

  test("within the grace it is left alone", async () => {
    const { world, log } = await trained();
    world.env.nowMs += 3_600_000;
    await new Writer(log, "q").write(1);
    const slow = new Writer(world.open(uri, log.spec), "slow");
    const upload = await slow.upload();
    await new Writer(log, "q").write(30);
    world.env.nowMs += 60_000;
    await reclaim(log, { graceMs: 900_000, keepVersions: 2 });
    await slow.commit([upload]);
    await readAll(world.open(uri, log.spec));
  });
});

describe("hazard 38: two reclaimers", () => {
  test("run at once, each from its own view, nothing live goes and the boundary only rises", async () => {
    for (let seed = 1; seed <= 10; seed++) {
      const world = new SmallWorld(seed);
      const log = await world.create(uri);
      await new Writer(log).write(150, { perCommit: 3 });
      await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 100) });
      const views = [1, 2, 3].map(() => world.open(uri, log.spec));
      await Promise.all(views.map((view) => view.head.newest()));
      await Promise.all([...views.map((view) => reclaim(view, now)), new Writer(log, "q").write(10)]);
      const fresh = world.open(uri, log.spec);
      expect((await readAll(fresh)).size).toBe(60);
      let last = 0;
      for (let n = 1; n <= fresh.head.boundary.newest.n; n++) {
        const marker = JSON.parse(Buffer.from((await log.store.get(boundaryKey(n))) as Uint8Array).toString());
        expect(marker.upTo).toBeGreaterThan(last);
        last = marker.upTo;
      }
    }
  });
});

describe("hazard 39 and 42: a reclaimer that dies, or cannot read, at any call", () => {
  async function prepared(): Promise<{ world: SmallWorld; log: Log; store: MemoryStore }> {
    const world = new SmallWorld();
    const log = await world.create(uri);
    const writer = new Writer(log);
    await writer.write(140, { perCommit: 5 });
    await new Writer(log, "crashed").upload();
    await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 100) });
    await new Writer(log, "q").write(6);
    return { world, log, store: world.store(uri) };
  }

  test.each(["before", "after"] as const)(
    "every live step stays readable and the next run finishes (%s the effect)",
    async (effect) => {
      const { world, log, store } = await prepared();
      const clean = await copyOf(store);
      const counter = new FailingStore(clean);
      await reclaim(world.open(uri, log.spec, counter), now);
      const expected = (await keysOf(clean, "batch/")).length;
      expect(counter.calls).toBeGreaterThan(12);
      for (let dieAt = 0; dieAt < counter.calls; dieAt++) {
        const copy = await copyOf(store);
        const dying = new FailingStore(copy, dieAt, effect);
        await expect(reclaim(world.open(uri, log.spec, dying), now)).rejects.toThrow();
        // Before the commit point nothing is trimmed, after it all that is promised is there.
        expect([146, 46]).toContain((await readAll(world.open(uri, log.spec, copy))).size);
        expect((await openProducer(world.open(uri, log.spec, copy), "p")).resumePoint).toEqual({ after: 139 });
        await reclaim(world.open(uri, log.spec, copy), now);
        expect((await readAll(world.open(uri, log.spec, copy))).size).toBe(46);
        expect((await keysOf(copy, "batch/")).length).toBeLessThanOrEqual(expected);
      }
    },
  );

  test("a single missing index object stops it before anything is deleted", async () => {
    const { world, log, store } = await prepared();
    const manifest = await log.head.jump();
    const needed = manifest.index[0]?.refs.at(-1);
    await store.delete([nodeRefKey(needed as never)]);
    const before = (await keysOf(store)).filter((key) => !key.startsWith("manifest/"));
    await expect(reclaim(world.open(uri, log.spec), now)).rejects.toMatchObject({ code: "MISSING_OBJECT" });
    expect((await keysOf(store)).filter((key) => !key.startsWith("manifest/"))).toEqual(before);
  });
});

describe("hazard 40: deletion before announcement", () => {
  test("no manifest goes before a marker covers it, nothing at all before the cutoff is committed", async () => {
    const { world, log } = await trained();
    const store = new FailingStore(world.store(uri));
    await reclaim(world.open(uri, log.spec, store), now);
    const first = store.seen.findIndex((call) => call.startsWith("delete"));
    const committed = store.seen.findIndex((call) => call.startsWith("create manifest/"));
    const announced = store.seen.findIndex((call) => call.startsWith("create boundary/"));
    expect(committed).toBeGreaterThan(0);
    expect(announced).toBeGreaterThan(committed);
    expect(first).toBeGreaterThan(announced);
    expect(store.seen.filter((c) => c.startsWith("delete namespace") || c.startsWith("delete boundary"))).toEqual([]);
  });
});

describe("hazard 41: a reclaimer that works from a stale head", () => {
  test("a paused one that returns deletes only what was dead then, and is still dead", async () => {
    const { world, log } = await trained(80, 10);
    const paused = world.open(uri, log.spec);
    await paused.head.newest();
    await new Writer(log, "q").write(40);
    await registerCheckpoint(log, { id: "far", cursor: cursorAt(log, 90), keepLast: 1 });
    await reclaim(log, now);
    await reclaim(paused, now);
    expect((await readAll(world.open(uri, log.spec))).size).toBe(30);
  });
});

describe("hazard 34: the namespace was made again under a paused reclaimer", () => {
  test("its new manifests, which have the old names, are left alone", async () => {
    const { world, log } = await trained();
    const paused = world.open(uri, log.spec);
    await paused.head.newest();
    const store = world.store(uri);
    await store.delete(await keysOf(store));
    const spec: NamespaceSpec = { ...log.spec, uuid: world.env.uuid() };
    await store.create(namespaceKey, encodeNamespace(spec));
    const fresh = world.open(uri, spec);
    await new Writer(fresh).write(5);
    await expect(reclaim(paused, now)).rejects.toThrow();
    expect((await readAll(world.open(uri, spec))).size).toBe(5);
  });
});

describe("hazard 44: clock skew or jump", () => {
  test("whatever the clocks say, live data stays; at worst an upload expires", async () => {
    const { world, log } = await trained();
    for (const jump of [1e12, -2e12, 5e11]) {
      world.env.nowMs = Math.max(0, world.env.nowMs + jump);
      await new Writer(world.open(uri, log.spec), "q").write(3);
      await reclaim(world.open(uri, log.spec), { graceMs: 900_000, keepVersions: 2 });
      await readAll(world.open(uri, log.spec));
    }
  });
});

describe("hazard 43: a reclaimer dead without anyone noticing", () => {
  test("the lag of the boundary is told in versions and in time", async () => {
    const { world, log } = await trained();
    world.env.nowMs += 86_400_000;
    await new Writer(log, "q").write(3);
    const stuck = await reclaim(log, { ...now, dryRun: true, graceMs: 1e12 });
    expect(stuck.lagVersions).toBeGreaterThan(30);
    expect(stuck.lagMs).toBeGreaterThanOrEqual(86_400_000);
    const done = await reclaim(log, now);
    expect(done.lagVersions).toBeLessThan(6);
    expect(done.lagMs).toBeLessThan(1_000);
  });
});
