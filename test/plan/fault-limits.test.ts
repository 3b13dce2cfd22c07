/**
 * Property: `onFault: "skip"` leaves out bad samples and never hides a broken pipeline. Missing files, packages and fields stop it with their own
 * code; so does a source of which too large a share is faulty; no batch is empty; every fault is counted, and told while it runs. Method: small
 * pipelines that are broken in each way, in process, and the built command where signals and exit statuses matter.
 */
import { execFile, spawn } from "node:child_process";
import { existsSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, type TestContext, test } from "vitest";
import { systemEnv } from "../../src/index.js";
import type { Fault } from "../../src/plan/load/fault.js";
import { FaultTally } from "../../src/plan/load/fault-tally.js";
import { tokenize } from "../../src/plan/load/tokenize.js";
import { placed, type Transform, transform } from "../../src/plan/load/transform.js";
import type { PlannedBatch } from "../../src/plan/run/lane-planner.js";
import { OpenPipeline } from "../../src/plan/run/open-pipeline.js";
import { definePipeline, type Pipeline, type PipelineSpec } from "../../src/plan/run/pipeline.js";
import { runPipeline } from "../../src/plan/run/run-pipeline.js";
import { iterable, jsonl, parquet, type Source, type SourceSettings } from "../../src/plan/source/source.js";
import { dataFolder, writeJsonl, writeParquet } from "./data-files.js";

const odd = new URL("./odd-transforms.mjs", import.meta.url);
const bytes = tokenize({ tokenizer: { kind: "bytes" } });

function build(sources: Record<string, Source>, spec: Partial<PipelineSpec> = {}): Pipeline {
  return definePipeline({
    namespace: { uri: "memory:", grid: { rows: 1, chunks: 1 } },
    sources,
    strategy: (graph) => graph,
    construct: { seqLength: 256 },
    workers: { threads: 0 },
    ...spec,
  });
}

/** Values `{ n }` from 0 on. */
const counting = (count: number, settings: SourceSettings): Source =>
  iterable({
    open: function* () {
      for (let n = 0; n < count; n++) yield { value: { n }, bytes: 8 };
    },
    shuffle: false,
    onFault: "skip",
    ...settings,
  });

async function planned(
  pipeline: Pipeline,
  signal?: AbortSignal,
  onFault?: (fault: Fault) => void,
): Promise<PlannedBatch[]> {
  await using open = await OpenPipeline.open(pipeline, systemEnv, { onFault });
  const planner = open.planner(0, 1);
  const batches: PlannedBatch[] = [];
  for (let batch = await planner.next({ signal }); batch; batch = await planner.next({ signal })) batches.push(batch);
  return batches;
}

