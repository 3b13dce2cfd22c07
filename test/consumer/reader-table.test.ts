/**
 * Property: reading costs exactly the requests it is meant to, and what it gets is what was meant: short, damaged, failed and missing reads are tried as often as they may be, tables are kept within
 * their bytes, a waiting reader looks and jumps when it should, and nothing listens any more at the end. Method: one batch object behind a store that is scripted; a log that grows between looks.
 */
import { getEventListeners } from "node:events";
import { describe, expect, test } from "vitest";
import { openConsumer } from "../../src/consumer/index.js";
import { SliceReader } from "../../src/consumer/slice-reader.js";
import { StepReader } from "../../src/consumer/step-reader.js";
import { untilVisible } from "../../src/consumer/visibility.js";
import { BatchWeaveError } from "../../src/errors.js";
import {
  asEpoch,
  asSeq,
  asStep,
  asVersion,
  type BatchName,
  batchKey,
  type Descriptor,
  type Extent,
  encodeExtent,
  encodeSlice,
  genesisManifest,
  sealSlices,
} from "../../src/format/index.js";
import { commitMaxLag, reclaim, registerCheckpoint } from "../../src/lifecycle/index.js";
import type { Log } from "../../src/log/index.js";
import type { ObjectStore } from "../../src/store/index.js";
import { cursorAt, SmallWorld, Writer } from "../lifecycle/small-world.js";
import { open, QuarterEnv, spec } from "../log/scripted-log.js";

const name = (seq: number): BatchName => ({
  ...{ producer: "p", epoch: asEpoch(1), seq: asSeq(seq), incarnation: "0123456789ab" },
  ...{ attempt: 0, base: asVersion(0) },
});
const manifest = genesisManifest(spec);
const options = { priority: 1, signal: undefined };

/** Batches whose objects are in memory, one cell an object unless told, and a reader of them. */
class Shelf {
  readonly objects = new Map<string, Buffer>();
  readonly seen: string[] = [];
  readonly env = new QuarterEnv();
  readonly descriptors: Descriptor[] = [];
  /** Instead of the next reads. */
  readonly answers: ((bytes: Buffer | undefined) => Buffer | undefined)[] = [];
  readonly reader: SliceReader;

  constructor(rows: number, settings = { readsInFlightMax: 8, footerBytesMax: 1_000_000 }) {
    const store = {
      uri: "memory:shelf",
      getRange: async (key: string, start: number, length: number) => {
        this.seen.push(
          `${/-(\d+)-[^-]*$/.exec(key)?.[1]}${/\.\d+\.tgb$/.exec(key)?.[0].slice(0, 2)} ${start}+${length}`,
        );
        const bytes = this.objects.get(key)?.subarray(start, start + length);
        const answer = this.answers.shift();
        return answer ? answer(bytes) : bytes;
      },
    } as unknown as ObjectStore;
    const log = {
      env: this.env,
      spec: { ...spec, grid: { rows, chunks: 1 } },
      locate: async (_: unknown, step: number) => ({ descriptor: this.descriptors[step], store, namespace: spec.uuid }),
    } as unknown as Log;
    this.reader = new SliceReader(log, settings);
  }

  add(cellsOfExtents: readonly Uint8Array[][], isSealed = false): Descriptor {
    const seq = this.descriptors.length;
    const all = cellsOfExtents.flat().map((bytes) => encodeSlice(bytes, "none"));
    const { slices, stride } = isSealed ? sealSlices(spec.uuid, name(seq), all) : { slices: all, stride: undefined };
    const extents: Extent[] = [];
    let firstCell = 0;
    for (const [extent, cells] of cellsOfExtents.entries()) {
      const run = slices.slice(firstCell, firstCell + cells.length);
      const { body, entry } = encodeExtent(spec.uuid, name(seq), { extent, firstCell }, run, {});
      this.objects.set(batchKey(name(seq), extent), Buffer.concat(body));
      extents.push(entry);
      firstCell += cells.length;
    }
    const descriptor = { ...name(seq), extents, ...(stride === undefined ? {} : { stride }) };
    this.descriptors.push(descriptor);
    return descriptor;
  }

