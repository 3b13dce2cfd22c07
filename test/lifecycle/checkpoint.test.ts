/**
 * Property: a checkpoint is registered once per group, stays what it is, and its data is never trimmed while it lives.
 * Method: the real functions on a memory store; concurrent views of one namespace stand for ranks and processes.
 */
import { describe, expect, test } from "vitest";
import { isBatchWeaveError } from "../../src/errors.js";
import { asVersion } from "../../src/format/index.js";
import {
  commitMaxLag,
  liveCheckpoints,
  measureLag,
  registerCheckpoint,
  releaseCheckpoint,
} from "../../src/lifecycle/index.js";
import { checkpointsMax, type Log, stageTrim } from "../../src/log/index.js";
import { cursorAt, rows, SmallWorld, Writer } from "./small-world.js";

async function codeOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
  } catch (error) {
    if (isBatchWeaveError(error)) return error.code;
    throw error;
  }
  return "none";
}

async function trim(log: Log): Promise<number> {
  const { manifest } = await log.commit(
    {
      by: "trim log",
      kind: "own",
      stage: (draft) => {
        stageTrim(draft, rows);
        return { done: false, result: undefined };
      },
    },
    { fresh: true },
  );
  return manifest.steps.trim;
}

async function started(steps: number): Promise<{ world: SmallWorld; log: Log }> {
  const world = new SmallWorld();
  const log = await world.create("memory:a");
  await new Writer(log).write(steps, { perCommit: 10 });
  return { world, log };
}

const ids = async (log: Log): Promise<string[]> =>
  liveCheckpoints(await log.head.jump(), rows).map(({ group, id }) => `${group}/${id}`);

describe("checkpoints", () => {
  test("every rank may register the same id and cursor; one commit does it", async () => {
    const { world, log } = await started(20);
    const before = (await log.head.jump()).version;
    const ranks = Array.from({ length: 8 }, () => world.open("memory:a", log.spec));
    await Promise.all(ranks.map((rank) => registerCheckpoint(rank, { id: "i-1", cursor: cursorAt(log, 7) })));
    expect(await ids(log)).toEqual(["default/i-1"]);
    expect((await log.head.jump()).version).toBe(before + 1);
  });

  test("another cursor is a conflict, another group is not", async () => {
    const { log } = await started(20);
    await registerCheckpoint(log, { id: "i-1", cursor: cursorAt(log, 7) });
    expect(await codeOf(registerCheckpoint(log, { id: "i-1", cursor: cursorAt(log, 8) }))).toBe("CHECKPOINT_CONFLICT");
    await registerCheckpoint(log, { id: "i-1", cursor: cursorAt(log, 8), group: "other" });
    expect(await ids(log)).toEqual(["default/i-1", "other/i-1"]);
  });

  test("keepLast releases the oldest registered in the same commit, also after a rollback and with numeric ids", async () => {
    const { log } = await started(30);
    for (const [id, step] of [
      ["500", 5],
      ["1000", 10],
      ["1500", 15],
    ] as const)
      await registerCheckpoint(log, { id, cursor: cursorAt(log, step), keepLast: 3 });
    // Rolled back to 500: what comes next is newer, though not further on.
    await registerCheckpoint(log, { id: "600", cursor: cursorAt(log, 6), keepLast: 3 });
    expect((await ids(log)).sort()).toEqual(["default/1000", "default/1500", "default/600"]);
    await registerCheckpoint(log, { id: "700", cursor: cursorAt(log, 7), keepLast: 2 });
    expect((await ids(log)).sort()).toEqual(["default/600", "default/700"]);
  });

  test("bad input is refused with one clear code", async () => {
    const { log } = await started(5);
    const cursor = cursorAt(log, 2);
    expect(await codeOf(registerCheckpoint(log, { id: "a/b", cursor }))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(registerCheckpoint(log, { id: "a", cursor, keepLast: 0 }))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(registerCheckpoint(log, { id: "a", cursor: cursorAt(log, 6) }))).toBe("INVALID_ARGUMENT");
    expect(await codeOf(releaseCheckpoint(log, { id: "never" }))).toBe("NO_CHECKPOINT");
    expect(await codeOf(commitMaxLag(log, 0))).toBe("INVALID_ARGUMENT");
    const foreign = { ...cursor, namespace: "0d0c7a3e-5d1c-4f5e-9a53-2f4d2f6d8a11", check: undefined };
    expect(await codeOf(registerCheckpoint(log, { id: "a", cursor: foreign }))).toBe("WRONG_NAMESPACE");
  });

  test(`${checkpointsMax} are the limit, over all groups`, async () => {
    const { log } = await started(5);
    await log.commit(
      {
        by: "fill up",
        kind: "own",
        stage: (draft) => {
          const at = asVersion(1);
          const mark = { row: cursorAt(log, 1).row, iteration: 1, at };
          const live = new Map(Array.from({ length: checkpointsMax }, (_, i) => [`c${i}`, mark]));
          draft.checkpoints.set("full", { live, released: [] });
          return { done: false, result: undefined };
        },
      },
      { fresh: true },
    );
    expect(await codeOf(registerCheckpoint(log, { id: "one-more", cursor: cursorAt(log, 2) }))).toBe("LIMIT");
    await registerCheckpoint(log, { id: "one-more", cursor: cursorAt(log, 2), group: "full", keepLast: 10 });
    expect(await ids(log)).toHaveLength(10);
  });
});

