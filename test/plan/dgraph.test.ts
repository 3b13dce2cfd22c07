/**
 * Property: a graph's plan holds exactly the samples it was given, in the bins of the consumers that the place tree names, and `describe`
 * shows them. Method: fast-check over samples; the paper's figure 8 as a worked example.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { backboneCost, encoderCost, models } from "../../src/plan/graph/cost.js";
import { DGraph } from "../../src/plan/graph/dgraph.js";
import { constructorDoPlan, loaderDoPlan, summaryBuffer } from "../../src/plan/graph/load-plan.js";
import { ClientPlaceTree } from "../../src/plan/graph/place-tree.js";
import type { SampleMeta } from "../../src/plan/load/sample-meta.js";

const samplesArb: fc.Arbitrary<SampleMeta[]> = fc
  .array(
    fc.record({ source: fc.constantFrom("web", "code"), tokens: fc.integer({ min: 1, max: 512 }), image: fc.nat(256) }),
    {
      maxLength: 60,
    },
  )
  .map((list) =>
    list.map(({ source, tokens, image }, i) => ({
      source,
      id: String(i),
      tokens,
      ...(image > 128 ? { images: [image] } : {}),
    })),
  );

const tree = new ClientPlaceTree({ dp: 4, cp: 2, tp: 2, pp: 2 });

describe("ClientPlaceTree", () => {
  test("has the consumers of every axis, each rank below exactly one", () => {
    expect(tree.nodesAt("dp").map((node) => node.ranks.length)).toEqual([8, 8, 8, 8]);
    expect(tree.nodesAt("cp").length).toBe(8);
    expect(tree.nodesAt("world").length).toBe(32);
    expect(
      tree
        .nodesAt("dp")
        .flatMap((node) => node.ranks)
        .sort((a, b) => a - b),
    ).toEqual([...Array(32).keys()]);
    expect(new ClientPlaceTree({ dp: 1 }).nodesAt("cp").length).toBe(1);
  });

  test("a broadcast leaves out the ranks it serves", () => {
    const node = tree.nodesAt("dp")[0];
    expect(tree.fetchers(node!, ["tp"]).length).toBe(4);
    expect(tree.fetchers(node!, ["tp", "pp", "cp"])).toEqual([0]);
  });

  test("can be overridden, but not so that a rank gets lost", () => {
    const reversed = tree.override((root) => ({ ...root, children: [...root.children].reverse() }));
    expect(reversed.nodesAt("dp")[0]).toEqual(tree.nodesAt("dp")[3]);
    expect(() => tree.override((root) => ({ ...root, children: root.children.slice(1) }))).toThrow(/exactly one/);
  });
});

describe("DGraph", () => {
  test("plans hold every sample once, for every axis, group size and method", () => {
    fc.assert(
      fc.property(
        samplesArb,
        fc.constantFrom("dp", "cp", "world" as const),
        fc.integer({ min: 1, max: 3 }),
        fc.constantFrom("greedy", "karmarkar-karp" as const),
        (samples, axis, groupSize, method) => {
          const graph = new DGraph({ tree, microbatches: 3, sequences: 2 })
            .distribute(axis as "dp", groupSize)
            .cost(backboneCost("llama-12b"))
            .balance(method as "greedy")
            .broadcastAt("tp");
          const plan = graph.plan(samples);
          const placed = plan.buckets.flatMap((b) => b.bins.flatMap((bin) => bin.samples));
          expect(placed.sort((a, b) => a - b)).toEqual(samples.map((_, i) => i));
          expect([...loaderDoPlan(plan).values()].flat().length).toBe(samples.length);
          const built = plan.buckets.flatMap((_, b) => constructorDoPlan(plan, b).flat(2));
          expect(built.length).toBe(samples.length);
          expect(graph.plan(samples)).toEqual(plan);
        },
      ),
    );
  });

  test("two graphs over the same samples: images over the world, sequences over dp", () => {
    const samples: SampleMeta[] = Array.from({ length: 64 }, (_, i) => ({
      source: "vlm",
      id: String(i),
      tokens: 64 + ((i * 37) % 900),
      ...(i % 3 === 0 ? { images: [64 + ((i * 91) % 700), 50] } : {}),
    }));
    const base = new DGraph({ tree, microbatches: 2 });
    const backbone = base.distribute("dp").cost(backboneCost("llama-12b")).balance("karmarkar-karp").plan(samples);
    const encoder = base
      .select("images", (meta) => meta.images !== undefined)
      .distribute("world")
      .cost(encoderCost("vit-2b"))
      .balance("greedy")
      .plan(samples);
    expect(backbone.samples.length).toBe(64);
    expect(encoder.samples.length).toBe(22);
    expect(backbone.after.ranks).toBeLessThan(backbone.before.ranks);
    expect(backbone.after.ranks).toBeLessThan(1.05);
  });

  test("planRaw carries out the user's own plan", () => {
    const samples: SampleMeta[] = [5, 6, 7, 8].map((tokens, i) => ({ source: "s", id: String(i), tokens }));
    const plan = new DGraph({ tree: new ClientPlaceTree({ dp: 2 }), microbatches: 2 })
      .planRaw((_, { buckets, binsPerBucket }) => [3, 2, 1, 0].map((bin) => bin % (buckets * binsPerBucket)))
      .plan(samples);
    expect(plan.buckets.map((b) => b.bins.map((bin) => bin.samples))).toEqual([
      [[3], [2]],
      [[1], [0]],
    ]);
  });

  test("describe shows the graph, its consumers, bins and costs", () => {
    // Figure 8: dp 2, cp 2, tp 2; samples "id:cost".
    const costs = [4, 2, 6, 3, 5, 1, 7, 8];
    const samples: SampleMeta[] = costs.map((tokens, i) => ({ source: "s", id: String(i), tokens }));
    const graph = new DGraph({
      tree: new ClientPlaceTree({ dp: 2, cp: 2, tp: 2 }),
      microbatches: 2,
      capacity: { tokens: 12 },
    })
      .distribute("dp")
      .balance("greedy")
      .broadcastAt("tp");
    expect(graph.describe(graph.plan(samples))).toMatchInlineSnapshot(`
      "graph samples
        distribute  dp: 2 consumers x 2 microbatches, each at most 12 tokens
        cost        tokenCost
        balance     greedy all
        broadcastAt tp
        8 samples; max/mean cost over ranks 1.167 -> 1.000, over microbatches 1.333 -> 1.000
        dp0 (ranks 0, 2)  cost 18
          mb 0  cost 9  tokens 9/12  [s/5:1 s/7:8]
          mb 1  cost 9  tokens 9/12  [s/2:6 s/3:3]
        dp1 (ranks 4, 6)  cost 18
          mb 0  cost 9  tokens 9/12  [s/1:2 s/6:7]
          mb 1  cost 9  tokens 9/12  [s/0:4 s/4:5]"
    `);
  });
});

test("summaryBuffer counts by source", () => {
  expect(
    summaryBuffer([
      { source: "a", id: "0", tokens: 3, bytes: 10 },
      { source: "a", id: "1", tokens: 9, bytes: 30 },
      { source: "b", id: "0", tokens: 1 },
    ]),
  ).toEqual([
    { source: "a", samples: 2, tokens: 12, tokensMin: 3, tokensMax: 9, bytes: 40 },
    { source: "b", samples: 1, tokens: 1, tokensMin: 1, tokensMax: 1, bytes: 0 },
  ]);
});

test("Table 1's models have about the parameters their names say", () => {
  const parameters = ({
    layers,
    hidden,
    mlp,
    mlpMatrices = 3,
    heads,
    keyValueHeads = heads,
    vocabulary = 0,
    experts = 1,
  }: (typeof models)["vit-1b"]): number =>
    layers * (hidden * hidden * (2 + (2 * keyValueHeads) / heads) + hidden * mlp * mlpMatrices * experts) +
    2 * vocabulary * hidden;
  const billions = Object.fromEntries(
    Object.entries(models).map(([name, shape]) => [name, Math.round(parameters(shape) / 1e9)]),
  );
  expect(billions).toEqual({ "vit-1b": 1, "vit-2b": 2, "llama-12b": 13, "tmoe-25b": 25, "mixtral-8x7b": 47 });
});

test("cost grows with the square of the length once attention dominates", () => {
  const cost = backboneCost("llama-12b");
  const of = (tokens: number): number => (cost({ source: "s", id: "0", tokens }) as { compute: number }).compute;
  expect(of(2000) / of(1000)).toBeGreaterThan(2);
  expect(of(2_000_000) / of(1_000_000)).toBeGreaterThan(3.8);
  expect((encoderCost("vit-1b")({ source: "s", id: "0", tokens: 5 }) as { compute: number }).compute).toBe(0);
});
