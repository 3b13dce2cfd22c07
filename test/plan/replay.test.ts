/**
 * Property: a replay has the samples of an earlier log in its rows and its order, prepared by the transforms of now, whatever the order of that log, its
 * lanes, its long documents and the moment a replay is stopped; what does not fit any more is left out by the pipeline's rule and recorded;
 * anything that is not the same data is refused. Method: small logs in memory, their lineage compared sample by sample, tokens read back.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { decodeSafetensors, type LineageSample, type Namespace, openNamespace, tensorValues } from "../../src/index.js";
import {
  type BatchNotes,
  callbackMix,
  definePipeline,
  jsonl,
  type Pipeline,
  type PipelineSpec,
  replayPipeline,
  runPipeline,
  staticMix,
  transform,
} from "../../src/plan/index.js";
import { binsInOrder } from "../../src/plan/replay/row-bins.js";
import { dataFolder, writeJsonl } from "./data-files.js";

const module = new URL("./replay-transforms.mjs", import.meta.url);
const fast = { producer: { cadence: { kind: "interval", intervalMs: 5 } } } as const;
let count = 0;

function build(folder: string, options: { up?: number; times?: number }, spec: Partial<PipelineSpec> = {}): Pipeline {
  const source = (name: string) =>
    jsonl({ shards: join(folder, `${name}-*.jsonl`), transforms: [transform(module, "spell", options)], epochs: 2 });
  return definePipeline({
    namespace: { uri: `memory:replay-${count++}`, grid: { rows: 2, chunks: 1 }, order: "lanes", lanes: 3 },
    sources: { web: source("web"), code: source("code") },
    strategy: (graph) => graph.mix(staticMix({ web: 3, code: 1 })).balance(),
    construct: { seqLength: 256, microbatches: 3 },
    batch: { samples: 12 },
    workers: { threads: 0 },
    ...spec,
  });
}

async function recordOf(ns: Namespace): Promise<LineageSample[][]> {
  const { steps } = await ns.info();
  const batches: LineageSample[][] = [];
  for (let step = steps.trim; step < steps.end; step++) batches.push([...((await ns.samples(step)) ?? [])]);
  return batches;
}

/** Rows and order, without lengths. */
const places = (batches: readonly (readonly LineageSample[])[]): string[][] =>
  batches.map((batch) =>
    batch.filter(({ row }) => row !== undefined).map(({ source, id, row }) => `${row} ${source} ${id}`),
  );

async function tokensOf(ns: Namespace, step: number, row: number): Promise<number[]> {
  const { tensors } = decodeSafetensors(await ns.readSlice({ step, row, chunk: 0 }), "a slice");
  const tokens = tensors.get("tokens");
  const segments = tensors.get("segment_ids");
  if (!tokens || !segments) throw new Error("the slice has no tokens");
  const own = [...tensorValues(segments)];
  return [...tensorValues(tokens)].filter((_, i) => own[i] !== 0).map(Number);
}

const folderOf = (): string => {
  const folder = dataFolder();
  writeJsonl(folder, "web", [40, 50]);
  writeJsonl(folder, "code", [30]);
  return folder;
};

