/**
 * Property: whatever the mesh, all ranks together see each cell of the log once and in order with the right bytes, agree on
 * iterations and on the end, resume anywhere from a cursor, and wait or fail with words that help. Method: batches in a memory store,
 * real consumers on a clock that the test moves.
 */
import { describe, expect, test } from "vitest";
import {
  type Consumer,
  type ConsumerParts,
  type ConsumerSettings,
  openConsumer,
  type PollEvent,
  type Share,
  type ShareEvent,
  type WaitEvent,
} from "../../src/consumer/index.js";
import { isBatchWeaveError } from "../../src/errors.js";
import { type Grid, makeCursor, type Order, parseCursor } from "../../src/format/index.js";
import { cellText, commitTrim, LogWriter, makeSpec, openLog, saved, uuid } from "./log-writer.js";
import { ManualEnv } from "./manual-env.js";
import { WatchedStore } from "./watched-store.js";

class World {
  readonly env = new ManualEnv();
  readonly store = new WatchedStore();
  readonly spec;
  readonly writer: LogWriter;

  constructor(grid: Grid, order?: Order) {
    this.spec = makeSpec(grid, order);
    this.writer = new LogWriter(openLog(this.store, this.env, this.spec));
  }

  async write(count: number, from = 0): Promise<void> {
    for (let step = from; step < from + count; step++) await this.writer.append(step);
  }

  /** A consumer with a log of its own, as in another process. */
  async open(settings: ConsumerSettings = {}, parts: ConsumerParts = {}): Promise<Consumer> {
    return await this.env.drive(openConsumer(openLog(this.store, this.env, this.spec), settings, parts));
  }

  async all(settings: ConsumerSettings): Promise<{ shares: Share[]; consumer: Consumer }> {
    const consumer = await this.open(settings);
    const shares = await this.env.drive(collect(consumer));
    return { shares, consumer };
  }
}

async function collect(consumer: AsyncIterable<Share>): Promise<Share[]> {
  const shares: Share[] = [];
  for await (const share of consumer) shares.push(share);
  return shares;
}

/** Asserts that the bytes are those of the cells, and gives the cells as global numbers. */
function checkedCells(share: Share, { rows, chunks }: Grid): number[] {
  return share.slices.map(({ step, row, chunk, bytes }) => {
    expect(Buffer.from(bytes).toString()).toBe(cellText(step, row, chunk));
    return (step * rows + row) * chunks + chunk;
  });
}

async function codeOf(work: Promise<unknown>): Promise<{ code: string; message: string; details: object }> {
  try {
    await work;
  } catch (error) {
    if (isBatchWeaveError(error)) return error;
    throw error;
  }
  throw new Error("it did not fail");
}

