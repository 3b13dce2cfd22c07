/**
 * Property: a fork sees exactly its parent's batches up to the fork step without the skipped ones, whatever its ancestors trim and reclaim
 * afterwards; its pins are there before it is and go when it goes. Method: several namespaces on memory stores, reclaim after everything, and a
 * store that dies at every call in turn.
 */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { openProducer } from "../../src/cadence/index.js";
import { asStep, type Manifest, makeCursor, type NamespaceSpec } from "../../src/format/index.js";
import {
  type ForkSettings,
  forkLog,
  originOfStep,
  parseSkip,
  reclaim,
  releasePins,
  translateCursor,
} from "../../src/lifecycle/index.js";
import type { Log } from "../../src/log/index.js";
import { FailingStores, fork, now, opener, parentOf, texts, trimTo } from "./fork-world.js";
import { cursorAt, keysOf, readAll, rows, SmallWorld, Writer } from "./small-world.js";

describe("fork", () => {
  test("shares steps below the fork step, minus the skipped ones, and goes on by itself", async () => {
    const { world, log } = await parentOf(300);
    const before = await texts(log);
    const forked = await fork(world, log, "memory:fork", { at: 250, skip: parseSkip("110-120,200") });
    const expected = before.filter((_, i) => i < 250 && !(i >= 110 && i <= 120) && i !== 200);
    expect(await texts(forked)).toEqual(expected);
    await new Writer(forked, "own").write(200, { perCommit: 9 });
    const all = await texts(world.open("memory:fork", forked.spec));
    expect(all.slice(0, 238)).toEqual(expected);
    expect(all.slice(238)).toEqual(Array.from({ length: 200 }, (_, i) => expect.stringContaining(`own ${i} 0`)));
    expect(await texts(log)).toEqual(before);
  });

  test("its inherited steps survive any reclaim of the parent, and go when it is deleted (hazard 52)", async () => {
    const { world, log } = await parentOf(300);
    const forked = await fork(world, log, "memory:fork", { at: 250, skip: [{ from: 30, to: 40 }] });
    const expected = await texts(forked);
    await trimTo(log, 290);
    expect((await log.head.jump()).steps.trim).toBe(290);
    expect(await texts(world.open("memory:fork", forked.spec))).toEqual(expected);
    await world.store("memory:fork").delete(await keysOf(world.store("memory:fork")));
    await releasePins(forked.spec, forked.spec.fork?.origins ?? [], opener(world), { unconfirmed: false });
    await new Writer(log, "filler").write(4);
    await reclaim(log, now);
    expect((await log.head.jump()).pins.size).toBe(0);
    // Left: steps from 290 on, young uploads within the kept versions, and p's last batch.
    expect((await keysOf(log.store, "batch/")).length).toBeLessThan(25);
    expect((await readAll(world.open("memory:parent", log.spec))).size).toBeGreaterThan(10);
  });

  test("a skipped step counts in the numbers of a fork, whether the trim has passed it or not", async () => {
    const skip = parseSkip("20-24,95,110-111");
    const { world, log } = await parentOf(150);
    const early = await fork(world, log, "memory:early", { at: 130, skip });
    await trimTo(log, 100);
    const late = await fork(world, log, "memory:late", { at: 130, skip });
    const { trim, end } = (await late.head.jump()).steps;
    expect([trim, end]).toEqual([94, 122]);
    expect((await early.head.jump()).steps.end).toBe(122);
    const numbered = await readAll(early);
    expect([...(await readAll(late))]).toEqual([...numbered].filter(([step]) => step >= 94));
    const cursor = translateCursor(late.spec, cursorAt(log, 120));
    expect(cursor).toMatchObject({ row: cursorAt(late, 112).row });
  });

  test("a parent that has trimmed keeps its numbers in the fork", async () => {
    const { world, log } = await parentOf(150);
    await trimTo(log, 100);
    const parent = await readAll(log);
    const forked = await fork(world, log, "memory:fork", { at: 130, skip: [{ from: 110, to: 112 }] });
    const { trim, end } = (await forked.head.jump()).steps;
    expect([trim, end]).toEqual([100, 128]);
    const kept = [...parent].filter(([s]) => s < 130 && s !== 110 && s !== 111).map(([, text]) => text);
    expect(await texts(forked)).toEqual(kept);
    await new Writer(forked, "own").write(80, { perCommit: 9 });
    expect((await texts(world.open("memory:fork", forked.spec))).slice(0, 28)).toEqual(kept);
    await reclaim(forked, now);
    expect((await texts(world.open("memory:fork", forked.spec))).slice(0, 28)).toEqual(kept);
  });

  test("forks of forks of forks, with skips everywhere, while every ancestor reclaims (hazard 52)", async () => {
    const { world, log } = await parentOf(200);
    const f1 = await fork(world, log, "memory:f1", { at: 180, skip: [{ from: 10, to: 20 }] });
    await new Writer(f1, "one").write(100, { perCommit: 9 });
    const text1 = await texts(f1);
    const f2 = await fork(world, f1, "memory:f2", {
      at: 230,
      skip: [
        { from: 100, to: 150 },
        { from: 168, to: 172 },
      ],
    });
    const expected2 = text1.filter((_, i) => i < 230 && !(i >= 100 && i < 150) && !(i >= 168 && i < 172));
    expect(await texts(f2)).toEqual(expected2);
    await new Writer(f2, "two").write(90, { perCommit: 9 });
    const text2 = await texts(f2);
    const f3 = await fork(world, f2, "memory:f3", { at: 250, skip: [{ from: 0, to: 3 }] });
    const expected3 = text2.slice(3, 250);
    expect(await texts(f3)).toEqual(expected3);
    expect(f3.spec.fork?.origins.map((o) => o.uri)).toEqual(["memory:parent", "memory:f1", "memory:f2"]);
    for (const [ancestor, step] of [
      [log, 200],
      [f1, 270],
      [f2, 266],
    ] as const)
      await trimTo(ancestor, step);
    for (const { uri } of f3.spec.fork?.origins ?? []) {
      const manifest = await (await opener(world)(uri, "")).head.jump();
      expect(manifest.pins.get(f3.spec.uuid)).toMatchObject({ confirmed: true });
    }
    await new Writer(f3, "three").write(70, { perCommit: 9 });
    expect((await texts(world.open("memory:f3", f3.spec))).slice(0, 247)).toEqual(expected3);
    await reclaim(f3, now);
    expect((await texts(world.open("memory:f3", f3.spec))).slice(0, 247)).toEqual(expected3);
  });

  test("a fork that shares only its grandparent's steps pins only that one", async () => {
    const { world, log } = await parentOf(200);
    const f1 = await fork(world, log, "memory:f1", { at: 150 });
    await new Writer(f1, "one").write(10);
    const f2 = await fork(world, f1, "memory:f2", { at: 140 });
    expect(f2.spec.fork?.origins.map((o) => o.uri)).toEqual(["memory:parent"]);
    expect((await f1.head.jump()).pins.size).toBe(0);
    await trimTo(log, 200);
    await trimTo(f1, 160);
    expect(await texts(f2)).toHaveLength(140);
  });

  test("bad input is refused with the reason, and leaves no pin", async () => {
    const { world, log } = await parentOf(50);
    await trimTo(log, 20);
    const pins = async (): Promise<number> => (await log.head.jump()).pins.size;
    const refuse = async (settings: ForkSettings): Promise<unknown> =>
      await fork(world, log, "memory:bad", settings).catch((error) => error.code);
    expect(await refuse({ at: 60 })).toBe("INVALID_ARGUMENT");
    expect(await refuse({ at: 10 })).toBe("RECLAIMED");
    expect(await refuse({ at: 30, skip: [{ from: 29, to: 31 }] })).toBe("INVALID_ARGUMENT");
    expect(await refuse({ at: 30, grid: { rows: 4, chunks: 1 } })).toBe("GRID_MISMATCH");
    await fork(world, log, "memory:bad", { at: 30 });
    expect(await refuse({ at: 30 })).toBe("NOT_EMPTY");
    expect(await pins()).toBe(1);
    expect(() => parseSkip("3-x")).toThrow("110-120,300");
    expect(parseSkip("110-120, 300")).toEqual([
      { from: 110, to: 121 },
      { from: 300, to: 301 },
    ]);
  });
});

