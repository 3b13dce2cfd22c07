/**
 * Property: a fleet is sized by what sources really cost. Profiles are measured by running them; clusters are the best of their number; demand follows the
 * phases of the mixture; no process gets more than it has; a limit that binds is named with the step time it allows; nonsense is one sentence.
 * Method: pure functions with drawn costs; real sources with a transform of known cost; the command with a plan file.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isBatchWeaveError, systemEnv } from "../../src/index.js";
import {
  clusterCosts,
  definePipeline,
  demandPhases,
  describeFleet,
  external,
  type FleetCosts,
  type FleetPlan,
  jsonl,
  type Pipeline,
  type PipelineSpec,
  planFleet,
  python,
  readFleetPlan,
  type SourceProfile,
  sizeFleet,
  stagedMix,
  staticMix,
  tokenize,
  transform,
  warmUpMix,
  withFleetPlan,
} from "../../src/plan/index.js";
import { partition } from "../../src/plan/size/partition.js";
import { dataFolder, writeJsonl } from "./data-files.js";

const odd = new URL("./odd-transforms.mjs", import.meta.url);

describe("clusters", () => {
  test("hold every source once, the dearest first, and no other division into as many is closer", () => {
    const costs = fc.array(fc.double({ min: 0.02, max: 1_000, noNaN: true }), { minLength: 1, maxLength: 9 });
    fc.assert(
      fc.property(costs, fc.integer({ min: 1, max: 4 }), (list, count) => {
        const clusters = clusterCosts(list, count);
        const members = clusters.flatMap((cluster) => [...cluster.members]);
        expect([...members].sort((a, b) => a - b)).toEqual(list.map((_, i) => i));
        for (const [i, { least, most }] of clusters.entries()) {
          expect(least).toBeLessThanOrEqual(most);
          expect(most).toBeLessThanOrEqual(clusters[i - 1]?.least ?? Number.POSITIVE_INFINITY);
        }
        const spread = (groups: readonly (readonly number[])[]): number =>
          groups.reduce((sum, own) => {
            const logs = own.map((i) => Math.log(list[i] as number));
            const mean = logs.reduce((a, b) => a + b, 0) / logs.length;
            return sum + logs.reduce((a, x) => a + (x - mean) ** 2, 0);
          }, 0);
        const found = spread(clusters.map((cluster) => cluster.members));
        for (const other of divisions(members, clusters.length))
          expect(found).toBeLessThanOrEqual(spread(other) + 1e-9);
      }),
    );
  });

  function* divisions(order: readonly number[], groups: number): Generator<number[][]> {
    if (groups === 1) {
      yield [[...order]];
      return;
    }
    for (let cut = 1; cut <= order.length - groups + 1; cut++)
      for (const rest of divisions(order.slice(cut), groups - 1)) yield [order.slice(0, cut), ...rest];
  }
});

describe("demand", () => {
  const names = ["a", "b"];
  test("finds the phases of a schedule and its shares, also far away, and both ends of a warm-up", () => {
    const staged = stagedMix([
      { from: 0, weights: { a: 1, b: 9 } },
      { from: 1_234_567, weights: { a: 9, b: 1 } },
    ]);
    expect(demandPhases(staged, names, {}).map(({ from, shares }) => [from, shares])).toEqual([
      [0, [0.1, 0.9]],
      [1_234_567, [0.9, 0.1]],
    ]);
    expect(demandPhases(staged, names, {}, 1_000)).toHaveLength(1);
    const ramp = warmUpMix({ from: { a: 1 }, to: { b: 1 }, over: 100 });
    expect(demandPhases(ramp, names, {}).map(({ from, shares }) => [from, shares[0]?.toFixed(2)])).toEqual([
      [0, "1.00"],
      [99, "0.01"],
      [100, "0.00"],
    ]);
  });
});

describe("parts", () => {
  test("go into as few processes as have room, and none has more than it can", () => {
    const part = fc.record({
      source: fc.integer({ min: 0, max: 20 }),
      threads: fc.double({ min: 0, max: 4, noNaN: true }),
      main: fc.double({ min: 0, max: 0.5, noNaN: true }),
    });
    fc.assert(
      fc.property(fc.array(part, { minLength: 1, maxLength: 60 }), (parts) => {
        const bins = partition(parts, { threads: 8, main: 1 });
        expect(bins.flat()).toHaveLength(parts.length);
        for (const held of bins) {
          expect(held.reduce((sum, { threads }) => sum + threads, 0)).toBeLessThanOrEqual(8.001);
          expect(held.reduce((sum, { main }) => sum + main, 0)).toBeLessThanOrEqual(1.001);
        }
        const least = Math.max(
          parts.reduce((sum, { threads }) => sum + threads, 0) / 8,
          parts.reduce((sum, { main }) => sum + main, 0),
        );
        // Never more than twice the least, and one: no two processes are half empty.
        expect(bins.length).toBeLessThanOrEqual(2 * Math.ceil(least) + 1);
      }),
    );
  });
});

const profile = (source: string, loaderMs: number, more: Partial<SourceProfile> = {}): SourceProfile => ({
  source,
  shards: 64,
  shardBytes: 1e9,
  lanesMax: 64,
  samples: 64,
  faults: 0,
  tokens: 1_000,
  pieces: 1,
  readMs: 0.01,
  loaderMs,
  constructorMs: 0,
  reads: 0.01,
  readBytes: 4_000,
  readyBytes: 4_000,
  windowBytes: 1e6,
  ...more,
});

const costsOf = (profiles: readonly SourceProfile[], more: Partial<FleetCosts> = {}): FleetCosts => ({
  profiles,
  construct: { buildMs: 50, batchBytes: 4e6, samples: 1_000, tokens: 1e6, slots: 1e6 },
  phases: [{ name: "all", from: 0, shares: profiles.map(() => 1 / profiles.length) }],
  lanes: 8,
  processBytes: 1e8,
  threadBytes: 3e7,
  bufferSamplesMax: 64,
  bufferBytesMax: 2 ** 28,
  windowBytesMax: 2 ** 28,
  blockBytes: 2 ** 22,
  blockSamples: 256,
  ...more,
});

describe("the plan", () => {
  test("a source that is ten times dearer gets ten times the threads", () => {
    const { sources, loaders } = planFleet(costsOf([profile("a", 10), profile("b", 100)]), { stepSeconds: 1 });
    expect((sources["b"]?.threads ?? 0) / (sources["a"]?.threads ?? 1)).toBeCloseTo(10);
    // 500 documents a second of 10 and of 100 ms: 55 threads, three quarters busy.
    expect(loaders.processes * loaders.threads).toBeGreaterThanOrEqual(55 / 0.75);
    expect(loaders.processes * loaders.threads).toBeLessThan((55 / 0.75) * 1.2);
  });

  test("takes for each source the phase that needs most of it, and for the fleet the phase that needs most", () => {
    const phases = [
      { name: "first", from: 0, shares: [0.9, 0.1] },
      { name: "second", from: 100, shares: [0.1, 0.9] },
    ];
    const plan = planFleet(costsOf([profile("a", 10), profile("b", 40)], { phases }), { stepSeconds: 2 });
    expect(plan.sources).toMatchObject({ a: { phase: "first" }, b: { phase: "second" } });
    expect(plan.loaders.cores).toBeCloseTo((100 * 10.01 + 900 * 40.01) / 1_000 / 2 / 0.75, 1);
  });

  test("names what binds: cores, a source that cannot be divided, the lanes of the training log", () => {
    const dear = [profile("a", 10), profile("b", 100)];
    const few = planFleet(costsOf(dear), { stepSeconds: 1, cores: 8 });
    expect(few).toMatchObject({ feeds: false, binding: { what: "8 cores" } });
    // Given the step time that it says, it feeds.
    expect(planFleet(costsOf(dear), { stepSeconds: few.binding.stepSeconds * 1.001, cores: 8 }).feeds).toBe(true);
    const whole = planFleet(costsOf([profile("a", 10), profile("b", 100, { lanesMax: 1 })]), { stepSeconds: 1 });
    expect(whole).toMatchObject({ feeds: false, binding: { what: "source b: 1 lane at most" } });
    // A log's lanes are what processes can hold: neither more because there are many shards, nor fewer because there is one.
    const held = (lanes: number, lanesMax: number, readMs = 0.01): FleetPlan =>
      planFleet(costsOf([profile("b", 100, { lanes, lanesMax, readMs })]), { stepSeconds: 1 });
    expect(held(4, 64)).toMatchObject({
      feeds: false,
      binding: { what: "source b: 4 lanes" },
      sources: { b: { lanes: 4 } },
    });
    expect(held(4, 64).binding.remedy).toMatch(/^more lanes of it .*can be divided into 64/);
    expect(held(32, 1)).toMatchObject({ feeds: true, sources: { b: { lanes: 32, lanesMax: 1 } } });
    expect(held(32, 1, 5).binding).toMatchObject({
      what: "source b: 32 lanes",
      remedy: expect.stringMatching(/shards/),
    });
    const slow = costsOf([profile("a", 1)], { construct: { ...costsOf([]).construct, buildMs: 40_000 } });
    expect(planFleet(slow, { stepSeconds: 4 }).binding.what).toBe("the training log's 8 lanes");
    expect(describeFleet(few)).toMatch(/NOT ENOUGH: a step every 1.00 s/);
  });

  test("refuses no time, no processes, and more memory than there is, in one sentence", () => {
    const refused = (needs: Parameters<typeof planFleet>[1]): unknown => {
      try {
        return planFleet(costsOf([profile("a", 100)]), needs);
      } catch (error) {
        return isBatchWeaveError(error) ? [error.code, error.message] : error;
      }
    };
    expect(refused({ stepSeconds: 0 })).toEqual([
      "INVALID_ARGUMENT",
      expect.stringMatching(/^No step takes 0 seconds\./),
    ]);
    expect(refused({ stepSeconds: 1, processes: 0 })).toEqual([
      "INVALID_ARGUMENT",
      "processes must be at least 1, not 0.",
    ]);
    expect(refused({ stepSeconds: 1, memoryBytes: 1e6 })).toEqual([
      "LIMIT",
      expect.stringMatching(/needs .* GB .* there are 0.00 GB/),
    ]);
  });

  test("306 sources: cheap ones share processes, and memory does not grow with their number", () => {
    const many = Array.from({ length: 306 }, (_, i) => profile(`s${i}`, 0.5 * 1.02 ** i));
    const plan = planFleet(costsOf(many), { stepSeconds: 5 });
    expect(plan.clusters.map(({ sources }) => sources).reduce((a, b) => a + b)).toBe(306);
    expect(plan.loaders.processes).toBeLessThan(30);
    expect(plan.loaders.memoryBytes).toBeLessThan(1e8 + 8 * 3e7 + 2 * 2 ** 28 + 1);
  });
});

function build(folder: string, spec: Partial<PipelineSpec> = {}): ReturnType<typeof definePipeline> {
  const source = (name: string, ms: number) =>
    jsonl({ shards: join(folder, `${name}-*.jsonl`), transforms: [transform(odd, "slow", { ms })] });
  return definePipeline({
    namespace: { uri: "memory:sized", grid: { rows: 2, chunks: 1 }, lanes: 2 },
    sources: { web: source("web", 0.5), code: source("code", 5) },
    strategy: (graph) => graph.mix(staticMix({ web: 3, code: 1 })).balance(),
    construct: { seqLength: 2_048 },
    batch: { samples: 16 },
    workers: { threads: 0 },
    ...spec,
  });
}

describe("measured", () => {
  const settings = { samplesMax: 24, msMax: 1_500 };

  test("real sources: the cost of a sample is what its transform takes, and bytes are those of the shards", async () => {
    const folder = dataFolder();
    const lines = writeJsonl(folder, "web", [300, 300]);
    writeJsonl(folder, "code", [100]);
    const size = ["000", "001"].reduce((sum, n) => sum + readFileSync(join(folder, `web-${n}.jsonl`)).length, 0);
    const { plan, costs } = await sizeFleet(build(folder), { stepSeconds: 1 }, settings, { env: systemEnv });
    const [web, code] = costs.profiles as [SourceProfile, SourceProfile];
    // Never less than it takes; how much more is the machine's.
    expect(web.loaderMs).toBeGreaterThanOrEqual(0.5);
    expect(code.loaderMs).toBeGreaterThanOrEqual(5);
    const dearer = code.loaderMs >= web.loaderMs ? "code" : "web";
    expect(plan.sources[dearer]?.cluster).toBe(0);
    expect(web).toMatchObject({ shards: 2, shardBytes: size, faults: 0, pieces: 1 });
    expect(web.readBytes).toBeGreaterThan((0.5 * size) / lines);
    expect(web.readBytes).toBeLessThan((4 * size) / lines);
    expect(web.tokens).toBeGreaterThan(16);
    expect(costs.construct).toMatchObject({ samples: 16, slots: 4_096 });
    expect(plan.sources["web"]?.samplesPerSecond).toBeCloseTo(12);
    expect(describeFleet(plan)).toMatch(/^source +cluster/);
  });

  test("a machine that stands still during the first read does not make every sample dear", async () => {
    const folder = dataFolder();
    writeJsonl(folder, "web", [600]);
    writeJsonl(folder, "code", [600]);
    let [calls, stalledMs] = [0, 0];
    const stalling = {
      ...systemEnv,
      // Somewhere in the first window of the first source.
      monotonic: (): number => {
        if (++calls === 4) stalledMs = 5_000;
        return systemEnv.monotonic() + stalledMs;
      },
    };
    const { costs } = await sizeFleet(build(folder), { stepSeconds: 1 }, settings, { env: stalling });
    expect(stalledMs).toBe(5_000);
    expect(costs.profiles[0]?.readMs).toBeLessThan(5);
  });

  test("a source without samples, with nothing that can be used, or without its files is refused by name", async () => {
    const folder = dataFolder();
    writeJsonl(folder, "web", [10]);
    const attempt = async (): Promise<unknown> =>
      await sizeFleet(build(folder), { stepSeconds: 1 }, settings, { env: systemEnv }).catch((error: unknown) =>
        isBatchWeaveError(error) ? [error.code, error.message] : error,
      );
    writeFileSync(join(folder, "code-000.jsonl"), "");
    expect(await attempt()).toEqual(["INVALID_ARGUMENT", expect.stringMatching(/^Source code has no samples/)]);
    writeFileSync(join(folder, "code-000.jsonl"), "{ broken\n");
    expect(await attempt()).toEqual(["CORRUPT", expect.stringMatching(/^Source code failed at sample/)]);
    const gone = build(folder, {
      sources: { web: jsonl({ shards: join(folder, "not-there.jsonl") }) },
      strategy: (graph) => graph,
    });
    const error = await sizeFleet(gone, { stepSeconds: 1 }, settings, { env: systemEnv }).catch((e: unknown) => e);
    expect(isBatchWeaveError(error, "MISSING_OBJECT")).toBe(true);
  });
});

describe("the plan file", () => {
  test("is read back as it was written, gives its threads to a role, and anything else is refused", async () => {
    const folder = dataFolder();
    const plan = planFleet(costsOf([profile("web", 10), profile("code", 20)]), { stepSeconds: 1 });
    const path = join(folder, "plan.json");
    writeFileSync(path, JSON.stringify(plan));
    expect(await readFleetPlan(path)).toEqual(plan);
    const pipeline = build(folder, { workers: {} });
    expect(withFleetPlan(pipeline, plan, "loaders").spec.workers?.threads).toBe(plan.loaders.threads);
    const other = planFleet(costsOf([profile("books", 10)]), { stepSeconds: 1 });
    expect(() => withFleetPlan(pipeline, other, "loaders")).toThrow(/names books, which the pipeline does not have/);
    for (const [text, why] of [
      ["{", /not JSON/],
      ["{}", /does not say that it is one/],
      [JSON.stringify({ ...plan, v: 2 }), /version 2/],
      [JSON.stringify({ ...plan, loaders: {} }), /how many processes/],
    ] as const) {
      writeFileSync(path, text);
      await expect(readFleetPlan(path)).rejects.toThrow(why);
    }
    await expect(readFleetPlan(join(folder, "none.json"))).rejects.toThrow(/cannot be read \(ENOENT\)/);
  });
});

test("a Python source is measured by its own loader, one that another program fills by what is in its log", async () => {
  const folder = dataFolder();
  mkdirSync(folder, { recursive: true });
  writeJsonl(folder, "web", [20]);
  const text = `
import time
from batchweave.load import Source, stream

def tokens(n):
    time.sleep(0.02)
    return {"tokens": [n] * 50}

books = Source("books", stream(lambda: range(40)), transforms=[tokens], lanes=4)
`;
  writeFileSync(join(folder, "books.py"), text);
  const build = (others: PipelineSpec["sources"]): Pipeline =>
    definePipeline({
      namespace: { uri: `file://${folder}/log`, grid: { rows: 2, chunks: 1 }, lanes: 2 },
      sources: {
        web: jsonl({ shards: join(folder, "web-*.jsonl*"), transforms: [tokenize({ tokenizer: { kind: "bytes" } })] }),
        ...others,
      },
      strategy: (graph) => graph.balance(),
      construct: { seqLength: 1_000 },
      workers: { threads: 0 },
      exchange: "log",
    });
  const measure = { samplesMax: 8, msMax: 2_000 };
  const inPython = python({ file: join(folder, "books.py:books"), lanes: 4 });
  const before = process.env["PYTHONPATH"];
  process.env["PYTHONPATH"] = join(import.meta.dirname, "../../python");
  try {
    // 1,000 tokens a step are 20 samples of 50, 20 ms each: 0.4 s of a worker, three quarters busy.
    const { plan, costs } = await sizeFleet(build({ books: inPython }), { stepSeconds: 0.1, threads: 2 }, measure, {
      env: systemEnv,
    });
    const books = costs.profiles.find(({ source }) => source === "books");
    expect(books?.loaderMs).toBeGreaterThanOrEqual(20);
    expect(books).toMatchObject({ tokens: 50, faults: 0 });
    expect(plan.sources["books"]?.own).toMatchObject({ threads: 2 });
    expect(plan.sources["books"]?.own?.processes).toBeGreaterThanOrEqual(3);
    expect(plan.sources["web"]?.own).toBe(undefined);
    expect(describeFleet(plan)).toMatch(/load books +\d processes of 2 workers, .* in Python/);
    const missing = sizeFleet(build({ rows: external({ lanes: 1 }) }), { stepSeconds: 1 }, measure, { env: systemEnv });
    await expect(missing).rejects.toThrow(
      /Source rows is filled by a program of its own, and there is no block of it at/,
    );
    const script = `
from batchweave.load import SampleWriter
with SampleWriter("file://${folder}/log.sources", "rows") as writer:
    writer.write({"tokens": [n] * 30} for n in range(10))`;
    expect(spawnSync("python3", ["-c", script], { encoding: "utf8" }).stderr).toBe("");
    const seen = await sizeFleet(build({ rows: external({ lanes: 1 }) }), { stepSeconds: 1 }, measure, {
      env: systemEnv,
    });
    expect(seen.costs.profiles.find(({ source }) => source === "rows")).toMatchObject({ tokens: 30, loaderMs: 0 });
    expect(seen.plan.sources["rows"]?.own).toEqual({ processes: 0, threads: 0, memoryBytes: 0 });
    writeFileSync(join(folder, "books.py"), text.replace("time.sleep(0.02)", "raise ValueError('bad row')"));
    const broken = sizeFleet(build({ books: inPython }), { stepSeconds: 1 }, measure, { env: systemEnv });
    await expect(broken).rejects.toThrow(
      /Source books could not be measured by its Python loader: .*ValueError: bad row/,
    );
  } finally {
    if (before === undefined) delete process.env["PYTHONPATH"];
    else process.env["PYTHONPATH"] = before;
  }
});
