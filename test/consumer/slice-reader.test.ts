/**
 * Property: no byte is handed out that fails its check; what can be cured by reading again is cured, what cannot is CORRUPT
 * naming object and place; memory and reads in flight keep to their limits, and few bytes are read beyond those wanted.
 * Method: a memory store that damages, cuts, delays and counts range reads.
 */
import { createHash } from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Consumer, type ConsumerSettings, openConsumer, type Share } from "../../src/consumer/index.js";
import { isBatchWeaveError } from "../../src/errors.js";
import { asStep, type Grid } from "../../src/format/index.js";
import { cellText, LogWriter, makeSpec, openLog, plain } from "./log-writer.js";
import { ManualEnv } from "./manual-env.js";
import { WatchedStore } from "./watched-store.js";

class World {
  readonly env = new ManualEnv();
  readonly store = new WatchedStore();
  readonly spec;
  readonly writer: LogWriter;

  constructor(grid: Grid) {
    this.spec = makeSpec(grid);
    this.writer = new LogWriter(openLog(this.store, this.env, this.spec));
  }

  async open(settings: ConsumerSettings = {}): Promise<Consumer> {
    return await this.env.drive(openConsumer(openLog(this.store, this.env, this.spec), settings));
  }

  async next(consumer: Consumer): Promise<Share> {
    return (await this.env.drive(consumer.next())).value as Share;
  }
}

function texts(share: Share): string[] {
  return share.slices.map(({ bytes }) => Buffer.from(bytes).toString());
}

async function failureOf(work: Promise<unknown>): Promise<{ code: string; message: string; details: object }> {
  try {
    await work;
  } catch (error) {
    if (isBatchWeaveError(error)) return error;
    throw error;
  }
  throw new Error("it did not fail");
}