describe("all ranks together", () => {
  const cases: [string, Grid, ConsumerSettings, number][] = [
    ["per-rank", { rows: 4, chunks: 2 }, { mesh: { dp: 3, cp: 2, tp: 2 } }, 20 % 3],
    ["three rows each", { rows: 4, chunks: 1 }, { mesh: { dp: 2 }, rowsPerRank: 3 }, 20 % 6],
    [
      "a ramp",
      { rows: 4, chunks: 1 },
      {
        mesh: { dp: 2 },
        rowsPerRank: [
          [0, 1],
          [3, 2],
        ],
      },
      20 - 6 - 12,
    ], // 3 x 2, 3 x 4
    ["whole batches", { rows: 4, chunks: 4 }, { mesh: { dp: 2, cp: 2 }, policy: "global-batch" }, 0],
    ["zigzag", { rows: 4, chunks: 8 }, { mesh: { dp: 4, cp: 2, pp: 2 }, layout: "zigzag" }, 0],
  ];
  test.each(cases)("%s: each cell once, in order, the same end and leftovers", async (_, grid, settings, leftover) => {
    const world = new World(grid);
    await world.write(5);
    await world.writer.log.close();
    const ranks = [];
    const size = Object.values(settings.mesh ?? {}).reduce((a, b) => Number(a) * Number(b), 1) as number;
    for (let rank = 0; rank < size; rank++) ranks.push(await world.all({ ...settings, rank }));
    const iterations = ranks[0]?.shares.length as number;
    const { tp = 1, pp = 1 } = settings.mesh ?? {};
    for (const { shares, consumer } of ranks) {
      expect(shares.map((share) => share.iteration)).toEqual(Array.from({ length: iterations }, (_, i) => i));
      expect(consumer.leftoverRows).toBe(leftover);
    }
    let expected = 0;
    for (let i = 0; i < iterations; i++) {
      const shares = ranks.map(({ shares }) => shares[i] as Share);
      const cells = shares.flatMap((share) => checkedCells(share, grid));
      const unique = [...new Set(cells)].sort((a, b) => a - b);
      expect(unique).toEqual(Array.from({ length: unique.length }, (_, n) => expected + n));
      expect(cells).toHaveLength(unique.length * tp * pp);
      expect(new Set(shares.map((share) => saved(share.next))).size).toBe(1);
      expected += unique.length;
    }
    expect(expected).toBe((5 * grid.rows - leftover) * grid.chunks);
  });

  test("a batch in several objects is read like one in a single object", async () => {
    const grid = { rows: 4, chunks: 2 };
    const world = new World(grid);
    for (const [step, cellsPerExtent] of [3, 1, 8, 5].entries()) await world.writer.append(step, { cellsPerExtent });
    await world.writer.log.close();
    const { shares } = await world.all({ rowsPerRank: 3 });
    expect(shares.flatMap((share) => checkedCells(share, grid))).toEqual(Array.from({ length: 30 }, (_, n) => n));
  });

  test("hundreds of steps, most of them in sealed segments", async () => {
    const grid = { rows: 2, chunks: 1 };
    const world = new World(grid);
    await world.write(150);
    await world.writer.log.close();
    const { shares } = await world.all({});
    expect(shares.flatMap((share) => checkedCells(share, grid))).toEqual(Array.from({ length: 300 }, (_, n) => n));
  });
});

describe("cursors", () => {
  const grid = { rows: 8, chunks: 2 };

  test("8 ranks, then 6, then 1 with whole batches: nothing lost, nothing twice", async () => {
    const world = new World(grid);
    await world.write(6);
    await world.writer.log.close();
    const seen: number[] = [];
    let from: ConsumerSettings["from"] = "earliest";
    for (const [dp, iterations] of [
      [8, 2],
      [6, 2],
      [4, 1],
    ] as const) {
      let next = "";
      for (let rank = 0; rank < dp; rank++) {
        const consumer = await world.open({ mesh: { dp }, rank, from });
        for (let i = 0; i < iterations; i++) {
          const { value } = await world.env.drive(consumer.next());
          seen.push(...checkedCells(value as Share, grid));
          next = saved((value as Share).next);
        }
        expect(saved(consumer.cursor)).toBe(next);
        await consumer.return();
      }
      from = parseCursor(next);
    }
    const { shares } = await world.all({ from, policy: "global-batch" });
    expect(shares.map((share) => share.iteration)).toEqual([5, 6]);
    for (const share of shares) seen.push(...checkedCells(share, grid));
    expect(seen.sort((a, b) => a - b)).toEqual(Array.from({ length: 6 * 16 }, (_, n) => n));
  });

  test("a share's own cursor gives that very share again", async () => {
    const world = new World(grid);
    await world.write(3);
    await world.writer.log.close();
    const { shares } = await world.all({ rowsPerRank: 5 });
    for (const share of shares) {
      const again = await world.open({ rowsPerRank: 5, from: share.cursor });
      expect((await world.env.drive(again.next())).value).toEqual(share);
      await again.return();
    }
  });

  test("steps, rows, earliest and latest", async () => {
    const world = new World(grid);
    await world.write(4);
    await commitTrim(world.writer.log, 1);
    const rowOf = async (from: ConsumerSettings["from"]): Promise<number> => (await world.open({ from })).cursor.row;
    expect(await rowOf("earliest")).toBe(8);
    expect(await rowOf("latest")).toBe(32);
    expect(await rowOf({ step: 2 })).toBe(16);
    expect(await rowOf({ row: 19 })).toBe(19);
    expect((await world.open({ from: { row: 19, iteration: 7 } })).cursor.iteration).toBe(7);
    expect((await codeOf(rowOf({ step: -1 }))).code).toBe("INVALID_ARGUMENT");
    expect((await codeOf(rowOf("somewhere" as never))).code).toBe("INVALID_ARGUMENT");
    expect((await codeOf(rowOf({} as never))).code).toBe("INVALID_ARGUMENT");
  });

  test("a cursor of another namespace is refused, unless it is accepted", async () => {
    const world = new World(grid);
    await world.write(1);
    const from = makeCursor("6f9619ff-8b86-4d01-b42d-00cf4fc964ff", 3, 1);
    const { code, message } = await codeOf(world.open({ from }));
    expect(code).toBe("WRONG_NAMESPACE");
    expect(message).toContain(uuid);
    const parts: ConsumerParts = { acceptCursor: (cursor) => makeCursor(uuid, cursor.row + 1, cursor.iteration) };
    expect((await world.open({ from }, parts)).cursor.row).toBe(4);
    expect((await codeOf(world.open({ from }, { acceptCursor: () => undefined }))).code).toBe("WRONG_NAMESPACE");
  });

  test("a mesh, a policy or a start that cannot work is refused when opening", async () => {
    const world = new World(grid);
    await world.write(2);
    expect((await codeOf(world.open({ mesh: { cp: 3 } }))).code).toBe("MESH_MISMATCH");
    expect((await codeOf(world.open({ mesh: { dp: 2 }, rank: 2 }))).code).toBe("MESH_MISMATCH");
    expect((await codeOf(world.open({ policy: "global-batch", from: { row: 3 } }))).message).toMatch(/row 0 .* row 8/);
    expect((await codeOf(world.open({ prefetchBytesMax: 0 }))).message).toMatch(/prefetchBytesMax/);
    const placed = await world.open({}, { environment: { RANK: "1", WORLD_SIZE: "2" } });
    expect(placed.place.d).toBe(1);
  });
});