describe("hazard 27: a new checkpoint against a concurrent trim", () => {
  test("whichever commits first, a live checkpoint is never below the trim", async () => {
    for (let seed = 1; seed <= 20; seed++) {
      const world = new SmallWorld(seed);
      const log = await world.create("memory:a");
      await new Writer(log).write(20, { perCommit: 10 });
      await registerCheckpoint(log, { id: "late", cursor: cursorAt(log, 15) });
      const [a, b] = [world.open("memory:a", log.spec), world.open("memory:a", log.spec)];
      await Promise.all([a.head.newest(), b.head.newest()]);
      const [registered] = await Promise.allSettled([
        registerCheckpoint(a, { id: "early", cursor: cursorAt(log, 4) }),
        trim(b),
      ]);
      const manifest = await log.head.jump();
      const live = liveCheckpoints(manifest, rows).map((c) => c.step);
      expect(Math.min(...live)).toBeGreaterThanOrEqual(manifest.steps.trim);
      expect(live.includes(4)).toBe(registered.status === "fulfilled");
    }
  });
});

describe("hazard 28: a restored checkpoint older than the trim", () => {
  test("is refused, and the error names the oldest row left", async () => {
    const { log } = await started(20);
    await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 12) });
    expect(await trim(log)).toBe(12);
    const refused = registerCheckpoint(log, { id: "old", cursor: cursorAt(log, 3), group: "slow" });
    await expect(refused).rejects.toMatchObject({
      code: "RECLAIMED",
      message: expect.stringContaining("row left is 24"),
    });
  });
});

describe("hazard 50: a checkpoint id reused while its deletion is in flight", () => {
  test("a slow rank cannot resurrect a released checkpoint", async () => {
    const { world, log } = await started(20);
    const slow = world.open("memory:a", log.spec);
    await slow.head.newest();
    await registerCheckpoint(log, { id: "i-1", cursor: cursorAt(log, 3) });
    await registerCheckpoint(log, { id: "i-2", cursor: cursorAt(log, 6), keepLast: 1 });
    expect(await codeOf(registerCheckpoint(slow, { id: "i-1", cursor: cursorAt(log, 3) }))).toBe("CHECKPOINT_RELEASED");
    await releaseCheckpoint(log, { id: "i-2" });
    await releaseCheckpoint(log, { id: "i-2" });
    expect(await codeOf(registerCheckpoint(slow, { id: "i-2", cursor: cursorAt(log, 6) }))).toBe("CHECKPOINT_RELEASED");
    expect(await ids(log)).toEqual([]);
  });
});

describe("trim", () => {
  test("is the lowest live checkpoint of all groups; without any it stays, and it never falls", async () => {
    const { log } = await started(20);
    expect(await trim(log)).toBe(0);
    await registerCheckpoint(log, { id: "a", cursor: cursorAt(log, 9), group: "one" });
    await registerCheckpoint(log, { id: "b", cursor: cursorAt(log, 5), group: "two" });
    await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 12), group: "two" });
    await registerCheckpoint(log, { id: "d", cursor: cursorAt(log, 15), group: "three" });
    expect(await trim(log)).toBe(5);
    await releaseCheckpoint(log, { id: "b", group: "two" });
    expect(await trim(log)).toBe(9);
    await releaseCheckpoint(log, { id: "a", group: "one" });
    expect(await trim(log)).toBe(12);
    await releaseCheckpoint(log, { id: "c", group: "two" });
    await releaseCheckpoint(log, { id: "d", group: "three" });
    expect(await trim(log)).toBe(12);
    await registerCheckpoint(log, { id: "end", cursor: cursorAt(log, 20), group: "one" });
    expect(await trim(log)).toBe(20);
  });
});

describe("lag", () => {
  test("counts from the newest checkpoint of the slowest group, or from the trim", async () => {
    const { log } = await started(30);
    const lag = async (): Promise<unknown> => measureLag(await log.head.jump(), rows);
    expect(await lag()).toMatchObject({ steps: 30, from: 0, group: undefined });
    await registerCheckpoint(log, { id: "a", cursor: cursorAt(log, 10), group: "one" });
    await registerCheckpoint(log, { id: "b", cursor: cursorAt(log, 18), group: "one" });
    await registerCheckpoint(log, { id: "a", cursor: cursorAt(log, 15), group: "two" });
    expect(await lag()).toMatchObject({ steps: 15, from: 15, group: "two", groups: 2 });
    await releaseCheckpoint(log, { id: "a", group: "two" });
    expect(await lag()).toMatchObject({ steps: 12, from: 18, group: "one", groups: 1, interval: 8 });
  });
});