  prepare(...cells: readonly (readonly [step: number, row: number])[]) {
    return this.reader.prepare(
      manifest,
      cells.map(([step, row]) => ({ step: asStep(step), row, chunk: 0 })),
      options,
    );
  }

  async read(...cells: readonly (readonly [step: number, row: number])[]): Promise<string[]> {
    const slices = await this.reader.fetch(await this.prepare(...cells), options);
    return slices.map(({ step, row, bytes }) => `${step}.${row} ${Buffer.from(bytes)}`);
  }

  taken(): string[] {
    return this.seen.splice(0);
  }
}

const text = (value: string): Uint8Array => Buffer.from(value);
const corrupt = expect.objectContaining({ code: "CORRUPT" });

describe("slices", () => {
  test("of several objects: a table each, then one range for those that touch", async () => {
    const shelf = new Shelf(5);
    const { extents } = shelf.add([
      [text("ab"), text("cde")],
      [text("f"), text(""), text("gh")],
    ]);
    const table = (i: number): string =>
      `0.${i} ${extents[i]?.table}+${(extents[i]?.size ?? 0) - (extents[i]?.table ?? 0)}`;
    expect(await shelf.read([0, 0], [0, 1])).toEqual(["0.0 ab", "0.1 cde"]);
    expect(shelf.taken()).toEqual([table(0), "0.0 0+5"]);
    expect(await shelf.read([0, 4], [0, 1], [0, 2])).toEqual(["0.4 gh", "0.1 cde", "0.2 f"]);
    expect(shelf.taken()).toEqual(
      [table(1), "0.1 1+2", "0.1 0+1", "0.0 2+3"].sort((a, b) => Number(b === table(1)) - Number(a === table(1))),
    );
    expect(await shelf.read([0, 3])).toEqual(["0.3 "]);
    expect(shelf.taken()).toEqual([]);
    expect((await shelf.prepare([0, 0], [0, 4])).bytes).toBe(4);
    await expect(shelf.read([0, 5])).rejects.toEqual(corrupt);
  });

  test("a short read is tried four times, later and later; a damaged one twice; one that is missing once", async () => {
    const shelf = new Shelf(1);
    shelf.add([[text("abcdef")]]);
    await shelf.read([0, 0]);
    shelf.taken();
    const short = (bytes: Buffer | undefined) => bytes?.subarray(0, 3);
    const flipped = (bytes: Buffer | undefined) => bytes?.map((byte) => byte ^ 1) as Buffer;
    shelf.answers.push(short, short, short);
    expect(await shelf.read([0, 0])).toEqual(["0.0 abcdef"]);
    expect(shelf.env.sleeps).toEqual([37.5, 75, 150]);
    shelf.answers.push(short, short, short, short);
    await expect(shelf.read([0, 0])).rejects.toEqual(corrupt);
    expect(shelf.taken()).toHaveLength(8);
    shelf.answers.push(flipped);
    expect(await shelf.read([0, 0])).toEqual(["0.0 abcdef"]);
    shelf.answers.push(flipped, flipped);
    await expect(shelf.read([0, 0])).rejects.toEqual(corrupt);
    expect(shelf.taken()).toHaveLength(4);
    shelf.answers.push(() => undefined);
    await expect(shelf.read([0, 0])).rejects.toMatchObject({ code: "MISSING_OBJECT" });
    const denied = new BatchWeaveError("STORE_DENIED", "denied", {});
    shelf.answers.push(() => {
      throw denied;
    });
    await expect(shelf.read([0, 0])).rejects.toBe(denied);
    expect(shelf.taken()).toHaveLength(2);
  });

  test("tables are kept within their bytes, the ones used last longest", async () => {
    const first = new Shelf(1);
    const { extents } = first.add([[text("a")]]);
    const bytes = (extents[0]?.size ?? 0) - (extents[0]?.table ?? 0) + 2_048;
    const shelf = new Shelf(1, { readsInFlightMax: 8, footerBytesMax: 2 * bytes });
    for (let i = 0; i < 4; i++) shelf.add([[text("a")]]);
    const tables = async (...steps: readonly number[]): Promise<number[]> => {
      for (const step of steps) await shelf.prepare([step, 0]);
      return shelf.taken().map((line) => Number(line.split(".")[0]));
    };
    expect(await tables(0, 1, 0, 1)).toEqual([0, 1]);
    expect(await tables(0, 2, 0, 2)).toEqual([2]);
    expect(await tables(1, 2, 0)).toEqual([1, 0]);
    const none = new Shelf(1, { readsInFlightMax: 8, footerBytesMax: 2 * bytes - 1 });
    for (let i = 0; i < 2; i++) none.add([[text("a")]]);
    for (const step of [0, 1, 1, 0, 0]) await none.prepare([step, 0]);
    expect(none.taken().map((line) => line.split(".")[0])).toEqual(["0", "1", "0"]);
  });

  test("a table that one failed to read is read again by whoever waited for it, and is not kept", async () => {
    const shelf = new Shelf(1);
    shelf.add([[text("a")]]);
    const denied = new BatchWeaveError("STORE_DENIED", "denied", {});
    shelf.answers.push(() => {
      throw denied;
    });
    const both = await Promise.allSettled([shelf.prepare([0, 0]), shelf.prepare([0, 0])]);
    expect(both.map(({ status }) => status)).toEqual(["rejected", "fulfilled"]);
    expect(shelf.taken()).toHaveLength(2);
    await shelf.prepare([0, 0]);
    expect(shelf.taken()).toEqual([]);
  });

  test("a read that fails late takes nobody else's table with it", async () => {
    const shelf = new Shelf(1, { readsInFlightMax: 8, footerBytesMax: 0 });
    for (let i = 0; i < 2; i++) shelf.add([[text("a")]]);
    let fail: () => void = () => {};
    const late = new Promise<never>((_, reject) => {
      fail = () => reject(new BatchWeaveError("STORE_DENIED", "denied", {}));
    });
    shelf.answers.push(() => late as never);
    const first = shelf.prepare([0, 0]).catch(({ code }) => code);
    // Its place is given up for another table, and then it is read again by somebody else.
    await shelf.prepare([1, 0]);
    await shelf.prepare([0, 0]);
    fail();
    expect(await first).toBe("STORE_DENIED");
    shelf.taken();
    await shelf.prepare([0, 0]);
    expect(shelf.taken()).toEqual([]);
  });

  test("sealed ones need no table, and must fit before it", async () => {
    const shelf = new Shelf(2);
    const cells = ["x", "y"].map((letter) => text(letter.repeat(5_000)));
    const descriptor = shelf.add([cells], true);
    expect(descriptor.stride).toBe(5_008);
    expect((await shelf.read([0, 1]))[0]?.slice(0, 6)).toBe("0.1 yy");
    expect(shelf.taken()).toEqual(["0.0 5008+5008"]);
    const prepared = await shelf.prepare([0, 1]);
    const part = (offset: number, length: number) => shelf.reader.fetchParts(prepared, [{ offset, length }], options);
    expect(Buffer.from((await part(4_998, 2))[0] as Uint8Array).toString()).toBe("yy");
    await expect(part(4_999, 2)).rejects.toEqual(corrupt);
    const [extent] = descriptor.extents as [Extent];
    const at = async (table: number): Promise<unknown> => {
      shelf.descriptors[0] = { ...descriptor, extents: [{ ...extent, table }] };
      return await shelf.prepare([0, 1]).then(
        () => "fits",
        ({ code }) => code,
      );
    };
    expect([await at(2 * 5_008), await at(2 * 5_008 - 1)]).toEqual(["fits", "CORRUPT"]);
  });

  test("parts of a slice are within it", async () => {
    const shelf = new Shelf(2);
    shelf.add([[text("abc"), text("defgh")]]);
    const prepared = await shelf.prepare([0, 1]);
    shelf.taken();
    const parts = await shelf.reader.fetchParts(
      prepared,
      [
        { offset: 1, length: 2 },
        { offset: 4, length: 1 },
        { offset: 5, length: 0 },
      ],
      options,
    );
    expect(parts.map((part) => Buffer.from(part).toString())).toEqual(["ef", "h", ""]);
    expect(shelf.taken()).toEqual(["0.0 4+2", "0.0 7+1"]);
    for (const wrong of [
      { offset: 4, length: 2 },
      { offset: 5, length: 1 },
    ])
      await expect(shelf.reader.fetchParts(prepared, [wrong], options)).rejects.toEqual(corrupt);
  });
});