describe("reclaim", () => {
  const grid = { rows: 2, chunks: 1 };

  test("a start past the end of a closed log is refused, by row, step or cursor; its end is not", async () => {
    const world = new World(grid);
    await world.write(3);
    await world.writer.log.close();
    for (const from of [{ step: 4 }, { row: 7 }, makeCursor(uuid, 7, 2)]) {
      const { code, message } = await codeOf(world.open({ from }));
      expect(code).toBe("INVALID_ARGUMENT");
      expect(message).toMatch(/will never exist: the log is closed and its last row is 5 \(step 2\)/);
    }
    expect((await world.all({ from: { step: 3 } })).shares).toEqual([]);
  });

  test("a start behind the trim names the oldest row left", async () => {
    const world = new World(grid);
    await world.write(5);
    await commitTrim(world.writer.log, 3);
    const { code, message } = await codeOf(world.open({ from: makeCursor(uuid, 4, 2) }));
    expect(code).toBe("RECLAIMED");
    expect(message).toMatch(/Row 4 \(step 2\) was reclaimed; the oldest row left is 6 \(step 3\)/);
  });

  test("a reader that is overtaken learns it, and gets no wrong bytes", async () => {
    const world = new World(grid);
    const keys: string[] = [];
    for (let step = 0; step < 5; step++) keys.push(...(await world.writer.append(step)));
    const consumer = await world.open({ prefetchIterationsMax: 1, from: "earliest" });
    const first = (await world.env.drive(consumer.next())).value as Share;
    expect(checkedCells(first, grid)).toEqual([0]);
    await commitTrim(world.writer.log, 3);
    await world.store.delete(keys.slice(0, 3));
    const found: number[] = [];
    const { code, message } = await codeOf(
      world.env.drive(
        (async () => {
          for await (const share of consumer) found.push(...checkedCells(share, grid));
        })(),
      ),
    );
    expect(code).toBe("RECLAIMED");
    expect(message).toContain("the oldest row left is 6");
    // What was read ahead of the reclaim may still be handed out.
    expect(found.length).toBeLessThanOrEqual(1);
  });

  test("an object that is gone although the log promises it is missing, not reclaimed", async () => {
    const world = new World(grid);
    await world.write(2);
    const [key] = await world.writer.append(2);
    await world.store.delete([key as string]);
    const consumer = await world.open();
    for (let i = 0; i < 4; i++) await world.env.drive(consumer.next());
    const { code, message } = await codeOf(world.env.drive(consumer.next()));
    expect(code).toBe("MISSING_OBJECT");
    expect(message).toContain(key);
    await consumer.return();
  });
});

