/**
 * Property: which steps a fork shares and under which numbers, what is left after skipping, how far a cutoff goes, and what is remembered of live batches is exact. Method: every small case, or random
 * ones, against a plain list of steps; a log whose clock is written by hand.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  asEpoch,
  asSeq,
  asVersion,
  type BatchName,
  genesisManifest,
  indexFanout,
  type Manifest,
  type NamespaceSpec,
  type OriginRange,
} from "../../src/format/index.js";
import { chooseCutoff } from "../../src/lifecycle/cutoff.js";
import { FingerprintSet } from "../../src/lifecycle/fingerprint-set.js";
import { parentStep, planAncestors, planFork, translateStep } from "../../src/lifecycle/fork-plan.js";
import { ReclaimLoop } from "../../src/lifecycle/index.js";
import { LiveSet } from "../../src/lifecycle/live-set.js";
import { keptRanges, normalizeSkip, parseSkip } from "../../src/lifecycle/skip.js";
import type { Log } from "../../src/log/index.js";
import { QuarterEnv, spec } from "../log/scripted-log.js";
import { SmallWorld, Writer } from "./small-world.js";

const isSkipped = (skip: readonly { from: number; to: number }[], step: number): boolean =>
  skip.some(({ from, to }) => step >= from && step < to);
const stepsFrom = (from: number, to: number): number[] =>
  Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i);

/** A fork of `[trim, at)`: the parent's steps that it keeps, and the number of the first. */
const wanted = fc
  .record({
    trim: fc.nat({ max: 90 }),
    length: fc.nat({ max: 160 }),
    ranges: fc.array(fc.tuple(fc.nat({ max: 240 }), fc.integer({ min: 1, max: 30 })), { maxLength: 4 }),
  })
  .map(({ trim, length, ranges }) => {
    const at = trim + length;
    const within = ranges.map(([from, count]) => ({ from, to: from + count })).filter(({ to }) => to <= at);
    const skip = normalizeSkip(within, at);
    const kept = stepsFrom(trim, at).filter((step) => !isSkipped(skip, step));
    const first = stepsFrom(0, trim).filter((step) => !isSkipped(skip, step)).length;
    return { trim, at, skip, kept, first };
  });

function mapped(ranges: readonly OriginRange[]): Map<number, number> {
  const found = new Map<number, number>();
  for (const { at, count, from } of ranges) for (let i = 0; i < count; i++) found.set(at + i, from + i);
  expect(found.size).toBe(ranges.reduce((sum, { count }) => sum + count, 0));
  return found;
}

describe("a plan of a fork", () => {
  test("shares what is not skipped, numbered from where it would be without a trim", () => {
    fc.assert(
      fc.property(wanted, ({ trim, at, skip, kept, first }) => {
        const plan = planFork(spec, trim, at, skip);
        const end = first + kept.length;
        expect([plan.trim, plan.parentTrim, plan.firstOwn]).toEqual([first, trim, end]);
        expect([plan.tailStart % indexFanout, end - plan.tailStart < indexFanout]).toEqual([0, true]);
        expect([...mapped(plan.shared)]).toEqual(kept.map((step, i) => [first + i, step]));
        expect(stepsFrom(first - 2, end + 2).map((step) => parentStep(plan, step))).toEqual([
          undefined,
          undefined,
          ...kept,
          undefined,
          undefined,
        ]);
        const below = kept.map((step, i) => [first + i, step] as const).filter(([step]) => step < plan.tailStart);
        expect([...mapped(plan.own)]).toEqual(below);
        const [direct] = planAncestors(spec, "memory:p", plan, at);
        const ranges = direct?.ranges ?? [];
        for (const step of stepsFrom(trim, at)) {
          const next = kept.findIndex((one) => one >= step);
          const number = next < 0 ? end : first + next;
          expect(translateStep(ranges, step)).toEqual({ step: number, exact: kept[next] === step });
        }
        expect([translateStep(ranges, trim - 1), translateStep(ranges, at), translateStep(ranges, at + 1)]).toEqual([
          undefined,
          { step: end, exact: true },
          undefined,
        ]);
      }),
      { numRuns: 60 },
    );
  });

  test("of a fork leads to the same steps of the ancestors", () => {
    fc.assert(
      fc.property(wanted, wanted, (one, two) => {
        const first = planFork(spec, one.trim, one.at, one.skip);
        const ancestors = planAncestors(spec, "memory:a", first, one.at);
        const origin = { uuid: "a", uri: "memory:a", format: 2, root: {} as never, ranges: first.own };
        const parent: NamespaceSpec = {
          ...spec,
          uuid: "b",
          fork: {
            origins: [origin as never],
            tail: { start: first.tailStart, batches: Array(first.firstOwn - first.tailStart) },
            trim: first.trim,
            ancestors,
          },
        };
        // The parent has written on after it was forked.
        const at = Math.max(first.trim, Math.min(two.at, first.firstOwn + 70));
        const trim = Math.max(first.trim, Math.min(two.trim, at));
        const skip = normalizeSkip(
          two.skip.filter(({ to }) => to <= at),
          at,
        );
        const plan = planFork(parent, trim, at, skip);
        const inA = mapped(first.own);
        const shared = [...mapped(plan.shared)].filter(([step]) => step < plan.tailStart);
        expect([...mapped(plan.inherited[0] ?? [])]).toEqual(
          shared.filter(([, from]) => inA.has(from)).map(([step, from]) => [step, inA.get(from)]),
        );
        expect([...mapped(plan.own)]).toEqual(shared.filter(([, from]) => from >= first.tailStart));
        const named = planAncestors(parent, "memory:b", plan, at);
        expect(named.map(({ uuid, uri }) => [uuid, uri])[0]).toEqual(["b", "memory:b"]);
        const further = named[1];
        if (!further) return;
        expect([further.uuid, further.uri]).toEqual([spec.uuid, "memory:a"]);
        const back = mapped(first.shared);
        for (const [step, from] of mapped(plan.shared)) {
          const original = back.get(from);
          if (original !== undefined) expect(translateStep(further.ranges, original)).toEqual({ step, exact: true });
        }
      }),
      { numRuns: 120 },
    );
  });
});