describe("inherited producers", () => {
  const inherit = { producers: "inherit" } as const;

  test("go on from their state at the end, or at an earlier step", async () => {
    const { world, log } = await parentOf(40);
    await new Writer(log, "q").write(10);
    await new Writer(log, "p").write(5);
    await new Writer(log, "late").write(3);
    const atEnd = await fork(world, log, "memory:end", inherit);
    expect(await openProducer(atEnd, "p")).toMatchObject({ state: { seq: 45, epoch: 3 }, resumePoint: { after: 44 } });
    expect(await openProducer(atEnd, "q")).toMatchObject({ state: { seq: 10 }, resumePoint: { after: 9 } });
    const early = await fork(world, log, "memory:early", { ...inherit, at: 47 });
    expect(await openProducer(early, "p")).toMatchObject({ state: { seq: 40 }, resumePoint: { after: 39 } });
    expect(await openProducer(early, "q")).toMatchObject({ state: { seq: 7 }, resumePoint: { after: 6 } });
    expect((await openProducer(early, "late")).state.seq).toBe(0);
    const writer = new Writer(early, "q");
    await writer.write(2);
    expect(writer.seq).toBe(9);
    const fresh = await fork(world, log, "memory:fresh", { at: 47 });
    expect((await openProducer(fresh, "p")).state.seq).toBe(0);
  });

  test("are refused when a resume point is gone", async () => {
    const { world, log } = await parentOf(40);
    await new Writer(log, "q").write(20);
    await new Writer(log, "p").write(5);
    await trimTo(log, 50);
    await expect(fork(world, log, "memory:f", { ...inherit, at: 60 })).rejects.toMatchObject({ code: "RECLAIMED" });
    expect((await log.head.jump()).pins.size).toBe(0);
    // p's batch 44 is above the fork step, 39 below the trim; at the end all is there.
    const whole = await fork(world, log, "memory:g", inherit);
    expect((await openProducer(whole, "p")).resumePoint).toEqual({ after: 44 });
  });

  test("of lanes count their seq from the fork's first own step", async () => {
    const world = new SmallWorld();
    const log = await world.create("memory:lanes", { kind: "lanes", lanes: 2 });
    const lanes = [new Writer(log, "lane-0"), new Writer(log, "lane-1")];
    for (const lane of lanes) await lane.open();
    for (let i = 0; i < 20; i++) for (const lane of lanes) await lane.write(1);
    await lanes[0]?.write(3);
    const before = await texts(log);
    const forked = await fork(world, log, "memory:f", { ...inherit, at: 30 });
    for (const id of ["lane-1", "lane-0"]) {
      const opened = await openProducer(forked, id);
      expect([opened.state.seq, opened.resumePoint]).toEqual([0, { after: 14 }]);
      await new Writer(forked, id).write(10);
    }
    expect((await texts(forked)).slice(0, 30)).toEqual(before.slice(0, 30));
    expect(await texts(forked)).toHaveLength(50);
  });
});