describe("a broken pipeline stops whatever the policy says", () => {
  const folder = (): string => {
    const path = dataFolder();
    writeJsonl(path, "a", [20]);
    return path;
  };
  const cases: Record<string, readonly [transforms: Transform[], code: string, message: RegExp]> = {
    "a tokenizer file that is not there": [
      [tokenize({ tokenizer: { kind: "huggingface", file: "/nowhere/tokenizer.json" } })],
      "INVALID_ARGUMENT",
      /Source a .*\/nowhere\/tokenizer.json cannot be read.*ENOENT/,
    ],
    "a file that is no tokenizer": [
      [tokenize({ tokenizer: { kind: "huggingface", file: fileURLToPath(odd) } })],
      "INVALID_ARGUMENT",
      /odd-transforms.mjs is not a tokenizer.json/,
    ],
    "a field that is not there": [
      [tokenize({ tokenizer: { kind: "bytes" }, field: "txet" })],
      "INVALID_ARGUMENT",
      /no field txet.*it has id, text/,
    ],
    "a module that is not there": [
      [transform("file:///nowhere/clean.mjs", "clean")],
      "INVALID_ARGUMENT",
      /clean.* cannot be loaded.*\/nowhere\/clean.mjs/,
    ],
    "a function that is not there": [[transform(odd, "nothing")], "INVALID_ARGUMENT", /exports no function nothing/],
    "no tokenizer at all": [[], "INVALID_ARGUMENT", /no tokens after its transforms/],
  };
  for (const [name, [transforms, code, message]] of Object.entries(cases)) {
    for (const onFault of ["skip", "retry", "stop"] as const) {
      test(`${name}: ${onFault}`, async () => {
        const shards = join(folder(), "a-*.jsonl");
        const source = jsonl({ shards, transforms, onFault, afterRetries: onFault === "retry" ? "skip" : undefined });
        const failure = await planned(build({ a: source })).catch((error: unknown) => error);
        expect(failure).toMatchObject({ code, message: expect.stringMatching(message) });
      });
    }
  }

  test("a package that is not there", async () => {
    const file = join(folder(), "needy.mjs");
    writeFileSync(file, 'import "a-package-that-nobody-has"; export const clean = (value) => value;');
    const source = counting(20, { transforms: [transform(`file://${file}`, "clean")] });
    await expect(planned(build({ a: source }))).rejects.toMatchObject({
      code: "MISSING_PACKAGE",
      message: expect.stringContaining("a-package-that-nobody-has"),
    });
  });

  test("a shard that is not there from the beginning", async () => {
    for (const onFault of ["skip", "retry", "stop"] as const) {
      const path = folder();
      const shards = ["a-000.jsonl", "gone.jsonl"].map((name) => join(path, name));
      await expect(planned(build({ a: jsonl({ shards, transforms: [bytes], onFault }) }))).rejects.toMatchObject({
        code: "MISSING_OBJECT",
        message: expect.stringMatching(/Source a: 1 of the files of its 2 shards are not there, first .*gone.jsonl/),
      });
    }
  });

  test("a column that is not there", async () => {
    const path = dataFolder();
    await writeParquet(path, "rows", 30);
    const source = parquet({
      shards: join(path, "rows.parquet"),
      columns: ["txet"],
      transforms: [bytes],
      onFault: "skip",
    });
    await expect(planned(build({ a: source }))).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringMatching(/no column txet.*id, text/),
    });
  });

  test("also in the constructor", async () => {
    const transforms = [transform(odd, "misbehave"), placed(transform(odd, "nothing"), "constructor")];
    await expect(planned(build({ a: counting(9, { epochs: 1, transforms }) }))).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringMatching(/exports no function nothing/),
    });
  });
});

describe("too many faults", () => {
  const every = (n: number): number[] => Array.from({ length: 4_000 / n }, (_, i) => n * i);

  test("more than one in ten of a source stops it, with the share and the last reason", async () => {
    const transforms = [transform(odd, "misbehave", { throwAt: every(5) })];
    await expect(planned(build({ a: counting(1_000, { epochs: 1, transforms }) }))).rejects.toMatchObject({
      code: "LIMIT",
      message: expect.stringMatching(/Source a: 2\d of \d+ samples .*faultShareMax.*refuses \d+/s),
    });
  });

  test("fewer, or as many as the source allows, are left out and counted, each once", async () => {
    for (const [n, faultShareMax] of [
      [20, undefined],
      [5, 0.3],
    ] as const) {
      const transforms = [transform(odd, "misbehave", { throwAt: every(n) })];
      const told: Fault[] = [];
      const pipeline = build({ a: counting(1_000, { epochs: 1, transforms, faultShareMax }) });
      const batches = await planned(pipeline, undefined, (fault) => told.push(fault));
      expect(batches.flatMap(({ faults }) => faults).length).toBe(1_000 / n);
      expect(told.length).toBe(1_000 / n);
    }
  });

  test("a source that goes bad late is noticed, however good it was", async () => {
    const throwAt = Array.from({ length: 3_000 }, (_, i) => 17_000 + i);
    const transforms = [transform(odd, "misbehave", { throwAt })];
    await expect(planned(build({ a: counting(20_000, { epochs: 1, transforms }) }))).rejects.toMatchObject({
      code: "LIMIT",
    });
  });

  test("a source with nothing but faults ends the run in the end, even if all of them are allowed", async () => {
    const transforms = [transform(odd, "misbehave", { throwAt: Array.from({ length: 50 }, (_, i) => i) })];
    const source = counting(50, { transforms, faultShareMax: 1 });
    await expect(planned(build({ a: source }))).rejects.toMatchObject({
      code: "LIMIT",
      message: expect.stringMatching(/10000 .*one after another/),
    });
  });

  test("and hears a signal before that", async () => {
    const transforms = [transform(odd, "misbehave", { throwAt: Array.from({ length: 50 }, (_, i) => i) })];
    const source = counting(50, { transforms, faultShareMax: 1 });
    const stop = new AbortController();
    setTimeout(() => stop.abort(new Error("told to stop")), 20);
    await expect(planned(build({ a: source }), stop.signal)).rejects.toThrow("told to stop");
  });

  test("shards that cannot be read: two of ten stop the source, one does not", async () => {
    for (const broken of [1, 2]) {
      const path = dataFolder();
      writeJsonl(path, "a", new Array(10).fill(200), { gzip: true });
      for (let i = 0; i < broken; i++) writeFileSync(join(path, `a-00${3 * i}.jsonl.gz`), "not gzip at all");
      const source = jsonl({ shards: join(path, "a-*.jsonl.gz"), transforms: [bytes], epochs: 1, onFault: "skip" });
      const run = planned(build({ a: source }));
      if (broken === 1)
        expect((await run).flatMap(({ faults }) => faults).map(({ stage }) => stage)).toEqual(["shard"]);
      else
        await expect(run).rejects.toMatchObject({
          code: "LIMIT",
          message: expect.stringMatching(/2 of its 10 shards/),
        });
    }
  });
});

