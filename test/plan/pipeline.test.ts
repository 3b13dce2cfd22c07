/**
 * Property: a pipeline's batches are decided by its definition and place in the log alone. A replacement that starts from any resume point
 * makes bit-identical batches; N producers with lanes write the log of one; every sample of the sources is in the log once; the mixture is
 * the schedule's; resume points stay small whatever buffers hold. Method: real files, memory namespaces, logs compared byte for byte.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { decodeSafetensors, type Namespace, openNamespace, systemEnv, tensorValues } from "../../src/index.js";
import { backboneCost } from "../../src/plan/graph/cost.js";
import { tokenize } from "../../src/plan/load/tokenize.js";
import { callbackMix, stagedMix, staticMix, warmUpMix } from "../../src/plan/mix/mix-schedule.js";
import type { PlannedBatch } from "../../src/plan/run/lane-planner.js";
import { OpenPipeline } from "../../src/plan/run/open-pipeline.js";
import { definePipeline, type Pipeline, type PipelineSpec } from "../../src/plan/run/pipeline.js";
import { runPipeline } from "../../src/plan/run/run-pipeline.js";
import { iterable, jsonl } from "../../src/plan/source/source.js";
import { dataFolder, writeJsonl } from "./data-files.js";

const bytes = tokenize({ tokenizer: { kind: "bytes" } });
const fast = { producer: { cadence: { kind: "interval", intervalMs: 5 } } } as const;
let count = 0;

function build(folder: string, spec: Partial<PipelineSpec> = {}): Pipeline {
  return definePipeline({
    namespace: { uri: `memory:pipeline-${count++}`, grid: { rows: 2, chunks: 2 }, lanes: 3 },
    sources: {
      web: jsonl({ shards: join(folder, "web-*.jsonl"), transforms: [bytes] }),
      code: jsonl({ shards: join(folder, "code-*.jsonl.gz"), transforms: [bytes], windowSamplesMax: 8 }),
    },
    strategy: (graph) =>
      graph
        .mix(
          stagedMix([
            { from: 0, weights: { web: 3, code: 1 } },
            { from: 7, weights: { web: 1, code: 1 } },
          ]),
        )
        .cost(backboneCost("llama-12b"))
        .balance("greedy"),
    construct: { seqLength: 256, microbatches: 2 },
    steps: 12,
    seed: 5,
    workers: { threads: 0 },
    ...spec,
  });
}

function data(): string {
  const folder = dataFolder();
  writeJsonl(folder, "web", [60, 90, 70]);
  writeJsonl(folder, "code", [40, 50], { gzip: true });
  return folder;
}

const strategies: Record<string, Partial<PipelineSpec>> = {
  "fill, staged": {},
  "samples, staged": { batch: { samples: 12 } },
  "samples, warm-up, karmarkar-karp": {
    batch: { samples: 10 },
    strategy: (graph) =>
      graph.mix(warmUpMix({ from: { web: 1 }, to: { web: 1, code: 2 }, over: 9 })).balance("karmarkar-karp"),
  },
  "samples that do not always fit": { batch: { samples: 15 }, construct: { seqLength: 200, microbatches: 2 } },
  "cp, first-fit, two sequences": {
    strategy: (graph) =>
      graph
        .mix(staticMix({ web: 1, code: 1 }))
        .distribute("cp")
        .balance(),
    construct: { seqLength: 256, sequences: 2, packing: "first-fit" },
  },
};

async function plan(
  pipeline: Pipeline,
  lane: number,
  lanes: number,
  batches: number,
  from?: unknown,
): Promise<PlannedBatch[]> {
  await using open = await OpenPipeline.open(pipeline, systemEnv);
  const planner = open.planner(lane, lanes, from);
  const made: PlannedBatch[] = [];
  for (let i = 0; i < batches; i++) {
    const batch = await planner.next();
    if (!batch) break;
    made.push(batch);
  }
  return made;
}

const textOf = (batch: PlannedBatch): string =>
  JSON.stringify([
    batch.seq,
    batch.step,
    batch.lineage,
    batch.resumePoint,
    batch.notes,
    batch.slices.map((s) => Buffer.from(s).toString("base64")),
  ]);

async function logText(ns: Namespace): Promise<string[]> {
  const { steps } = await ns.info();
  const texts: string[] = [];
  for (let step = steps.trim; step < steps.end; step++) {
    const { user, resumePoint, producer, seq } = await ns.inspect(step);
    const slices: string[] = [];
    for (let row = 0; row < ns.grid.rows; row++)
      for (let chunk = 0; chunk < ns.grid.chunks; chunk++)
        slices.push(Buffer.from(await ns.readSlice({ step, row, chunk })).toString("base64"));
    texts.push(JSON.stringify({ user, resumePoint, producer, seq, slices }));
  }
  return texts;
}

describe("exact restart", () => {
  for (const [name, spec] of Object.entries(strategies)) {
    test(`${name}: from every resume point the same batches follow, bit for bit`, async () => {
      const folder = data();
      const whole = await plan(build(folder, spec), 1, 3, 6);
      expect(whole.length).toBe(6);
      for (let cut = 0; cut < 5; cut++) {
        const from = JSON.parse(JSON.stringify((whole[cut] as PlannedBatch).resumePoint));
        const rest = await plan(build(folder, spec), 1, 3, 5 - cut, from);
        expect(rest.map(textOf)).toEqual(whole.slice(cut + 1).map(textOf));
      }
    });
  }

  test("buffers decide nothing: however much is read ahead, the batches are the same", async () => {
    const folder = data();
    const one = await plan(build(folder, { buffers: { samplesMax: 1, windowBytesMax: 1, openShardsMax: 1 } }), 0, 2, 6);
    const two = await plan(build(folder, { buffers: { samplesMax: 500 } }), 0, 2, 6);
    expect(one.map(textOf)).toEqual(two.map(textOf));
  });

  test("another pipeline's resume point is refused", async () => {
    const folder = data();
    const [first] = await plan(build(folder), 0, 3, 1);
    await expect(plan(build(folder, { seed: 6 }), 0, 3, 1, first?.resumePoint)).rejects.toThrow(/pipeline has changed/);
    await expect(plan(build(folder), 1, 3, 1, first?.resumePoint)).rejects.toThrow(/part 0 of 3, not 1 of 3/);
  });

  test("a callback's value is stored, and a batch made again from it is the same whatever the callback says then", async () => {
    const folder = data();
    const withLoss = (loss: number): Pipeline =>
      build(folder, {
        batch: { samples: 9 },
        strategy: (graph) => graph.mix(callbackMix(({ metrics }) => ({ web: 1, code: metrics["loss"] as number }))),
        metrics: () => ({ loss }),
      });
    const made = await plan(withLoss(2), 0, 1, 3);
    expect(made[1]?.notes.mix).toEqual({ web: 1, code: 2 });
    await using open = await OpenPipeline.open(withLoss(50), systemEnv);
    const planner = open.planner(0, 1, made[0]?.resumePoint);
    const again = await planner.next({ recorded: made[1]?.notes.mix });
    expect(textOf(again as PlannedBatch)).toBe(textOf(made[1] as PlannedBatch));
  });
});

describe("logs", () => {
  test("one producer with three lanes, three with one, or restarts in between: the same log", async () => {
    const folder = data();
    const one = build(folder);
    await runPipeline(one, fast);
    const wanted = await logText(await openNamespace(one.spec.namespace.uri));
    expect(wanted.length).toBe(12);

    const three = build(folder);
    const results = await Promise.all([0, 1, 2].map((lane) => runPipeline(three, { ...fast, lanes: [lane] })));
    expect(results.some(({ closed }) => closed)).toBe(true);
    expect(await logText(await openNamespace(three.spec.namespace.uri))).toEqual(wanted);

    const broken = build(folder);
    for (let round = 0; round < 4; round++) {
      await runPipeline(broken, { ...fast, lanes: [0, 2], batchesMax: 2 + round });
      await runPipeline(broken, { ...fast, lanes: [1], batchesMax: 1 });
    }
    const result = await runPipeline(broken, fast);
    expect(result).toMatchObject({ closed: true, end: 12 });
    expect(await logText(await openNamespace(broken.spec.namespace.uri))).toEqual(wanted);
  });

  test("commit order: two producers with a part each read no sample twice", async () => {
    const folder = data();
    const pipeline = build(folder, {
      namespace: { uri: `memory:pipeline-${count++}`, grid: { rows: 2, chunks: 2 }, order: "commit" },
      sources: { web: jsonl({ shards: join(folder, "web-*.jsonl"), transforms: [bytes], epochs: 1 }) },
      strategy: (graph) => graph.balance(),
      steps: undefined,
    });
    const seen: string[] = [];
    await Promise.all(
      [0, 1].map((index) =>
        runPipeline(
          pipeline,
          { id: `p${index}`, part: { index, count: 2 } },
          { onBatch: ({ lineage }) => seen.push(...lineage.map(({ id }) => id)) },
        ),
      ),
    );
    expect(seen.length).toBe(220);
    expect(new Set(seen).size).toBe(220);
  });

  test("finite sources: every sample is in the log once, the mixture is met while it can be, and the log is closed", async () => {
    const folder = data();
    const finite = { epochs: 1, transforms: [bytes] };
    for (const batch of [{ fill: "tokens" } as const, { samples: 11 }]) {
      const pipeline = build(folder, {
        sources: {
          web: jsonl({ shards: join(folder, "web-*.jsonl"), ...finite }),
          code: jsonl({ shards: join(folder, "code-*.jsonl.gz"), ...finite }),
        },
        batch,
        steps: undefined,
      });
      const seen: string[] = [];
      const result = await runPipeline(pipeline, fast, {
        onBatch: ({ lineage }) => seen.push(...lineage.map(({ source, id }) => `${source} ${id}`)),
      });
      expect(seen.length).toBe(310);
      expect(new Set(seen).size).toBe(310);
      expect(result.closed).toBe(true);
      expect(result.summary.samples).toBe(310);
    }
  });

  test("the mixture of each phase is exactly the schedule's, over all lanes", async () => {
    const folder = data();
    const pipeline = build(folder, {
      batch: { samples: 10 },
      steps: 20,
      strategy: (graph) =>
        graph.mix(
          stagedMix([
            { from: 0, weights: { web: 0.73, code: 0.27 }, name: "early" },
            { from: 10, weights: { web: 0.41, code: 0.59 }, name: "late" },
          ]),
        ),
    });
    const { summary } = await runPipeline(pipeline, fast);
    expect(summary.mixture.map(({ phase, off, shares }) => [phase, off, shares.map((s) => s.samples)])).toEqual([
      ["early", 0, [73, 27]],
      ["late", 0, [41, 59]],
    ]);
  });
});

test("resume points of 300 sources take at most 16 KiB, whatever buffers hold", async () => {
  const folder = dataFolder();
  writeJsonl(
    folder,
    "a",
    Array.from({ length: 300 }, () => 40),
  );
  const names = Array.from({ length: 300 }, (_, i) => `source-with-a-rather-long-name-${i}`);
  const shards = (i: number): string => join(folder, `a-${String(i).padStart(3, "0")}.jsonl`);
  const pipeline = definePipeline({
    namespace: { uri: "memory:", grid: { rows: 8, chunks: 1 }, lanes: 8 },
    sources: Object.fromEntries(
      names.map((name, i) => [name, jsonl({ shards: shards(i), transforms: [bytes], weight: 1 + (i % 17) / 7 })]),
    ),
    strategy: (graph) => graph.balance(),
    construct: { seqLength: 4096, microbatches: 2 },
    batch: { samples: 800 },
    workers: { threads: 0 },
    buffers: { samplesMax: 500 },
  });
  const batches = await plan(pipeline, 7, 8, 12);
  const sizes = batches.map(({ resumePoint }) => JSON.stringify(resumePoint).length);
  expect(batches.length).toBe(12);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(16_384);
  expect((batches.at(-1)!.resumePoint as { positions: unknown[] }).positions.every((p) => p !== 0)).toBe(true);
});

describe("contents", () => {
  test("slices hold the samples of the lineage, packed, padded, labelled and cut", async () => {
    const folder = data();
    const pipeline = build(folder);
    const [batch] = await plan(pipeline, 0, 1, 1);
    const { plans, slices, lineage } = batch as PlannedBatch;
    expect(lineage.length).toBe(plans.backbone.samples.length);
    const cells = slices.map((slice) => decodeSafetensors(slice, "slice").tensors);
    const column = (row: number, name: string): number[][] => {
      const halves = [0, 1].map((chunk) => {
        const tensor = cells[row * 2 + chunk]!.get(name)!;
        return { values: [...(tensorValues(tensor) as Int32Array)], width: tensor.shape.at(-1) as number };
      });
      return [0, 1].map((mb) => halves.flatMap(({ values, width }) => values.slice(mb * width, (mb + 1) * width)));
    };
    plans.backbone.buckets.forEach((bucket, row) => {
      const [tokens, labels, mask, positions, segments] = [
        "tokens",
        "labels",
        "loss_mask",
        "position_ids",
        "segment_ids",
      ].map((n) => column(row, n));
      bucket.bins.forEach((bin, mb) => {
        let at = 0;
        bin.samples.forEach((i, s) => {
          const length = plans.backbone.samples[i]!.tokens;
          const own = tokens![mb]!.slice(at, at + length);
          expect(segments![mb]!.slice(at, at + length)).toEqual(new Array(length).fill(s + 1));
          expect(positions![mb]!.slice(at, at + length)).toEqual([...Array(length).keys()]);
          expect(labels![mb]!.slice(at, at + length)).toEqual([...own.slice(1), -100]);
          expect(mask![mb]!.slice(at, at + length)).toEqual([...new Array(length - 1).fill(1), 0]);
          expect(Buffer.from(own).toString()).toMatch(/^sample \d+ of (web|code) /);
          at += length;
        });
        expect(tokens![mb]!.slice(at)).toEqual(new Array(256 - at).fill(0));
        expect(segments![mb]!.slice(at).every((s) => s === 0)).toBe(true);
      });
    });
  });

  test("a sample that is too long is cut, left out or fatal, and never silently", async () => {
    const folder = dataFolder();
    writeFileSync(
      join(folder, "a.jsonl"),
      [20, 900, 30].map((n) => JSON.stringify({ text: "x".repeat(n) })).join("\n"),
    );
    const of = (tooLong: "split" | "truncate" | "skip" | "stop"): Pipeline =>
      build(folder, {
        sources: { a: jsonl({ shards: join(folder, "a.jsonl"), transforms: [bytes], epochs: 1, shuffle: false }) },
        strategy: (graph) => graph,
        construct: { seqLength: 256, tooLong, droppedShareMax: 1 },
      });
    const split = (await plan(of("split"), 0, 1, 9)).flatMap(({ lineage }) => lineage);
    expect(split.map(({ tokens }) => tokens).sort((a, b) => a - b)).toEqual([20, 30, 132, 256, 256, 256]);
    const [cut] = await plan(of("truncate"), 0, 1, 1);
    expect(cut?.lineage.map(({ tokens }) => tokens).sort((a, b) => a - b)).toEqual([20, 30, 256]);
    expect(cut?.notes.faults?.[0]?.reason).toMatch(/900 tokens.*truncated/);
    const [out] = await plan(of("skip"), 0, 1, 1);
    expect(out?.lineage.filter(({ row }) => row !== undefined).length).toBe(2);
    expect(out?.notes.faults).toMatchObject([{ stage: "length" }]);
    await expect(plan(of("stop"), 0, 1, 1)).rejects.toThrow(/900 tokens do not fit/);
  });
});

test("what of the balance survives on another dp: rows are even, so any way of dealing whole rows to ranks is", async () => {
  const lengths = fc.sample(fc.integer({ min: 1, max: 60 }), { numRuns: 4000, seed: 1 }).map((n) => 4 * n);
  const pipeline = definePipeline({
    namespace: { uri: "memory:", grid: { rows: 8, chunks: 1 } },
    sources: {
      a: iterable({
        open: function* () {
          for (const length of lengths) yield { value: { tokens: new Array(length).fill(1) }, bytes: length };
        },
      }),
    },
    strategy: (graph) => graph.cost(backboneCost("llama-12b")).balance("karmarkar-karp"),
    construct: { seqLength: 1024, microbatches: 4 },
    workers: { threads: 0 },
  });
  const [batch] = await plan(pipeline, 0, 1, 1);
  const rows = (batch as PlannedBatch).plans.backbone.buckets.map(({ compute }) => compute);
  const spread = (groups: number[]): number =>
    (Math.max(...groups) * groups.length) / groups.reduce((a, b) => a + b, 0);
  const atEight = spread(rows);
  for (const dp of [1, 2, 4]) {
    // global-batch: rank d takes rows [d * 8 / dp, …). Sums of even rows are no less even.
    const sums = Array.from({ length: dp }, (_, d) =>
      rows.slice((d * 8) / dp, ((d + 1) * 8) / dp).reduce((a, b) => a + b, 0),
    );
    expect(spread(sums)).toBeLessThanOrEqual(atEight + 1e-12);
  }
  // per-rank with dp 6: rows 0..5 make an iteration; single rows, so at most as uneven as the rows are against their own mean.
  expect(spread(rows.slice(0, 6))).toBeLessThanOrEqual((atEight * 8 * Math.max(...rows)) / (8 * Math.min(...rows)));
  expect(atEight).toBeLessThan(1.05);
});