describe("cursors across forks", () => {
  test("a row goes where its batch went; what was left out becomes the next kept; beyond the fork there is no place", async () => {
    const { world, log } = await parentOf(200);
    const f1 = await fork(world, log, "memory:f1", { at: 100, skip: [{ from: 10, to: 20 }] });
    await new Writer(f1, "one").write(50, { perCommit: 9 });
    const f2 = await fork(world, f1, "memory:f2", { at: 120, skip: [{ from: 50, to: 60 }] });
    const at = (spec: NamespaceSpec, of: Log, row: number): number | undefined =>
      translateCursor(spec, makeCursor(of.spec.uuid, row, 7))?.row;
    expect(at(f1.spec, log, 5 * rows + 1)).toBe(5 * rows + 1);
    expect(at(f1.spec, log, 12 * rows + 1)).toBe(10 * rows);
    expect(at(f1.spec, log, 20 * rows + 1)).toBe(10 * rows + 1);
    expect(at(f1.spec, log, 100 * rows)).toBe(90 * rows);
    expect(at(f1.spec, log, 100 * rows + 1)).toBeUndefined();
    expect(at(f1.spec, log, 101 * rows)).toBeUndefined();
    // Through two forks: parent 65 is f1's 55, which f2 left out; parent's end is f1's 90, f2's 80.
    expect(at(f2.spec, log, 65 * rows)).toBe(50 * rows);
    expect(at(f2.spec, log, 75 * rows + 1)).toBe(55 * rows + 1);
    expect(at(f2.spec, log, 100 * rows)).toBe(80 * rows);
    expect(at(f2.spec, f1, 119 * rows + 1)).toBe(109 * rows + 1);
    expect(at(f2.spec, f1, 120 * rows)).toBe(110 * rows);
    const translated = translateCursor(f2.spec, makeCursor(log.spec.uuid, 150, 7));
    expect(translated).toMatchObject({ iteration: 7, origin: { uri: "memory:parent", row: 150 } });
    expect(originOfStep(f2.spec, 55)).toEqual({ uuid: f1.spec.uuid, uri: "memory:f1", step: 65 });
    expect(originOfStep(f2.spec, 110)).toBeUndefined();
  });

  test("for any skips through two forks the translated row is the same batch", async () => {
    const skips = fc.array(fc.tuple(fc.nat(59), fc.integer({ min: 1, max: 8 })), { maxLength: 4 });
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 40, max: 70 }),
        skips,
        fc.integer({ min: 5, max: 60 }),
        skips,
        async (at1, s1, at2, s2) => {
          const { world, log } = await parentOf(70);
          const within = (list: typeof s1, at: number): { from: number; to: number }[] =>
            list.map(([from, n]) => ({ from, to: from + n })).filter(({ to }) => to <= at);
          const f1 = await fork(world, log, "memory:f1", { at: at1, skip: within(s1, at1) });
          await new Writer(f1, "one").write(10, { perCommit: 9 });
          const { end } = (await f1.head.jump()).steps;
          const cut = Math.min(at2, end);
          const f2 = await fork(world, f1, "memory:f2", { at: cut, skip: within(s2, cut) });
          const [parent, child] = [await readAll(log), await readAll(f2)];
          const shared = new Set(child.values());
          for (const [step, text] of parent) {
            const row = translateCursor(f2.spec, makeCursor(log.spec.uuid, step * rows + 1, 0))?.row;
            if (shared.has(text))
              expect([child.get(Math.floor((row as number) / rows)), (row as number) % rows]).toEqual([text, 1]);
            else if (row !== undefined) expect(row % rows).toBe(0);
          }
        },
      ),
      { numRuns: 25 },
    );
  });
});