describe("skipping", () => {
  test("reads steps and ranges, both ends included", () => {
    expect(parseSkip("110-120,300")).toEqual([
      { from: 110, to: 121 },
      { from: 300, to: 301 },
    ]);
    expect(parseSkip(" 1 - 1 , 0")).toEqual([
      { from: 1, to: 2 },
      { from: 0, to: 1 },
    ]);
    for (const wrong of ["", "a", "1-", "2-1", "1,,2", "-1", "1.5", `${2 ** 53}`, "1-2-3"])
      expect(() => parseSkip(wrong)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
  });

  test("joins what touches, and refuses what is not below the fork", () => {
    expect(
      normalizeSkip(
        [
          { from: 5, to: 7 },
          { from: 1, to: 3 },
          { from: 3, to: 4 },
          { from: 6, to: 10 },
          { from: 7, to: 8 },
        ],
        10,
      ),
    ).toEqual([
      { from: 1, to: 4 },
      { from: 5, to: 10 },
    ]);
    for (const wrong of [
      { from: 1, to: 11 },
      { from: -1, to: 1 },
      { from: 2, to: 2 },
      { from: 0.5, to: 2 },
      { from: 0, to: 1.5 },
    ])
      expect(() => normalizeSkip([wrong], 10)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
    const many = (n: number) => stepsFrom(0, n).map((i) => ({ from: 2 * i, to: 2 * i + 1 }));
    expect(normalizeSkip(many(1_024), 5_000)).toHaveLength(1_024);
    expect(() => normalizeSkip(many(1_025), 5_000)).toThrow(expect.objectContaining({ code: "LIMIT" }));
  });

  test("leaves the rest, whole", () => {
    fc.assert(
      fc.property(wanted, ({ trim, at, skip, kept }) => {
        const ranges = keptRanges(trim, at, skip);
        expect(ranges.flatMap(({ from, to }) => stepsFrom(from, to))).toEqual(kept);
        expect(ranges.every(({ from, to }) => from < to)).toBe(true);
      }),
    );
  });
});

test("the cutoff is the newest version that is old enough and far enough behind, found in few reads", async () => {
  for (const [version, cutoff, keep, oldUpTo] of [
    [100, 0, 10, 95],
    [100, 0, 10, 90],
    [100, 0, 10, 89],
    [100, 0, 10, 1],
    [100, 0, 10, 0],
    [100, 40, 10, 41],
    [100, 40, 10, 20],
    [100, 90, 10, 99],
    [100, 91, 10, 99],
    [100, 89, 10, 99],
    [100, 0, 0, 100],
    [100, 0, 0, 99],
  ] as const) {
    let reads = 0;
    const time = (of: number): number => (of <= oldUpTo ? 1_000 : 1_001);
    const of = (n: number): Manifest => ({
      ...genesisManifest(spec),
      version: asVersion(n),
      commit: { id: "c", by: "t", time: time(n) },
    });
    const head = {
      read: async (n: number) => {
        reads++;
        return of(n);
      },
    };
    const log = { env: { now: () => 1_500 }, head } as unknown as Log;
    const chosen = await chooseCutoff(
      log,
      { ...of(version), orphanCutoff: asVersion(cutoff) },
      { graceMs: 500, keepVersions: keep },
    );
    expect([version, cutoff, keep, oldUpTo, chosen]).toEqual([
      version,
      cutoff,
      keep,
      oldUpTo,
      Math.max(cutoff, Math.min(version - keep, oldUpTo)),
    ]);
    expect(reads).toBeLessThanOrEqual(8);
    const gone = { env: log.env, head: { read: async () => undefined } } as unknown as Log;
    const all = await chooseCutoff(
      gone,
      { ...of(version), orphanCutoff: asVersion(cutoff) },
      { graceMs: 500, keepVersions: 10 },
    );
    expect(all).toBe(Math.max(cutoff, version - 10));
  }
});

describe("live batches", () => {
  test("a set of fingerprints knows all that was added, and hardly anything else, however many", () => {
    const set = new FingerprintSet();
    for (let i = 0; i < 3_000; i++) set.add(`${i}/p-1-${i}-abc`);
    set.add("7/p-1-7-abc");
    expect(set.size).toBe(3_000);
    for (let i = 0; i < 3_000; i++) expect(set.has(`${i}/p-1-${i}-abc`)).toBe(true);
    for (let i = 0; i < 3_000; i++) expect(set.has(`${i}/p-1-${i + 1}-abc`)).toBe(false);
  });

  test("a batch is live for its step or for its resume point; an ancestor's, or a younger one, is not ours to keep", () => {
    const name = (seq: number, base = 5): BatchName => ({
      producer: "p",
      epoch: asEpoch(1),
      seq: asSeq(seq),
      incarnation: "a",
      attempt: 0,
      base: asVersion(base),
    });
    const live = new LiveSet();
    live.addBatch({ ...name(1), extents: [] }, 6);
    live.addBatch({ ...name(2), extents: [] }, 5);
    live.addBatch({ ...name(3), extents: [], origin: 0 } as never, 6);
    live.addLast(name(4));
    live.addLast(name(1));
    live.addIndexObject("k");
    const facts = (seq: number) => [live.hasBatch(name(seq)), live.isLast(name(seq)), live.isOnlyLast(name(seq))];
    expect([1, 2, 3, 4].map(facts)).toEqual([
      [true, true, false],
      [false, false, false],
      [false, false, false],
      [true, true, true],
    ]);
    expect([live.hasBatch(name(1, 4)), live.hasIndexObject("k"), live.hasIndexObject("l")]).toEqual([
      false,
      true,
      false,
    ]);
  });
});

test("a reclaimer that runs again and again lists everything every so often, waits about its interval, and outlives a failure", async () => {
  const world = new SmallWorld();
  const log = await world.create("memory:loop");
  await new Writer(log).write(3);
  const full: boolean[] = [];
  const loop = new ReclaimLoop(
    log,
    { fullEvery: 3, graceMs: 0, keepVersions: 1 },
    { onRun: (report) => full.push(report.full) },
  );
  for (let i = 0; i < 7; i++) {
    await new Writer(log, "q").write(1);
    await loop.once();
  }
  expect(full).toEqual([true, false, false, true, false, false, true]);
  const env = new QuarterEnv();
  const failures: unknown[] = [];
  const stop = new AbortController();
  const failing = { env, presence: { ask: () => Promise.reject(new Error("a hiccup")) } } as unknown as Log;
  const running = new ReclaimLoop(
    failing,
    {},
    {
      onFailure: (error) => {
        failures.push(error);
        if (failures.length === 3) stop.abort(new Error("enough"));
      },
    },
  ).run(stop.signal);
  await expect(running).rejects.toThrow("enough");
  expect([failures.length, env.sleeps.map(Math.round)]).toEqual([3, [57_000, 57_000]]);
});
