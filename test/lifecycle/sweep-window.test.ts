/**
 * Property: a process that reclaims again and again, looking only at what is new, deletes what a full sweep would and nothing live. Method: random
 * histories against full sweeps, and every way in which its notes can be wrong.
 */
import { describe, expect, test } from "vitest";
import { encodeManifest, manifestKey } from "../../src/format/index.js";
import { ReclaimLoop, reclaim, registerCheckpoint } from "../../src/lifecycle/index.js";
import { FailingStore } from "./failing-store.js";
import { HookedStore } from "./hooked-store.js";
import { cursorAt, readAll, SmallWorld, Writer } from "./small-world.js";

const now = { graceMs: 0, keepVersions: 2 };
const uri = "memory:a";

describe("sweeping only what is new", () => {
  test("finds what a full sweep finds, with random writers, checkpoints, orphans and returning producers", async () => {
    for (let seed = 1; seed <= 12; seed++) {
      const world = new SmallWorld(seed);
      const log = await world.create(uri);
      const loop = new ReclaimLoop(world.open(uri, log.spec), { ...now, fullEvery: 1_000 });
      const writers = ["a", "b", "c"].map((id) => new Writer(log, id));
      let windows = 0;
      for (let round = 0; round < 25; round++) {
        const writer = writers[Math.floor(world.env.random() * 3)] as Writer;
        await writer.write(1 + Math.floor(world.env.random() * 30), { perCommit: 4 });
        if (world.env.random() < 0.4) await writer.upload({ attempt: 1 });
        const { trim, end } = (await log.head.jump()).steps;
        if (world.env.random() < 0.6) {
          const step = trim + Math.floor(world.env.random() * (end - trim));
          await registerCheckpoint(log, { id: `r-${round}`, cursor: cursorAt(log, step), keepLast: 2 });
        }
        const { full } = await loop.once();
        if (!full) windows++;
        await readAll(world.open(uri, log.spec));
        for (const { id, holder } of writers)
          if (holder) {
            const state = (await log.head.jump()).producers.get(id);
            expect(await log.readResumePoint(id, state as never)).toBeDefined();
          }
      }
      expect(windows).toBe(24);
      const rest = await reclaim(world.open(uri, log.spec), { ...now, dryRun: true });
      // What the last window left is what has died since by the newer cutoff alone, never more.
      const missed = rest.dead?.filter((o) => o.kind === "batch" && o.reason === "trimmed") ?? [];
      expect(missed.filter((o) => Number(o.key.split("/")[2]) < rest.cutoff.before)).toEqual([]);
    }
  });

  test("lists no batches and no manifests while neither cutoff nor boundary move", async () => {
    const world = new SmallWorld();
    const log = await world.create(uri);
    await new Writer(log).write(60, { perCommit: 4 });
    const listed: string[] = [];
    const store = new HookedStore(world.store(uri), {
      afterList: async (prefix) => {
        listed.push(prefix);
      },
    });
    const loop = new ReclaimLoop(world.open(uri, log.spec, store), { graceMs: 3_600_000, keepVersions: 2 });
    await loop.once();
    await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 30) });
    listed.length = 0;
    const { full, batches } = await loop.once();
    expect([full, batches.objects]).toEqual([false, 30]);
    expect(listed.filter((prefix) => prefix.startsWith("batch/"))).toEqual([]);
    await readAll(world.open(uri, log.spec));
  });

  test("is given up when somebody else trimmed in between, or let go of a pin", async () => {
    const world = new SmallWorld();
    const log = await world.create(uri);
    await new Writer(log).write(60, { perCommit: 4 });
    const loop = new ReclaimLoop(world.open(uri, log.spec), now);
    expect([(await loop.once()).full, (await loop.once()).full]).toEqual([true, false]);
    // It commits the trim and dies before it deletes anything.
    await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 30) });
    const dying = new FailingStore(world.store(uri));
    dying.delete = () => Promise.reject(new Error("dead"));
    await expect(reclaim(world.open(uri, log.spec, dying), now)).rejects.toThrow("dead");
    expect((await log.head.jump()).steps.trim).toBe(30);
    await new Writer(log, "q").write(3);
    const report = await loop.once();
    expect([report.full, report.batches.objects]).toEqual([true, 30]);
  });

  test("is given up when another reclaimer was faster, which is no failure", async () => {
    const world = new SmallWorld();
    const log = await world.create(uri);
    const keep = async (step: number): Promise<unknown> =>
      await registerCheckpoint(log, { id: `c${step}`, cursor: cursorAt(log, step), keepLast: 1 });
    await new Writer(log).write(50, { perCommit: 5 });
    let armed = false;
    const hooked = new HookedStore(world.store(uri), {
      create: async (key, inner) => {
        const outcome = await inner();
        // Its trim is committed; before it looks up what that released, another one has deleted it, index and all.
        if (armed && key.startsWith("manifest/")) {
          armed = false;
          await new Writer(log, "other").write(9);
          await reclaim(log, now);
          await new Writer(log, "another").write(9);
          await reclaim(log, now);
        }
        return outcome;
      },
    });
    const loop = new ReclaimLoop(world.open(uri, log.spec, hooked), now);
    await keep(10);
    await loop.once();
    // Sealed after the first run, so that it has not read them yet.
    await new Writer(log, "more").write(150, { perCommit: 5 });
    await keep(140);
    armed = true;
    expect((await loop.once()).full).toBe(false);
    expect(armed).toBe(false);
    expect((await loop.once()).full).toBe(true);
    expect((await readAll(world.open(uri, log.spec))).size).toBe(78);
  });

  test("is not built on a version that a zombie made again (hazard 24)", async () => {
    const world = new SmallWorld();
    const log = await world.create(uri);
    await new Writer(log).write(60, { perCommit: 4 });
    let armed = false;
    const hooked = new HookedStore(world.store(uri), {
      afterList: async (prefix) => {
        if (!armed || prefix !== "intent/") return;
        armed = false;
        // Between its deletes and its notes for the next run, others move on and the version at its cutoff is forged with a later end.
        const { orphanCutoff } = await log.head.jump();
        await new Writer(log, "other").write(20);
        await reclaim(log, now);
        const forged = { ...(await log.head.jump()), version: orphanCutoff };
        await world.store(uri).create(manifestKey(orphanCutoff), encodeManifest(forged));
      },
    });
    const loop = new ReclaimLoop(world.open(uri, log.spec, hooked), now);
    armed = true;
    await loop.once();
    expect(armed).toBe(false);
    await new Writer(log, "another").write(10);
    const report = await loop.once();
    expect(report.full).toBe(true);
    expect((await readAll(world.open(uri, log.spec))).size).toBe(90);
  });
});
