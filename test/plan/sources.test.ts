/**
 * Property: a source of any format gives every sample of every shard once an epoch, in an order that the seed decides; K lanes together give
 * exactly what one gives; a cursor that starts again from any position goes on as if it had never stopped; memory and open shards are bounded
 * whatever the number of sources; what cannot be read is left out, retried or fatal as the policy says, and recorded. Method: real files of
 * each format (tar made by the system's tar), cursors over them, damage done to them.
 */
import { readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { type Env, openStore, systemEnv } from "../../src/index.js";
import { definePipeline, OpenPipeline } from "../../src/plan/index.js";
import { ShardPool } from "../../src/plan/source/shard-pool.js";
import {
  iterable,
  jsonl,
  megatron,
  parquet,
  resolveSource,
  type Source,
  webdataset,
} from "../../src/plan/source/source.js";
import { type CursorItem, SourceCursor, type SourcePosition } from "../../src/plan/source/source-cursor.js";
import { dataFolder, writeJsonl, writeMegatron, writeParquet, writeTar } from "./data-files.js";

const env: Env = { ...systemEnv, sleep: async () => {} };

interface Reading {
  readonly lane?: number;
  readonly lanes?: number;
  readonly from?: SourcePosition;
  readonly count?: number;
  readonly seed?: number;
}

async function read(
  source: Source,
  { lane = 0, lanes = 1, from, count = 1e6, seed = 7 }: Reading = {},
): Promise<CursorItem[]> {
  const resolved = await resolveSource("s", source, seed, { env });
  await using pool = new ShardPool({ env });
  const cursor = new SourceCursor(resolved, pool, env, { seed, lane, lanes }, from);
  const items: CursorItem[] = [];
  for (let item = await cursor.next(); item && items.length < count; item = await cursor.next()) items.push(item);
  return items;
}

const ids = (items: readonly CursorItem[]): string[] => items.map((item) => item.id);

async function everyFormat(folder: string): Promise<Record<string, { source: Source; count: number }>> {
  const small = { epochs: 1, windowSamplesMax: 16 };
  const plain = writeJsonl(folder, "plain", [40, 0, 1, 75]);
  const zipped = writeJsonl(folder, "zipped", [40, 75], { gzip: true });
  writeTar(folder, "web-0", 30);
  writeTar(folder, "web-1", 25, true);
  writeMegatron(
    folder,
    "mega",
    Array.from({ length: 70 }, (_, i) => 1 + ((i * 31) % 50)),
  );
  await writeParquet(folder, "rows-0", 120);
  await writeParquet(folder, "rows-1", 33, 120);
  return {
    jsonl: { source: jsonl({ shards: join(folder, "plain-*.jsonl"), ...small }), count: plain },
    gzip: { source: jsonl({ shards: join(folder, "zipped-*.jsonl.gz"), ...small }), count: zipped },
    parquet: { source: parquet({ shards: join(folder, "rows-*.parquet"), ...small }), count: 153 },
    webdataset: { source: webdataset({ shards: join(folder, "web-*.tar"), ...small }), count: 55 },
    megatron: { source: megatron({ shards: join(folder, "mega.idx"), ...small }), count: 70 },
    iterable: {
      source: iterable({
        open: async function* (snapshot) {
          for (let n = (snapshot as number | undefined) ?? 0; n < 90; n++)
            yield { value: { id: n }, id: `n${n}`, ...(n % 10 === 9 ? { snapshot: n + 1 } : {}) };
        },
        ...small,
      }),
      count: 90,
    },
  };
}

describe("every format", () => {
  test("gives each sample once, the same way for the same seed, another way for another", async () => {
    for (const [format, { source, count }] of Object.entries(await everyFormat(dataFolder()))) {
      const items = await read(source);
      expect(new Set(ids(items)).size, format).toBe(count);
      expect(items.length, format).toBe(count);
      expect(ids(await read(source)), format).toEqual(ids(items));
      expect(ids(await read(source, { seed: 8 })), format).not.toEqual(ids(items));
      expect(
        items.every((item) => item.raw?.value !== undefined),
        format,
      ).toBe(true);
    }
  });

  test("lanes together give every sample once, however many there are, and share evenly where shards can be divided", async () => {
    for (const [format, { source, count }] of Object.entries(await everyFormat(dataFolder()))) {
      const all = ids(await read(source)).sort();
      for (const lanes of [2, 3, 7, 64]) {
        const each = await Promise.all(
          Array.from({ length: lanes }, async (_, lane) => ids(await read(source, { lane, lanes }))),
        );
        expect(each.flat().sort(), `${format} ${lanes}`).toEqual(all);
        if (lanes === 2) for (const some of each) expect(some.length, format).toBeGreaterThan(count / 4);
      }
    }
  });

  test("a restart at any position goes on exactly", async () => {
    for (const [format, { source }] of Object.entries(await everyFormat(dataFolder()))) {
      const all = await read(source, { lane: 1, lanes: 2 });
      for (const cut of [0, 1, 7, 15, 16, 17, all.length - 2]) {
        const text = JSON.stringify((all[cut] as CursorItem).after);
        expect(text.length, format).toBeLessThan(64);
        const rest = await read(source, { lane: 1, lanes: 2, from: JSON.parse(text) });
        expect(ids(rest), `${format} ${cut}`).toEqual(ids(all.slice(cut + 1)));
      }
    }
  });

  test("an endless source goes round in another order each time, a finite one stops", async () => {
    const folder = dataFolder();
    const count = writeJsonl(folder, "a", [10, 12]);
    const endless = await read(jsonl({ shards: join(folder, "a-*.jsonl") }), { count: 3 * count });
    const rounds = [0, 1, 2].map((round) => ids(endless.slice(round * count, (round + 1) * count)));
    for (const round of rounds) expect(new Set(round).size).toBe(count);
    expect(rounds[1]).not.toEqual(rounds[0]);
    expect((await read(jsonl({ shards: join(folder, "a-*.jsonl"), epochs: 2 }))).length).toBe(2 * count);
    const inOrder = await read(jsonl({ shards: join(folder, "a-*.jsonl"), epochs: 1, shuffle: false }));
    expect(inOrder.map((item) => (item.raw!.value as { id: number }).id)).toEqual([...Array(count).keys()]);
  });
});

describe("values", () => {
  test("are what was written", async () => {
    const folder = dataFolder();
    const formats = await everyFormat(folder);
    const rows = await read(formats["parquet"]!.source);
    expect(rows.map((item) => item.raw?.value as { id: number; text: string }).sort((a, b) => a.id - b.id)[61]).toEqual(
      {
        id: 61,
        text: "row 61 y",
      },
    );
    const tar = (await read(formats["webdataset"]!.source)).map(
      (item) => item.raw?.value as { key: string; files: Record<string, Uint8Array> },
    );
    const one = tar.find(({ key }) => key.endsWith("/sample-0003"));
    expect(Object.keys(one!.files).sort()).toEqual(["json", "seg.txt"]);
    expect(Buffer.from(one!.files["seg.txt"]!).toString()).toBe("text 3".repeat(3));
    const mega = await read(formats["megatron"]!.source);
    const five = mega.find((item) => item.id === "0:5")?.raw?.value as { tokens: Int32Array };
    expect([...five.tokens]).toEqual(Array.from({ length: 1 + ((5 * 31) % 50) }, (_, t) => 5 + t));
  });

  test("shards can lie in any store", async () => {
    const folder = dataFolder();
    const count = writeJsonl(folder, "a", [30, 12]);
    writeTar(folder, "w", 9);
    const store = await openStore("memory:plan-sources", {}, env);
    for (const name of ["a-000.jsonl", "a-001.jsonl", "w.tar"]) await store.put(name, readFileSync(join(folder, name)));
    for (const uri of ["memory:plan-sources", `file://${folder}`]) {
      expect((await read(jsonl({ shards: `${uri}/a-*.jsonl`, epochs: 1 }))).length).toBe(count);
      expect((await read(webdataset({ shards: `${uri}/w.tar`, epochs: 1 }))).length).toBe(9);
    }
    await expect(read(webdataset({ shards: "memory:plan-sources/gone.tar", epochs: 1 }))).rejects.toThrow(/not there/);
  });
});

describe("bounds", () => {
  test("three hundred sources: few shards open, windows within their budget, positions small", async () => {
    const folder = dataFolder();
    writeJsonl(
      folder,
      "a",
      Array.from({ length: 300 }, () => 20),
    );
    await using pool = new ShardPool({ env }, { openShardsMax: 8, windowBytesMax: 20_000 });
    const cursors = await Promise.all(
      Array.from({ length: 300 }, async (_, i) => {
        const shard = join(folder, `a-${String(i).padStart(3, "0")}.jsonl`);
        const source = await resolveSource(`s${i}`, jsonl({ shards: shard }), 1, { env });
        return new SourceCursor(source, pool, env, { seed: 1, lane: 0, lanes: 1 });
      }),
    );
    for (let round = 0; round < 4; round++) {
      await Promise.all(cursors.map((cursor) => cursor.next()));
      expect(pool.held.shards).toBeLessThanOrEqual(8);
      expect(pool.held.windowBytes).toBeLessThanOrEqual(20_000 + 6_000);
    }
    expect(JSON.stringify(cursors.map((cursor) => cursor.position)).length).toBeLessThan(8192);
  });
});

describe("faults", () => {
  test("a poison line is left out and recorded, or fatal", async () => {
    const folder = dataFolder();
    writeFileSync(join(folder, "bad.jsonl"), '{"id":0}\n{"id":1,\n{"id":2}\n');
    const shards = join(folder, "bad.jsonl");
    const items = await read(jsonl({ shards, epochs: 1, shuffle: false, onFault: "skip" }));
    expect(items.map((item) => item.fault?.stage)).toEqual([undefined, "sample", undefined]);
    expect(items[1]?.fault?.reason).toMatch(/not JSON/);
    await expect(read(jsonl({ shards, epochs: 1 }))).rejects.toThrow(
      /Source s failed at sample 0:9: not JSON.*onFault/,
    );
  });

  test("a byte order mark before the first line is passed over, and places count its bytes", async () => {
    const folder = dataFolder();
    const text = '\ufeff{"id":0}\n{"id":1}\n{"id":2}\n';
    writeFileSync(join(folder, "mark.jsonl"), text);
    writeFileSync(join(folder, "zipped.jsonl.gz"), gzipSync(text));
    writeFileSync(join(folder, "alone.jsonl"), "\ufeff\n");
    const whole = { epochs: 1, shuffle: false };
    const plain = await read(jsonl({ shards: join(folder, "mark.jsonl"), ...whole }));
    expect(ids(plain)).toEqual(["0:0", "0:12", "0:21"]);
    expect(plain.map(({ raw }) => raw?.value)).toEqual([{ id: 0 }, { id: 1 }, { id: 2 }]);
    const zipped = await read(jsonl({ shards: join(folder, "zipped.jsonl.gz"), ...whole }));
    expect(zipped.map(({ raw }) => raw?.value)).toEqual([{ id: 0 }, { id: 1 }, { id: 2 }]);
    const both = [join(folder, "alone.jsonl"), join(folder, "mark.jsonl")];
    expect(ids(await read(jsonl({ shards: both, ...whole })))).toEqual(["1:0", "1:12", "1:21"]);
    for (const lanes of [2, 3]) {
      const found: string[] = [];
      for (let lane = 0; lane < lanes; lane++)
        found.push(...ids(await read(jsonl({ shards: join(folder, "mark.jsonl"), ...whole }), { lane, lanes })));
      expect(found.sort()).toEqual(["0:0", "0:12", "0:21"]);
    }
  });

  test("a shard that is cut short gives what can be read, then a record, then the next shard", async () => {
    for (const kind of ["gzip", "webdataset", "parquet"] as const) {
      const folder = dataFolder();
      const formats = await everyFormat(folder);
      const { source, count } = formats[kind]!;
      const victim = { gzip: "zipped-001.jsonl.gz", webdataset: "web-1.tar", parquet: "rows-1.parquet" }[kind];
      truncateSync(join(folder, victim), Math.floor(readFileSync(join(folder, victim)).length * 0.5));
      const skipping: Source = { ...source, settings: { ...source.settings, onFault: "skip" } };
      const items = await read(skipping);
      const faults = items.flatMap((item) => item.fault ?? []);
      expect(faults.length, kind).toBe(1);
      expect(faults[0]?.stage, kind).toBe("shard");
      expect(faults[0]?.id, kind).toContain(victim);
      expect(items.length - 1, kind).toBeGreaterThan(0);
      expect(items.length - 1, kind).toBeLessThan(count);
      await expect(read(source), kind).rejects.toThrow(/failed at shard/);
    }
  });

  test("an archive that was cut between two files is not taken for whole", async () => {
    const folder = dataFolder();
    const { source } = (await everyFormat(folder))["webdataset"]!;
    const path = join(folder, "web-1.tar");
    const bytes = readFileSync(path);
    // The system's tar pads with zeros to 10 KiB: back to the last byte that says anything, then to the end of its block.
    const last = bytes.findLastIndex((byte) => byte !== 0);
    truncateSync(path, Math.ceil((last + 1) / 512) * 512);
    await expect(read(source)).rejects.toThrow(/without the empty blocks that close an archive/);
    truncateSync(path, 0);
    await expect(read(source)).rejects.toThrow(/failed at shard/);
  });

  test("a shard that is away for a moment is retried; a source that is gone ends, recorded", async () => {
    const folder = dataFolder();
    writeJsonl(folder, "a", [10]);
    const source = jsonl({
      shards: join(folder, "a-000.jsonl"),
      epochs: 1,
      onFault: "retry",
      retriesMax: 2,
      afterRetries: "skip",
    });
    const bytes = readFileSync(join(folder, "a-000.jsonl"));
    const resolved = await resolveSource("s", source, 7, { env });
    rmSync(join(folder, "a-000.jsonl"));
    let sleeps = 0;
    const patient: Env = {
      ...env,
      sleep: async () => {
        if (++sleeps === 2) writeFileSync(join(folder, "a-000.jsonl"), bytes);
      },
    };
    await using pool = new ShardPool({ env });
    const cursor = new SourceCursor(resolved, pool, patient, { seed: 7, lane: 0, lanes: 1 });
    expect((await cursor.next())?.raw).toBeDefined();
    expect(sleeps).toBe(2);

    rmSync(join(folder, "a-000.jsonl"));
    await using empty = new ShardPool({ env });
    const gone = new SourceCursor(resolved, empty, env, { seed: 7, lane: 0, lanes: 1 });
    expect((await gone.next())?.fault).toMatchObject({ stage: "shard", attempts: 3 });
    expect((await gone.next())?.fault).toMatchObject({ stage: "source" });
    expect(await gone.next()).toBeUndefined();
  });

  test("a pattern that matches nothing is said at once", async () => {
    await expect(read(jsonl({ shards: join(dataFolder(), "*.jsonl") }))).rejects.toThrow(/Source s has no shards/);
  });
});

test("every byte is read once, by any number of lanes in processes of their own; a Parquet row group once, not once per window", async () => {
  const folder = dataFolder();
  writeJsonl(folder, "plain", [1500, 900, 1200]);
  writeJsonl(
    folder,
    "zipped",
    Array.from({ length: 16 }, () => 100),
    { gzip: true },
  );
  for (let i = 0; i < 4; i++) await writeParquet(folder, `rows-${i}`, 4000, 0, 500);
  const small = { epochs: 1, windowSamplesMax: 64 };
  const sources = {
    jsonl: jsonl({ shards: join(folder, "plain-*.jsonl"), ...small }),
    gzip: jsonl({ shards: join(folder, "zipped-*.jsonl.gz"), ...small }),
    parquet: parquet({ shards: join(folder, "rows-*.parquet"), ...small }),
  };
  for (const [format, source] of Object.entries(sources)) {
    const resolved = await resolveSource("s", source, 7, { env });
    const size = resolved.sizes.reduce((a, b) => a + b, 0);
    for (const lanes of [1, 4, 8]) {
      let bytes = 0;
      for (let lane = 0; lane < lanes; lane++) {
        await using pool = new ShardPool({ env }, {}, (_, count) => {
          bytes += count;
        });
        const cursor = new SourceCursor(resolved, pool, env, { seed: 7, lane, lanes });
        while (await cursor.next());
      }
      // Neighbours both read the rest of a line, and the end of a Parquet file in which they meet, 8 KiB of it.
      const shared = format === "parquet" ? ((lanes + resolved.shards.length) * 8_192) / size : 0.1;
      expect(bytes / size, `${format}, ${lanes} lanes`).toBeLessThan(1.05 + shared);
      expect(bytes / size, `${format}, ${lanes} lanes`).toBeGreaterThan(0.95);
    }
  }
});

test("what loaders hold has one bound for the process: sixty sources of large samples, in four lanes", async () => {
  const [sources, lanes, sampleBytes, bytesMax] = [60, 4, 100_000, 8_388_608];
  const tokens = new Array(16).fill(1);
  const pipeline = definePipeline({
    namespace: { uri: "memory:", grid: { rows: 2, chunks: 1 }, lanes },
    sources: Object.fromEntries(
      Array.from({ length: sources }, (_, i) => [
        `s${i}`,
        iterable({
          open: function* () {
            for (;;) yield { value: { tokens, features: { x: "x".repeat(sampleBytes) } }, bytes: sampleBytes };
          },
        }),
      ]),
    ),
    strategy: (graph) => graph,
    construct: { seqLength: 4096 },
    batch: { samples: 2 * sources },
    workers: { threads: 0 },
    buffers: { bytesMax, windowBytesMax: 1 },
  });
  await using open = await OpenPipeline.open(pipeline, env);
  const planners = Array.from({ length: lanes }, (_, lane) => open.planner(lane, lanes));
  for (let round = 0; round < 3; round++) for (const planner of planners) await planner.next();
  const most = open.figures.reduce((sum, { bufferedBytesMost }) => sum + bufferedBytesMost, 0);
  // One sample of each is always allowed.
  expect(most).toBeLessThan(bytesMax + 2 * sources * lanes * sampleBytes);
});

test("lanes of one process that stand in different epochs do not get each other's windows, where their parts of a shard begin alike and end elsewhere", async () => {
  const folder = dataFolder();
  const count = writeJsonl(folder, "a", [40, 50, 30]);
  const source = jsonl({ shards: join(folder, "a-*.jsonl"), epochs: 3 });
  for (let seed = 0; seed < 8; seed++) {
    const resolved = await resolveSource("s", source, seed, { env });
    await using pool = new ShardPool({ env });
    const cursors = [0, 1].map((lane) => new SourceCursor(resolved, pool, env, { seed, lane, lanes: 2 }));
    const found = new Map<string, number>();
    const step = async (lane: number): Promise<boolean> => {
      const item = await cursors[lane]?.next();
      if (item) found.set(item.id, (found.get(item.id) ?? 0) + 1);
      return item !== undefined;
    };
    // The second is an epoch ahead of the first.
    for (let i = 0; i < count / 2; i++) await step(1);
    for (let open = [true, true]; open.some(Boolean); ) open = [await step(0), await step(1)];
    expect([found.size, ...new Set(found.values())]).toEqual([count, 3]);
  }
});