test("a shard that several lanes find broken, each at its place, is one broken shard", () => {
  const shards = Array.from({ length: 10 }, (_, i) => `a-${i}.parquet`);
  const tally = new FaultTally({ name: "a", shards, settings: {} });
  const broken = (id: string): Fault => ({ source: "a", id, stage: "shard", reason: "it is damaged", attempts: 1 });
  for (const place of ["", " at 128", " at 256"]) tally.add(broken(`a-3.parquet${place}`));
  expect(() => tally.add(broken("a-4.parquet at 128"))).toThrow(/2 of its 10 shards/);
});

describe("no batch is empty", () => {
  test("when every sample of it fails in the constructor", async () => {
    const transforms = [transform(odd, "misbehave"), placed(transform(odd, "letters"), "constructor")];
    await expect(planned(build({ a: counting(20, { epochs: 1, transforms }) }))).rejects.toMatchObject({
      code: "LIMIT",
      message: expect.stringMatching(/Step 0 .*empty.*20 samples/),
    });
  });

  test("when a short source has nothing but faults", async () => {
    const transforms = [transform(odd, "misbehave", { throwAt: [0, 1, 2, 3, 4] })];
    await expect(planned(build({ a: counting(5, { epochs: 1, transforms }) }))).rejects.toMatchObject({
      code: "LIMIT",
      message: expect.stringMatching(/Step 0 .*empty/),
    });
  });

  test("when the last samples are faulty: the log ends before them", async () => {
    const transforms = [transform(odd, "misbehave", { throwAt: [18, 19] })];
    const batches = await planned(build({ a: counting(20, { epochs: 1, transforms }) }, { batch: { samples: 9 } }));
    expect(batches.map(({ notes }) => notes.samples)).toEqual([9, 9]);
  });

  test("samples without tokens are left out and recorded, and stop nothing", async () => {
    const source = iterable({
      open: function* () {
        for (let n = 0; n < 300; n++) yield { value: { text: n % 3 === 0 ? "" : "text" } };
      },
      epochs: 1,
      transforms: [bytes],
    });
    const batches = await planned(build({ a: source }));
    expect(batches.reduce((sum, { notes }) => sum + notes.samples, 0)).toBe(200);
    expect(batches.flatMap(({ faults }) => faults).filter(({ stage }) => stage === "empty").length).toBe(100);
  });
});