describe("waiting for a step", () => {
  test("looks one by one, jumps after four moves in a row, and pauses longer and longer while nothing comes", async () => {
    const { script, env, log, other } = open();
    const writer = new Writer(other);
    await log.head.load();
    script.taken();
    const lists = (): number => script.taken().filter((line) => line.startsWith("list")).length;
    const wait = (last: number) =>
      untilVisible(log, { first: last, last, row: 2 * last }, { pollDelayMs: 100, pollDelayMsMax: 300 }, {});
    // Six versions without a step, then one with it: four looks, then a jump.
    for (let i = 1; i <= 6; i++) await commitMaxLag(other, i);
    await writer.write(1);
    expect((await wait(0))?.steps.end).toBe(1);
    expect([lists(), env.sleeps]).toEqual([1, []]);
    // Nothing for three looks, then four versions, the last with the step: no jump.
    let looks = 0;
    const grow = async (inner: () => Promise<unknown>): Promise<unknown> => {
      if (++looks === 4) {
        for (let i = 1; i <= 3; i++) await commitMaxLag(other, 10 + i);
        await writer.write(1);
      }
      return await inner();
    };
    script.next(/^get manifest/, grow, 4);
    expect((await wait(1))?.steps.end).toBe(2);
    expect([lists(), env.sleeps]).toEqual([0, [75, 112.5, 168.75]]);
    env.sleeps.length = 0;
    looks = -3;
    script.next(/^get manifest/, grow, 9);
    expect((await wait(2))?.steps.end).toBe(3);
    expect(env.sleeps).toEqual([75, 112.5, 168.75, 225, 225, 225, 225].slice(0, env.sleeps.length));
    expect(env.sleeps.length).toBeGreaterThan(5);
    script.answers.length = 0;
    await other.close();
    expect(await wait(3)).toBeUndefined();
    expect((await wait(2))?.closed).toBe(true);
  });

  test("of a step that was reclaimed says which row, from wherever it is asked", async () => {
    const world = new SmallWorld();
    const log = await world.create("memory:reclaimed");
    await new Writer(log).write(8);
    const readers = [1, 2, 3].map(() => new StepReader(world.open("memory:reclaimed", log.spec)));
    const [first, second, third] = readers as [StepReader, StepReader, StepReader];
    expect(first.end).toBe(0);
    for (const reader of readers) expect(await reader.reach(3)).toBe(true);
    expect(first.end).toBe(8);
    await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 6) });
    await reclaim(log, { graceMs: 0, keepVersions: 1 });
    const late = new StepReader(world.open("memory:reclaimed", log.spec));
    await expect(late.reach(5)).rejects.toMatchObject({ code: "RECLAIMED", details: { row: 10, oldestRow: 12 } });
    expect(await late.reach(6)).toBe(true);
    const gone = { code: "RECLAIMED", details: { row: 11, oldestRow: 12 } };
    await expect(first.slice({ step: 5, row: 1, chunk: 0 })).rejects.toMatchObject(gone);
    await expect(second.sliceBytes({ step: 5, row: 1, chunk: 0 })).rejects.toMatchObject(gone);
    await expect(third.parts({ step: 5, row: 1, chunk: 0 }, [{ offset: 0, length: 1 }])).rejects.toMatchObject(gone);
    const bytes = await late.slice({ step: 7, row: 1, chunk: 0 });
    expect(await late.sliceBytes({ step: 7, row: 1, chunk: 0 })).toBe(bytes.length);
    const [part] = await late.parts({ step: 7, row: 1, chunk: 0 }, [{ offset: 2, length: 3 }]);
    expect(part).toEqual(bytes.subarray(2, 5));
  });
});