describe("cost", () => {
  test("of a fork does not grow with the history", async () => {
    const counts: number[] = [];
    for (const steps of [1_000, 20_000]) {
      const world = new SmallWorld();
      const log = await world.create("memory:parent");
      const [one] = await new Writer(log).write(1);
      // The history is staged, not waited for: any number of steps on one batch.
      for (let done = 1; done < steps; done += 4_096)
        await log.commit({
          by: "history",
          kind: "own",
          stage: (draft) => {
            for (let i = 0; i < Math.min(4_096, steps - done); i++) draft.push(one as never);
            return { done: false, result: undefined };
          },
        });
      const process = new FailingStores(world, Number.POSITIVE_INFINITY, "before");
      const parent = {
        log: world.open("memory:parent", log.spec, process.store("memory:parent")),
        uri: "memory:parent",
      };
      const target = { uri: "memory:f", store: process.store("memory:f") };
      const settings = { at: steps - 10, skip: parseSkip("100-200,700") };
      const spec = await forkLog(
        { parent, target, env: world.env, openLog: opener(world, (u) => process.store(u)) },
        settings,
      );
      counts.push(process.calls);
      const forked = world.open("memory:f", spec);
      const manifest: Manifest = await forked.head.newest();
      expect(manifest.steps.end).toBe(steps - 10 - 102);
      await forked.locate(manifest, asStep(150));
    }
    expect(Math.max(...counts)).toBeLessThan(40);
  });
});