describe("waiting", () => {
  const grid = { rows: 1, chunks: 1 };

  test("shares come as they are committed, and polls stop while steps are visible", async () => {
    const world = new World(grid);
    await world.write(3);
    const polls: PollEvent[] = [];
    const waits: WaitEvent[] = [];
    const shares: ShareEvent[] = [];
    const observer = {
      onPoll: (event: PollEvent): unknown => polls.push(event),
      onWait: (event: WaitEvent): unknown => waits.push(event),
      onShare: (event: ShareEvent): unknown => shares.push(event),
    };
    const consumer = await world.open({ prefetchIterationsMax: 2 }, { observer });
    await world.env.drive(consumer.next());
    expect([polls.length, waits.length]).toEqual([0, 0]);
    await world.env.drive(consumer.next());
    await world.env.drive(consumer.next());
    const pending = consumer.next();
    await world.env.pass(5_000);
    expect(waits).toEqual([{ iteration: 3, step: 3 }]);
    // Backed off to a second: about one look a second, not a hundred.
    const before = polls.length;
    await world.env.pass(20_000);
    expect(polls.length - before).toBeGreaterThanOrEqual(12);
    expect(polls.length - before).toBeLessThanOrEqual(42);
    await world.writer.append(3);
    const { value } = await world.env.drive(pending);
    expect(checkedCells(value as Share, grid)).toEqual([3]);
    expect(shares.at(-1)?.waitMs).toBeGreaterThanOrEqual(25_000);
    expect(shares.at(-1)?.waitMs).toBeLessThanOrEqual(26_600);
    await consumer.return();
    expect(world.env.pending).toBe(0);
  });

  test("a reader that fell far behind jumps to the head instead of reading every manifest", async () => {
    const world = new World(grid);
    const consumer = await world.open({ from: { step: 60 } });
    await world.write(61);
    const versions: number[] = [];
    const { get } = world.store;
    world.store.get = (key, options) => {
      if (key.startsWith("manifest/")) versions.push(Number(key.slice(9, 29)));
      return get.call(world.store, key, options);
    };
    expect(checkedCells((await world.env.drive(consumer.next())).value as Share, grid)).toEqual([60]);
    await consumer.return();
    expect(versions.length).toBeLessThan(10);
  });

  test("too long a wait fails with the step, the head, the idle time and the producers; asking again goes on", async () => {
    const world = new World(grid);
    await world.write(2);
    const consumer = await world.open({ from: "latest", waitTimeoutMs: 30_000, mesh: { dp: 3 }, rank: 1 });
    const begun = world.env.now();
    const { code, message, details } = await codeOf(world.env.drive(consumer.next()));
    expect(code).toBe("WAIT_TIMEOUT");
    expect(world.env.now() - begun).toBe(30_000);
    expect(message).toMatch(/Waited 30 s for step 2 to 4 \(iteration 0\): the head is version 3 with steps up to 1/);
    expect(message).toMatch(/nothing was committed for 30 s\. Producers, by their last commit: p \(version 3\)\./);
    expect(message).toMatch(/Check that producers run/);
    expect(details).toMatchObject({ missing: 2, lastStep: 4, version: 3 });
    // Nothing polls once it has failed.
    expect(world.env.pending).toBe(0);
    await world.write(3, 2);
    const { value } = await world.env.drive(consumer.next());
    expect(checkedCells(value as Share, grid)).toEqual([3]);
    await consumer.return();
  });

  test("in lanes it names the dead lane", async () => {
    const world = new World(grid, { kind: "lanes", lanes: 3 });
    const lane = (k: number): LogWriter => new LogWriter(openLog(world.store, world.env, world.spec), `lane-${k}`);
    const [zero, two] = [lane(0), lane(2)];
    await zero.append(0);
    await two.append(2);
    const consumer = await world.open({ waitTimeoutMs: 1_000 });
    expect(checkedCells((await world.env.drive(consumer.next())).value as Share, grid)).toEqual([0]);
    const first = await codeOf(world.env.drive(consumer.next()));
    expect(first.message).toMatch(/1 batches of other lanes wait behind it.*lane-1's, which has never committed/);
    expect(first.details).toMatchObject({ missing: 1, lane: "lane-1" });
    await lane(1).append(1);
    expect(checkedCells((await world.env.drive(consumer.next())).value as Share, grid)).toEqual([1]);
    expect(checkedCells((await world.env.drive(consumer.next())).value as Share, grid)).toEqual([2]);
    expect((await codeOf(world.env.drive(consumer.next()))).details).toMatchObject({ missing: 3, lane: "lane-0" });
  });

  test("an empty namespace says that nobody ever produced", async () => {
    const world = new World(grid);
    const consumer = await world.open({ waitTimeoutMs: 100 });
    expect((await codeOf(world.env.drive(consumer.next()))).message).toMatch(/No producer has ever opened/);
  });

  test("a log that is closed while a rank waits ends it, with its leftovers", async () => {
    const world = new World({ rows: 2, chunks: 1 });
    await world.write(1);
    const consumer = await world.open({ mesh: { dp: 3 }, rank: 0 });
    const pending = consumer.next();
    await world.env.pass(2_000);
    expect(consumer.leftoverRows).toBeUndefined();
    await world.writer.log.close();
    expect(await world.env.drive(pending)).toEqual({ done: true, value: undefined });
    expect(consumer.leftoverRows).toBe(2);
    expect((await consumer.next()).done).toBe(true);
    expect(world.env.pending).toBe(0);
  });
});

describe("ending early", () => {
  const grid = { rows: 1, chunks: 1 };

  test("an abort rejects with its own reason and stops everything", async () => {
    const world = new World(grid);
    const abort = new AbortController();
    const consumer = await world.open({}, { signal: abort.signal });
    const pending = consumer.next();
    await world.env.pass(300);
    const reason = new Error("the job is over");
    abort.abort(reason);
    await expect(world.env.drive(pending)).rejects.toBe(reason);
    await expect(consumer.next()).rejects.toBe(reason);
    expect(world.env.pending).toBe(0);
  });

  test("an abort between two calls stops reading ahead", async () => {
    const world = new World(grid);
    await world.write(1);
    const abort = new AbortController();
    const consumer = await world.open({}, { signal: abort.signal });
    await world.env.drive(consumer.next());
    await world.env.pass(100);
    expect(world.env.pending).toBe(1);
    abort.abort();
    await world.env.pass(0);
    expect(world.env.pending).toBe(0);
  });

  test("a signal of one call ends only that wait", async () => {
    const world = new World(grid);
    const consumer = await world.open();
    const abort = new AbortController();
    const pending = consumer.next({ signal: abort.signal });
    await world.env.pass(300);
    abort.abort("enough");
    await expect(pending).rejects.toBe("enough");
    await world.write(1);
    expect(checkedCells((await world.env.drive(consumer.next())).value as Share, grid)).toEqual([0]);
    await consumer.return();
  });

  test("leaving the loop cancels what is in flight; a pending call ends", async () => {
    const world = new World(grid);
    await world.write(1);
    const consumer = await world.open();
    for await (const share of { [Symbol.asyncIterator]: () => consumer }) {
      expect(share.iteration).toBe(0);
      break;
    }
    expect(world.env.pending).toBe(0);
    expect((await consumer.next()).done).toBe(true);
    const other = await world.open({ from: "latest" });
    const pending = other.next();
    await world.env.pass(100);
    await other[Symbol.asyncDispose]();
    expect((await pending).done).toBe(true);
    expect(world.env.pending).toBe(0);
  });
});
