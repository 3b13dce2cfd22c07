/**
 * Property: the constructor loses no token and no image; chunks put together again, contiguous or zigzag, are the sequence; `cu_seqlens` agrees with
 * segment ids; field names are the framework's. Method: fast-check over samples and chunk counts; worked examples.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createNamespace, decodeSafetensors, tensorValues } from "../../src/index.js";
import { DataConstructor } from "../../src/plan/construct/data-constructor.js";
import { chunkOf, chunkRanges, packSequence } from "../../src/plan/construct/packed-sequence.js";
import { SliceThread } from "../../src/plan/construct/slice-thread.js";
import { DGraph } from "../../src/plan/graph/dgraph.js";
import { ClientPlaceTree } from "../../src/plan/graph/place-tree.js";
import type { PreparedSample } from "../../src/plan/load/prepared-sample.js";
import { buildSlices } from "../../src/plan/run/batch-slices.js";
import type { ResolvedPipeline } from "../../src/plan/run/pipeline.js";

const samplesArb = fc.array(fc.array(fc.integer({ min: 1, max: 50_000 }), { maxLength: 20 }), { maxLength: 6 });

test("a packed sequence: every token once, labels shifted within samples, bounds where segments change", () => {
  fc.assert(
    fc.property(samplesArb, (lists) => {
      const packed = packSequence(
        lists.map((tokens) => ({ tokens })),
        128,
        { padToken: 7 },
      );
      expect([...packed.tokens]).toEqual([...lists.flat(), ...new Array(128 - lists.flat().length).fill(7)]);
      const bounds = [...packed.cuSeqlens];
      expect(bounds[0]).toBe(0);
      expect(bounds.at(-1)).toBe(128);
      const changes = [...packed.segmentIds.keys()].filter(
        (i) => i > 0 && packed.segmentIds[i] !== packed.segmentIds[i - 1],
      );
      expect(bounds.slice(1, -1)).toEqual(changes);
      for (let i = 0; i < 128; i++) {
        const isCounted = packed.lossMask[i] === 1;
        expect(isCounted).toBe(packed.labels[i] !== -100);
        if (isCounted) expect(packed.labels[i]).toBe(packed.tokens[i + 1]);
      }
      expect(packed.maxSeqlen).toBe(Math.max(...bounds.slice(1).map((b, i) => b - (bounds[i] as number))));
    }),
  );
});

test("a sample's own loss mask decides which of its tokens are predicted", () => {
  const { labels, lossMask } = packSequence([{ tokens: [5, 6, 7, 8], lossMask: [0, 0, 1, 1] }], 5);
  expect([...labels]).toEqual([-100, 7, 8, -100, -100]);
  expect([...lossMask]).toEqual([0, 1, 1, 0, 0]);
});

test("chunks put together again are the sequence; zigzag as Megatron has it", () => {
  const column = Int32Array.from({ length: 48 }, (_, i) => i);
  for (const layout of ["contiguous", "zigzag"] as const) {
    for (const chunks of [1, 2, 3, 4]) {
      const parts = Array.from({ length: chunks }, (_, c) => [...chunkOf(column, chunkRanges(48, chunks, c, layout))]);
      expect(parts.every((part) => part.length === 48 / chunks)).toBe(true);
      expect(parts.flat().sort((a, b) => a - b)).toEqual([...column]);
    }
  }
  expect(chunkRanges(48, 2, 1, "zigzag")).toEqual([
    [12, 24],
    [24, 36],
  ]);
  expect(chunkRanges(48, 2, 0, "zigzag")).toEqual([
    [0, 12],
    [36, 48],
  ]);
});

describe("slices", () => {
  const values: PreparedSample[] = [[1, 2, 3], [4, 5], [6, 7, 8, 9], [10]].map((tokens) => ({ tokens }));
  const metas = values.map(({ tokens }, i) => ({ source: "s", id: String(i), tokens: tokens.length }));
  const build = (
    settings: object,
    mesh = { dp: 2, cp: 1 },
    axis: "dp" | "cp" = "dp",
  ): ReturnType<typeof decodeSafetensors>[] => {
    const tree = new ClientPlaceTree(mesh);
    const grid = { rows: mesh.dp, chunks: mesh.cp };
    const construct = new DataConstructor(grid, tree, { seqLength: 8, ...settings });
    const plan = new DGraph({ tree, capacity: { tokens: 16 } }).distribute(axis).balance().plan(metas);
    return construct.build({ plan, values }).map((slice) => decodeSafetensors(slice, "slice"));
  };

  test("have the names of their framework", () => {
    const common = ["labels", "position_ids", "segment_ids", "cu_seqlens", "max_seqlen"];
    expect([...(build({})[0]?.tensors.keys() ?? [])].sort()).toEqual(["loss_mask", "tokens", ...common].sort());
    expect([...(build({ names: "torchtitan" })[0]?.tensors.keys() ?? [])].sort()).toEqual(
      ["input_ids", ...common].sort(),
    );
  });

  test("over dp a row is cut into chunks; over cp every chunk has sequences of its own", () => {
    for (const axis of ["dp", "cp"] as const) {
      const slices = build({ seqLength: 16 }, { dp: 1, cp: 2 }, axis);
      const tokens = slices.flatMap(({ tensors }) => [...(tensorValues(tensors.get("tokens")!) as Int32Array)]);
      expect(tokens.filter((t) => t > 0).sort((a, b) => a - b)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
      const width = axis === "dp" ? 8 : 16;
      for (const { tensors } of slices) expect(tensors.get("tokens")?.shape).toEqual([1, 1, width]);
    }
  });

  test("a batch of more bytes than an extent is appended slice by slice, and stored as it would be from memory", async () => {
    const tree = new ClientPlaceTree({ dp: 4 });
    const graph = new DGraph({ tree, capacity: { tokens: 16 } }).distribute("dp").balance();
    const grid = { rows: 4, chunks: 1 };
    const construct = new DataConstructor(grid, tree, { seqLength: 8 });
    const pipeline = { graphs: { backbone: graph }, construct, sources: [] } as unknown as ResolvedPipeline;
    const samples = values.map((value, i) => ({ value, meta: metas[i] as (typeof metas)[number] }));
    const bytes = construct.bytesOf({ values });
    const builder = new SliceThread(construct, { grid, mesh: tree.mesh, settings: { seqLength: 8 } }, true);
    const built = (streamMin: number) => buildSlices({ pipeline, builder }, samples, graph.plan(metas), streamMin);
    expect(Array.isArray((await built(bytes + 1)).body)).toBe(true);
    const whole = (await built(bytes + 1)).slices;
    expect(Math.abs(whole.reduce((sum, { length }) => sum + length, 0) / 4 - bytes / 4)).toBeLessThan(2_000);
    const large = await built(bytes);
    expect(Array.isArray(large.body)).toBe(false);
    expect(large.slices).toEqual(whole);
    const ns = await createNamespace("memory:streamed-batch", { grid });
    await using producer = await ns.producer({ id: "p" });
    await producer.append(large.body);
    await producer.append(whole);
    await producer.flush();
    for (let row = 0; row < 4; row++)
      expect(await ns.readSlice({ step: 0, row, chunk: 0 })).toEqual(await ns.readSlice({ step: 1, row, chunk: 0 }));
  });

  test("shapes that cannot be are refused with the numbers", () => {
    expect(() => build({ seqLength: 7 }, { dp: 1, cp: 2 })).toThrow(/seqLength 7 cannot be cut into 2 pieces/);
    const tree = new ClientPlaceTree({ dp: 3 });
    expect(() => new DataConstructor({ rows: 2, chunks: 1 }, tree, { seqLength: 8 })).toThrow(
      /3 data-parallel consumers and the grid 2 rows/,
    );
  });
});