describe("a replay", () => {
  for (const [name, shape, exchange] of [
    ["lanes", { order: "lanes", lanes: 3 }, "direct"],
    ["commit order", { order: "commit", parts: 2 }, "direct"],
    ["through source logs", { order: "lanes", lanes: 3 }, "log"],
  ] as const) {
    test(`${name}: the same samples, rows and order, other tokens`, async () => {
      const folder = folderOf();
      const namespace = { uri: `memory:replayed-${count++}`, grid: { rows: 2, chunks: 1 }, ...shape };
      const first = build(folder, {}, { namespace, exchange });
      expect(await runPipeline(first, fast)).toMatchObject({ closed: true });
      const again = build(folder, { up: 1 });
      await replayPipeline(again, { log: namespace.uri, batchesMax: 3, ...fast });
      const result = await replayPipeline(again, { log: namespace.uri, ...fast });
      expect(result).toMatchObject({ closed: true, leftOut: 0, from: 0 });
      expect(result.tokens).toBe(result.recordedTokens);
      const [old, made] = await Promise.all([openNamespace(namespace.uri), openNamespace(again.spec.namespace.uri)]);
      const [before, after] = [await recordOf(old), await recordOf(made)];
      expect(after).toEqual(before);
      expect(after.length).toBeGreaterThan(5);
      for (const step of [0, 4]) {
        const moved = (await tokensOf(old, step, 1)).map((token) => token + 1);
        expect(await tokensOf(made, step, 1)).toEqual(moved);
      }
      const { user } = await made.inspect(2);
      expect((user as BatchNotes).replayOf).toEqual({ log: namespace.uri, step: 2 });
    });
  }

  test("stopped and started again it is the same log, and a log that grows is followed", async () => {
    const folder = folderOf();
    const first = build(folder, {});
    const { uri } = first.spec.namespace;
    await runPipeline(first, { ...fast, batchesMax: 9 });
    const again = build(folder, { up: 7 });
    for (const batchesMax of [2, 1, 3]) await replayPipeline(again, { log: uri, batchesMax, ...fast });
    expect(await replayPipeline(again, { log: uri, ...fast })).toMatchObject({ batches: 3, closed: false });
    await runPipeline(first, fast);
    expect(await replayPipeline(again, { log: uri, ...fast })).toMatchObject({ closed: true });
    const whole = build(folder, { up: 7 });
    await replayPipeline(whole, { log: uri, ...fast });
    const [pieces, one] = await Promise.all([again, whole].map(({ spec }) => openNamespace(spec.namespace.uri)));
    const end = (await (one as Namespace).info()).steps.end;
    expect((await (pieces as Namespace).info()).steps.end).toBe(end);
    for (let step = 0; step < end; step++) {
      const place = { step, row: 1, chunk: 0 };
      expect(await (pieces as Namespace).readSlice(place)).toEqual(await (one as Namespace).readSlice(place));
    }
    expect(await recordOf(pieces as Namespace)).toEqual(await recordOf(one as Namespace));
  });

  test("documents that were split stay in their pieces, also when they have another number of tokens, and no token is lost", async () => {
    const folder = dataFolder();
    writeJsonl(folder, "web", [20]);
    const long = Array.from({ length: 12 }, (_, i) => JSON.stringify({ id: i, text: `${i}:${"abcdefgh".repeat(90)}` }));
    writeFileSync(join(folder, "code-000.jsonl"), `${long.join("\n")}\n`);
    const spec = { batch: { fill: "tokens" }, construct: { seqLength: 256, microbatches: 3 } } as const;
    // Through small blocks, pieces of a document go to several lanes, and a later piece may be used first.
    const dealt = build(folder, {}, { ...spec, exchange: { kind: "log", blockSamples: 2 } });
    await runPipeline(dealt, fast);
    const fromBlocks = await recordOf(await openNamespace(dealt.spec.namespace.uri));
    const again = build(folder, {}, spec);
    const replayed = await replayPipeline(again, { log: dealt.spec.namespace.uri, ...fast });
    expect(replayed).toMatchObject({ leftOut: 0, closed: true, tokens: replayed.recordedTokens });
    expect(places(await recordOf(await openNamespace(again.spec.namespace.uri)))).toEqual(places(fromBlocks));
    const first = build(folder, {}, spec);
    await runPipeline(first, fast);
    const old = await openNamespace(first.spec.namespace.uri);
    const before = await recordOf(old);
    expect(before.flat().some(({ id }) => /#2\/3$/.test(id))).toBe(true);
    // As they were: bit for bit the same tokens. With two tokens a letter in sequences twice as long: the same places again.
    for (const [times, seqLength] of [
      [1, 256],
      [2, 512],
    ] as const) {
      const again = build(folder, { times }, { ...spec, construct: { ...spec.construct, seqLength } });
      const result = await replayPipeline(again, { log: first.spec.namespace.uri, ...fast });
      expect(result).toMatchObject({ leftOut: 0, closed: true, tokens: times * result.recordedTokens });
      expect(places(await recordOf(await openNamespace(again.spec.namespace.uri)))).toEqual(places(before));
    }
    // Shorter than before: three pieces of a document that would fit into one.
    const short = build(folder, {}, { ...spec, construct: { ...spec.construct, seqLength: 1_024 } });
    expect(await replayPipeline(short, { log: first.spec.namespace.uri, ...fast })).toMatchObject({ leftOut: 0 });
    expect(places(await recordOf(await openNamespace(short.spec.namespace.uri)))).toEqual(places(before));
  });

  test("what has no room in its row any more is left out and recorded; more than droppedShareMax, or tooLong stop, ends it", async () => {
    const folder = folderOf();
    const first = build(folder, {});
    await runPipeline(first, fast);
    const log = first.spec.namespace.uri;
    const construct = { seqLength: 256, microbatches: 3, droppedShareMax: 1 };
    const longer = build(folder, { times: 4 }, { construct });
    const result = await replayPipeline(longer, { log, ...fast });
    expect(result.leftOut).toBeGreaterThan(0);
    const old = await recordOf(await openNamespace(log));
    const made = await openNamespace(longer.spec.namespace.uri);
    const now = await recordOf(made);
    // Everything that was there is there, in its row or as left out; pieces count as their document.
    const whole = (id: string): string => id.replace(/#\d+\/\d+$/, "");
    now.forEach((batch, i) => {
      expect(new Set(batch.map(({ source, id }) => `${source} ${whole(id)}`))).toEqual(
        new Set(old[i]?.map(({ source, id }) => `${source} ${id}`)),
      );
    });
    const notes = (await made.inspect(0)).user as BatchNotes;
    expect(notes.faults?.[0]).toMatchObject({
      stage: "length",
      reason: expect.stringMatching(/its row \d of 2 has no room/),
    });
    const strict = build(folder, { times: 4 }, { construct: { ...construct, tooLong: "stop" } });
    await expect(replayPipeline(strict, { log, ...fast })).rejects.toMatchObject({ code: "LIMIT" });
    const limited = build(folder, { times: 4 }, { construct: { seqLength: 256, microbatches: 3 } });
    await expect(replayPipeline(limited, { log, ...fast })).rejects.toThrow(/were dropped/);
  });

  test("what a callback decided stays with the batch", async () => {
    const folder = folderOf();
    let calls = 0;
    const mix = callbackMix(() => ({ web: 1 + (calls++ % 3), code: 1 }));
    const first = build(folder, {}, { strategy: (graph) => graph.mix(mix).balance(), steps: 6 });
    await runPipeline(first, fast);
    const asked = calls;
    const again = build(folder, { up: 2 }, { strategy: (graph) => graph.mix(mix).balance() });
    await replayPipeline(again, { log: first.spec.namespace.uri, ...fast });
    expect(calls).toBe(asked);
    const [old, made] = await Promise.all([first, again].map(({ spec }) => openNamespace(spec.namespace.uri)));
    for (let step = 0; step < 6; step++) {
      const mixes = await Promise.all(
        [old, made].map(async (ns) => ((await (ns as Namespace).inspect(step)).user as BatchNotes).mix),
      );
      expect(mixes[1]).toEqual(mixes[0]);
    }
  });

  test("other data, another grid, itself, and logs that are no pipeline's are refused with the way out", async () => {
    const folder = folderOf();
    const first = build(folder, {});
    const log = first.spec.namespace.uri;
    await runPipeline(first, { ...fast, batchesMax: 4 });
    const replay = async (pipeline: Pipeline): Promise<unknown> => await replayPipeline(pipeline, { log, ...fast });
    await expect(replay(build(folder, {}, { seed: 5 }))).rejects.toThrow(/not what it was .* transforms may change/);
    await expect(replay(first)).rejects.toThrow(/cannot be written into itself/);
    const wide = build(folder, {}, { namespace: { uri: `memory:wide-${count++}`, grid: { rows: 4, chunks: 1 } } });
    await expect(replay(wide)).rejects.toMatchObject({ code: "GRID_MISMATCH" });
    const one = jsonl({ shards: join(folder, "web-*.jsonl"), transforms: [transform(module, "spell", {})], epochs: 2 });
    const less = build(folder, {}, { sources: { web: one }, strategy: (graph) => graph });
    await expect(replay(less)).rejects.toThrow(/samples of code, which the pipeline does not have/);
    const other = build(folder, {});
    await runPipeline(other, { ...fast, batchesMax: 1 });
    const namespace = { ...other.spec.namespace };
    await expect(replay(build(folder, {}, { namespace }))).rejects.toThrow(/something other than a replay/);
  });
});

describe("the bins of a row", () => {
  test("keep the order, never hold more than they can, leave out nothing that fits, and are even", () => {
    const sizes = fc.array(fc.integer({ min: 1, max: 100 }), { maxLength: 40 });
    fc.assert(
      fc.property(sizes, fc.integer({ min: 1, max: 8 }), fc.integer({ min: 100, max: 300 }), (list, bins, tokens) => {
        const found = [
          ...binsInOrder(
            list.map((size) => ({ tokens: size, memory: 0 })),
            bins,
            { tokens },
          ),
        ];
        const placed = found.filter((bin) => bin !== -1);
        expect(placed).toEqual([...placed].sort((a, b) => a - b));
        const loads = Array.from({ length: bins }, (_, bin) =>
          list.reduce((sum, size, i) => sum + (found[i] === bin ? size : 0), 0),
        );
        for (const load of loads) expect(load).toBeLessThanOrEqual(tokens);
        if (found.includes(-1)) return;
        // No division of neighbours into as many runs has a smaller largest one.
        const least = (limit: number): number => {
          let [used, runs] = [0, 1];
          for (const size of list) [used, runs] = used + size > limit ? [size, runs + 1] : [used + size, runs];
          return runs;
        };
        const most = Math.max(0, ...loads);
        if (list.length > 0 && most > Math.max(...list)) expect(least(most - 1)).toBeGreaterThan(bins);
      }),
    );
  });
});