test("all faults are counted in the report and in the audit's, not the first hundred of each batch", async () => {
  const transforms = [transform(odd, "misbehave", { throwAt: Array.from({ length: 2_000 }, (_, i) => 2 * i) })];
  const source = counting(4_000, { epochs: 1, transforms, faultShareMax: 0.6 });
  const uri = "memory:all-faults-are-counted";
  const spec = { namespace: { uri, grid: { rows: 1, chunks: 1 }, lanes: 1 }, construct: { seqLength: 1_024 } } as const;
  const pipeline = build({ a: source }, { ...spec });
  const { summary } = await runPipeline(pipeline, {}, {});
  expect(summary.faults).toEqual({ "a transform": 2_000 });
  const { auditPipeline } = await import("../../src/plan/run/audit.js");
  const { openNamespace } = await import("../../src/index.js");
  const audit = await auditPipeline(pipeline, await openNamespace(uri));
  expect(audit.summary.faults).toEqual({ "a transform": 2_000 });
  expect(audit).toMatchObject({ lost: 0, repeated: 0, skipped: 2_000 });
});

describe("the command", () => {
  const root = fileURLToPath(new URL("../..", import.meta.url));
  const cli = join(root, "dist/src/cli/main.js");

  function setUp(context: TestContext, source: string, threads = 1): string {
    if (!existsSync(cli)) context.skip("dist is not built: npm run build");
    const folder = dataFolder();
    mkdirSync(join(folder, "node_modules"));
    symlinkSync(root, join(folder, "node_modules/batchweave"));
    writeJsonl(folder, "web", [400, 400]);
    const file = join(folder, "pipeline.mjs");
    writeFileSync(
      file,
      `import { definePipeline, iterable, jsonl, tokenize, transform } from "batchweave/plan";
       const bytes = { kind: "bytes" };
       const odd = ${JSON.stringify(odd.href)};
       const shards = new URL("./web-*.jsonl", import.meta.url);
       export default definePipeline({
         namespace: { uri: new URL("./log", import.meta.url).href, grid: { rows: 1, chunks: 1 }, lanes: 1 },
         sources: { web: ${source} },
         strategy: (graph) => graph,
         construct: { seqLength: 512 },
         workers: { threads: ${threads} },
         steps: 20,
       });`,
    );
    return file;
  }

  test("a wrong field ends with status 2 and no batch; a missing tokenizer too", async (context) => {
    for (const transform of [
      'tokenize({ tokenizer: bytes, field: "txet" })',
      'tokenize({ tokenizer: { kind: "huggingface", file: "/nowhere/tokenizer.json" } })',
    ]) {
      const file = setUp(context, `jsonl({ shards, onFault: "skip", transforms: [${transform}] })`);
      const { code, stderr } = await new Promise<{ code: unknown; stderr: string }>((resolve) => {
        const child = execFile(
          process.execPath,
          [cli, "run", file],
          { timeout: 120_000, killSignal: "SIGKILL" },
          (error, _, text) => resolve({ code: error?.code ?? child.exitCode, stderr: text }),
        );
      });
      expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringMatching(/INVALID_ARGUMENT/) });
    }
  });

  test("faults are seen while it runs, and the first SIGTERM ends it", async (context) => {
    for (const threads of [0, 1]) {
      const source = `iterable({ open: function* () { for (let n = 0; n < 9; n++) yield { value: { n: 1 } }; },
        transforms: [transform(odd, "slowRefusal")], onFault: "skip", faultShareMax: 1 })`;
      const file = setUp(context, source, threads);
      const child = spawn(process.execPath, [cli, "run", file], { stdio: ["ignore", "ignore", "pipe"] });
      let stderr = "";
      child.stderr.on("data", (chunk: Buffer) => {
        stderr += chunk.toString();
      });
      const guard = setTimeout(() => child.kill("SIGKILL"), 120_000);
      const ended = new Promise<number | null>((resolve) => child.on("exit", (code) => resolve(code)));
      while (!stderr.includes("refuses") && child.exitCode === null) await systemEnv.sleep(50);
      child.kill("SIGTERM");
      // Its own end would have another status, and the guard's has none.
      expect(await ended).toBe(143);
      clearTimeout(guard);
      expect(stderr).toMatch(/web 0:0 .*refuses/);
    }
  });
});