describe("damage", () => {
  test("every single damaged byte of an object is noticed by whoever reads it, and never handed out", async () => {
    const world = new World({ rows: 2, chunks: 2 });
    const [key] = (await world.writer.append(0)) as [string];
    const pristine = (await world.store.get(key)) as Uint8Array;
    const expected = [0, 1].flatMap((row) => [0, 1].map((chunk) => cellText(0, row, chunk)));
    let refused = 0;
    for (let offset = 0; offset < pristine.length; offset++) {
      await world.store.damage(key, offset);
      const consumer = await world.open({ rowsPerRank: 2 });
      try {
        // Only the metadata block, which ranks do not read, may be damaged without notice.
        expect(texts(await world.next(consumer))).toEqual(expected);
      } catch (error) {
        if (!isBatchWeaveError(error, "CORRUPT")) throw error;
        expect(error.message).toContain(key);
        refused++;
      }
      await consumer.return();
      await world.store.put(key, pristine);
    }
    const place = await world.writer.log.locate(await world.writer.log.head.newest(), asStep(0));
    const table = place.descriptor.extents[0]?.table as number;
    const sliceBytes = expected.join("").length;
    expect(refused).toBe(sliceBytes + pristine.length - table);
  });

  test("a damaged slice names key, offset, expected and found; its neighbours are still read", async () => {
    const world = new World({ rows: 2, chunks: 1 });
    const [key] = (await world.writer.append(0)) as [string];
    const offset = cellText(0, 0, 0).length;
    await world.store.damage(key, offset + 3);
    const consumer = await world.open();
    expect(texts(await world.next(consumer))).toEqual([cellText(0, 0, 0)]);
    const { code, details } = await failureOf(world.next(consumer));
    expect(code).toBe("CORRUPT");
    expect(details).toMatchObject({ key, offset, expected: expect.any(Number), found: expect.any(Number) });
  });

  test("a truncated object is corrupt, wherever it ends", async () => {
    for (const keep of [0, 10, 0.5, -1]) {
      const world = new World({ rows: 2, chunks: 2 });
      const [key] = (await world.writer.append(0)) as [string];
      const size = (await world.store.get(key))?.length as number;
      await world.store.truncate(key, keep < 0 ? size + keep : keep < 1 ? Math.floor(size * keep) : keep);
      const consumer = await world.open();
      const { code, details } = await failureOf(world.next(consumer));
      expect([code, details]).toEqual(["CORRUPT", expect.objectContaining({ key })]);
    }
  });

  test("an encoding nobody knows is refused by name", async () => {
    const world = new World({ rows: 1, chunks: 1 });
    await world.writer.append(0, { slice: () => ({ bytes: Buffer.from("abc"), rawLength: 9, encoding: 77 }) });
    const { code, message } = await failureOf(world.next(await world.open()));
    expect(code).toBe("UNSUPPORTED_ENCODING");
    expect(message).toContain("77");
  });

  test("damage and short answers on the way are cured by reading again", async () => {
    const world = new World({ rows: 2, chunks: 1 });
    await world.writer.append(0);
    await world.writer.append(1);
    await world.writer.log.close();
    const seen = new Map<string, number>();
    world.store.interfere = (bytes, { key, start }) => {
      const id = `${key} ${start}`;
      const times = (seen.get(id) ?? 0) + 1;
      seen.set(id, times);
      if (!bytes || !key.startsWith("batch/")) return bytes;
      if (times === 1) return bytes.subarray(0, bytes.length - 1);
      if (times === 2) return bytes.subarray(0, 0);
      return times === 3 ? bytes.map((byte) => byte ^ 1) : bytes;
    };
    const consumer = await world.open();
    const found: string[] = [];
    await world.env.drive(
      (async () => {
        for await (const share of consumer) found.push(...texts(share));
      })(),
    );
    expect(found).toEqual([cellText(0, 0, 0), cellText(0, 1, 0), cellText(1, 0, 0), cellText(1, 1, 0)]);
    expect(new Set([...seen].filter(([id]) => id.startsWith("batch/")).map(([, times]) => times))).toEqual(
      new Set([4]),
    );
  });

  test("a store that fails surfaces at the next call, in order; asking again reads on", async () => {
    const world = new World({ rows: 1, chunks: 1 });
    const keys: string[] = [];
    for (let step = 0; step < 4; step++) keys.push(...(await world.writer.append(step)));
    const down = new Error("connection reset");
    let isDown = true;
    world.store.interfere = (bytes, { key }) => {
      if (isDown && key === keys[2]) throw down;
      return bytes;
    };
    const consumer = await world.open();
    expect(texts(await world.next(consumer))).toEqual([cellText(0, 0, 0)]);
    expect(texts(await world.next(consumer))).toEqual([cellText(1, 0, 0)]);
    await expect(world.next(consumer)).rejects.toBe(down);
    await expect(world.next(consumer)).rejects.toBe(down);
    isDown = false;
    expect(texts(await world.next(consumer))).toEqual([cellText(2, 0, 0)]);
    expect(texts(await world.next(consumer))).toEqual([cellText(3, 0, 0)]);
    await consumer.return();
  });
});

test("whatever the order in which reads come back, and whichever fail once, shares come in order and complete", async () => {
  const settings = fc.record({
    rowsPerRank: fc.integer({ min: 1, max: 4 }),
    prefetchIterationsMax: fc.integer({ min: 1, max: 8 }),
    prefetchBytesMax: fc.integer({ min: 1, max: 400 }),
    readsInFlightMax: fc.integer({ min: 1, max: 5 }),
    footerBytesMax: fc.constantFrom(0, 300, 10_000),
  });
  await fc.assert(
    fc.asyncProperty(settings, async (choice) => {
      const world = new World({ rows: 3, chunks: 1 });
      for (let step = 0; step < 4; step++) await world.writer.append(step, { cellsPerExtent: 1 + (step % 3) });
      await world.writer.log.close();
      world.store.interfere = async (bytes, _, options) => {
        await world.env.sleep(world.env.random() * 50, options?.signal);
        if (world.env.random() < 0.1) throw new Error("once");
        return bytes;
      };
      const consumer = await world.open(choice);
      const found: string[] = [];
      for (let isDone = false; !isDone; ) {
        const result = await world.env.drive(consumer.next()).catch(() => undefined);
        if (result && !result.done) found.push(...texts(result.value));
        isDone = result?.done === true;
      }
      const rows = 12 - (12 % choice.rowsPerRank);
      expect(found).toEqual(Array.from({ length: rows }, (_, n) => cellText(Math.floor(n / 3), n % 3, 0)));
      expect(world.store.inFlightMax).toBeLessThanOrEqual(choice.readsInFlightMax);
      expect(world.store.inFlight + world.env.pending).toBe(0);
    }),
    { numRuns: 40 },
  );
});