describe("a consumer", () => {
  async function closedLog(): Promise<{ world: SmallWorld; log: Log }> {
    const world = new SmallWorld();
    const log = await world.create("memory:consumer");
    await new Writer(log).write(3);
    await log.close();
    return { world, log };
  }

  test("listens to nothing any more when the log has ended, or it was closed", async () => {
    const { world, log } = await closedLog();
    const stop = new AbortController();
    const ended = await openConsumer(
      world.open("memory:consumer", log.spec),
      { mesh: { dp: 1 }, rank: 0 },
      { signal: stop.signal },
    );
    for await (const _ of ended);
    expect([ended.leftoverRows, getEventListeners(stop.signal, "abort").length]).toEqual([0, 0]);
    const closed = await openConsumer(
      world.open("memory:consumer", log.spec),
      { mesh: { dp: 1 }, rank: 0 },
      { signal: stop.signal },
    );
    await closed.next();
    await closed.return();
    expect(getEventListeners(stop.signal, "abort").length).toBe(0);
    expect(await closed.next()).toEqual({ done: true, value: undefined });
    const again = await openConsumer(
      world.open("memory:consumer", log.spec),
      { mesh: { dp: 1 }, rank: 0 },
      { signal: stop.signal },
    );
    stop.abort(new Error("enough"));
    await expect(again.next()).rejects.toThrow("enough");
  });

  test("that misses the first step left is not told that it was reclaimed", async () => {
    const world = new SmallWorld();
    const log = await world.create("memory:missing");
    const batches = await new Writer(log).write(8);
    const one = { mesh: { dp: 1 }, rank: 0, prefetchIterationsMax: 1 };
    const at = async (step: number) => openConsumer(world.open("memory:missing", log.spec), { ...one, from: { step } });
    const [before, first] = [await at(5), await at(6)];
    await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 6) });
    await reclaim(log, { graceMs: 0, keepVersions: 1 });
    await log.store.delete([batchKey(batches[6] as Descriptor, 0)]);
    await expect(before.next()).rejects.toMatchObject({ code: "RECLAIMED" });
    await expect(first.next()).rejects.toMatchObject({ code: "MISSING_OBJECT" });
    await Promise.all([before.return(), first.return()]);
  });

  test("reports from rank 0 alone, at the step where it is, and registers what it is told to", async () => {
    const { world, log } = await closedLog();
    const said: unknown[] = [];
    const parts = {
      report: async (step: number, values: object) => void said.push([step, values]),
      register: async (id: string, cursor: { row: number }) => void said.push([id, cursor.row]),
    };
    for (const rank of [0, 1]) {
      const consumer = await openConsumer(
        world.open("memory:consumer", log.spec),
        { mesh: { dp: 2 }, rank },
        parts as never,
      );
      await consumer.next();
      await consumer.next();
      await consumer.report({ loss: rank });
      await consumer.checkpoint(`c${rank}`);
      await consumer.return();
    }
    expect(said).toEqual([
      [2, { loss: 0 }],
      ["c0", 4],
      ["c1", 4],
    ]);
    const bare = await openConsumer(world.open("memory:consumer", log.spec), { mesh: { dp: 1 }, rank: 0 });
    await expect(bare.report({})).rejects.toThrow("can report");
    await expect(bare.checkpoint("c")).rejects.toThrow("can register");
  });

  test("takes rows per rank that are whole numbers, or a schedule that begins at 0 and ascends", async () => {
    const { world, log } = await closedLog();
    const opened = (rowsPerRank: unknown) =>
      openConsumer(world.open("memory:consumer", log.spec), {
        mesh: { dp: 2 },
        rank: 0,
        rowsPerRank: rowsPerRank as never,
      }).then(
        () => "opened",
        ({ code }) => code,
      );
    for (const fits of [
      1,
      4,
      [[0, 1]],
      [
        [0, 1],
        [1, 3],
        [9, 2],
      ],
      () => 2,
    ])
      expect(await opened(fits)).toBe("opened");
    for (const wrong of [
      0,
      1.5,
      [],
      [[1, 1]],
      [[0, 0]],
      [
        [0, 1],
        [0, 2],
      ],
      [
        [0, 1],
        [5, 0],
      ],
      [
        [0, 1],
        [5, 1.5],
      ],
      [
        [0, 1],
        [5, 1],
        [4, 1],
      ],
      [
        [0, 1],
        [2.5, 1],
      ],
    ])
      expect([wrong, await opened(wrong)]).toEqual([wrong, "INVALID_ARGUMENT"]);
  });
});