describe("limits", () => {
  const sized = (bytes: number) => (): ReturnType<typeof plain> => plain(new Uint8Array(bytes));

  test("adjacent slices are one read, and a footer is read once for all its iterations", async () => {
    const world = new World({ rows: 4, chunks: 4 });
    await world.writer.append(0);
    await world.writer.log.close();
    const consumer = await world.open({ rowsPerRank: 2 });
    await world.next(consumer);
    await world.next(consumer);
    expect((await consumer.next()).done).toBe(true);
    expect(world.store.batchCalls).toHaveLength(3);
    const zigzag = await world.open({ mesh: { dp: 1, cp: 2 }, rank: 0, layout: "zigzag", rowsPerRank: 4 });
    await world.next(zigzag);
    // Chunk 0 of a row, chunk 3 of it and chunk 0 of the next touch: five runs in four rows, and the footer.
    expect(world.store.batchCalls).toHaveLength(3 + 6);
  });

  test("reads in flight and bytes ahead are bounded; one share is always allowed", async () => {
    const world = new World({ rows: 4, chunks: 1 });
    for (let step = 0; step < 8; step++) await world.writer.append(step, { slice: sized(1_000) });
    await world.writer.log.close();
    const read = async (settings: ConsumerSettings): Promise<{ ahead: number; inFlight: number; shares: number }> => {
      const consumer = await world.open(settings);
      world.store.calls.length = 0;
      world.store.inFlightMax = 0;
      world.store.interfere = async (bytes) => {
        await world.env.sleep(5);
        return bytes;
      };
      let [ahead, shares, taken] = [0, 0, 0];
      for (let result = await world.env.drive(consumer.next()); !result.done; ) {
        shares++;
        taken += (result.value as Share).slices.length;
        // The trainer computes for a while; everything that may be read ahead is.
        await world.env.pass(10_000);
        const slices = world.store.batchCalls.filter(({ start }) => start < 4_000);
        ahead = Math.max(ahead, slices.reduce((sum, { length }) => sum + length, 0) - taken * 1_000);
        result = await world.env.drive(consumer.next());
      }
      return { ahead, inFlight: world.store.inFlightMax, shares };
    };
    expect(await read({ prefetchBytesMax: 3_500, readsInFlightMax: 2 })).toEqual({
      ahead: 3_000,
      inFlight: 2,
      shares: 32,
    });
    expect(await read({ prefetchBytesMax: 1, rowsPerRank: 4 })).toMatchObject({ ahead: 4_000, shares: 8 });
    const many = await read({ prefetchIterationsMax: 5, readsInFlightMax: 64 });
    expect(many.ahead).toBe(5_000);
  });

  test.each([
    [100_000, 8, 8, 1.1],
    [100_000, 32, 4, 1.1],
    [1_000_000, 8, 1, 1.02],
  ])("slices of %i bytes, %i rows: the bytes read are within %f of those wanted", async (bytes, rows, steps, max) => {
    const world = new World({ rows, chunks: 1 });
    const body = createHash("sha512").update("x").digest();
    const slice = new Uint8Array(bytes).map((_, i) => body[i % 64] as number);
    for (let step = 0; step < steps; step++) await world.writer.append(step, { slice: () => plain(slice) });
    await world.writer.log.close();
    world.store.bytesRead = 0;
    let wanted = 0;
    for (let rank = 0; rank < rows; rank++) {
      const consumer = await world.open({ mesh: { dp: rows }, rank });
      await world.env.drive(
        (async () => {
          for await (const share of consumer) for (const { bytes } of share.slices) wanted += bytes.length;
        })(),
      );
    }
    expect(wanted).toBe(rows * steps * bytes);
    expect(world.store.bytesRead / wanted).toBeLessThanOrEqual(max);
    expect(world.store.batchCalls).toHaveLength(2 * rows * steps);
  });
});
