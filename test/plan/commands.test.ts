/**
 * Property: `batchweave plan` shows plans and writes nothing; `batchweave run` writes the log, goes on after a stop, audits it, and says what is wrong
 * with a file that is no pipeline. Method: the built command on a plain `.mjs` pipeline, as somebody without TypeScript has it, in a folder where
 * Node.js finds no package `batchweave`, as somebody has it who installed the command with pip.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, type TestContext, test } from "vitest";
import { run, start } from "../cli/command-line.js";
import { dataFolder, writeJsonl } from "./data-files.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const cli = join(root, "dist/src/cli/main.js");

async function batchweave(...args: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const { status, stdout, stderr } = await run(...args);
  return { code: status, stdout, stderr };
}

function setUp(context: TestContext): { folder: string; file: string } {
  if (!existsSync(cli)) context.skip("dist is not built: npm run build");
  const folder = dataFolder();
  writeJsonl(folder, "web", [80, 80]);
  const file = join(folder, "pipeline.mjs");
  writeFileSync(
    file,
    `import { definePipeline, jsonl, tokenize } from "batchweave/plan";
     const transforms = [tokenize({ tokenizer: { kind: "bytes" } })];
     export default definePipeline({
       namespace: { uri: new URL("./log", import.meta.url).href, grid: { rows: 2, chunks: 1 }, lanes: 2 },
       sources: { web: jsonl({ shards: new URL("./web-*.jsonl", import.meta.url), transforms }) },
       strategy: (graph) => graph.balance("greedy"),
       construct: { seqLength: 512, microbatches: 2 },
       batch: { samples: 20 },
       steps: 6,
       workers: { threads: 1 },
     });`,
  );
  return { folder, file };
}

test("plan, run, stop, run again, audit", async (context) => {
  const { folder, file } = setUp(context);
  const planned = await batchweave("plan", file, "--steps", "2");
  expect(planned.stdout).toMatch(/step 0 .*20 samples/);
  expect(planned.stdout).toMatch(/step 1 /);
  expect(planned.stdout).toMatch(/dp1 \(ranks 1\) {2}cost/);
  expect(planned.stdout).toMatch(/web tokenizeText +loader/);
  expect(existsSync(join(folder, "log"))).toBe(false);
  const json = await batchweave("plan", file, "--json");
  expect(JSON.parse(json.stdout)).toMatchObject({ step: 0, samples: 20 });

  const fast = ["--durability", "process-crash"];
  const first = await batchweave("run", file, "--batches", "3", ...fast);
  expect(first).toMatchObject({ code: 0 });
  expect(first.stdout).toMatch(/3 batches made here .*the log ends at step 3\n/);
  const second = await batchweave("run", file, "--id", "p9", "--json", ...fast);
  expect(JSON.parse(second.stdout)).toMatchObject({
    batches: 3,
    end: 6,
    closed: true,
    audit: { lost: 0, repeated: 0, from: 0, to: 6 },
    summary: { samples: 120, mixture: [{ off: 0 }] },
  });
});

test("a shard that is gone since is no sample lost or repeated: nothing can be said about its source, and that is said", async (context) => {
  const { folder, file } = setUp(context);
  const names = '["web-000.jsonl", "web-001.jsonl"].map((name) => new URL(name, import.meta.url))';
  writeFileSync(file, readFileSync(file, "utf8").replace('new URL("./web-*.jsonl", import.meta.url)', names));
  expect(await batchweave("run", file, "--durability", "process-crash")).toMatchObject({ code: 0 });
  for (const shard of ["web-000.jsonl", "web-001.jsonl"]) rmSync(join(folder, shard));
  const { code, stdout } = await batchweave("run", file, "--json");
  expect(JSON.parse(stdout)).toMatchObject({
    batches: 0,
    closed: true,
    audit: { lost: 0, repeated: 0, unaudited: [{ source: "web", reason: expect.stringContaining("is not there") }] },
  });
  expect(code).toBe(0);
});

test("what is wrong is said", async (context) => {
  const { folder, file } = setUp(context);
  const other = join(folder, "other.mjs");
  writeFileSync(other, "export default 1;");
  expect(await batchweave("run", other)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("no pipeline as its default export"),
  });
  const text = readFileSync(file, "utf8");
  const wrong: [change: [from: string, to: string], said: string][] = [
    [["steps: 6,", "steps: 6,,"], "other-0.mjs could not be loaded: Unexpected token ','. Mend the file"],
    [["web-*.jsonl", "gone-*.jsonl"], "Source web has no shards: nothing matches"],
    [['graph.balance("greedy")', "42"], "The strategy returned number, not a graph"],
    [['graph.balance("greedy")', "graph.nonsense()"], "The strategy threw: graph.nonsense is not a function"],
    [['graph.balance("greedy")', "graph.mix({ web: 1 })"], "mix takes a schedule"],
    [['graph.balance("greedy")', "graph.balance(() => [0])"], "returned 1 bins for 20 samples"],
    [['graph.balance("greedy")', "graph.cost(() => NaN).balance()"], "The cost function gave NaN for sample"],
    [["steps: 6,", "stesp: 6,"], "There is no option stesp; a pipeline has namespace, sources"],
    [["lanes: 2 }", "lanes: 0 }"], "namespace.lanes must be a whole number of at least 1, not 0"],
    [
      ["transforms })", 'transforms, onFault: "skp" })'],
      'sources.web.onFault must be "skip" or "retry" or "stop", not "skp"',
    ],
    [["transforms })", "transforms, epoch: 1 })"], "There is no option sources.web.epoch"],
    [['"greedy"', '"gready"'], 'balance takes "greedy" or "karmarkar-karp", not "gready"'],
    [["threads: 1", "threads: -1"], "workers.threads must be a whole number of at least 0, not -1"],
    [["construct: { seqLength: 512, microbatches: 2 },", ""], "construct is missing"],
    [["./web-*.jsonl", "./nowhere/*.jsonl"], "cannot be listed (ENOENT). Check the path"],
    [['new URL("./log", import.meta.url).href', '"ftp://there/log"'], 'No store for "ftp:"'],
  ];
  for (const [i, [[from, to], said]] of wrong.entries()) {
    const changed = join(folder, `other-${i}.mjs`);
    writeFileSync(changed, text.replace(from, to));
    expect(await batchweave("run", changed)).toMatchObject({ code: 2, stderr: expect.stringContaining(said) });
  }
  // Success that did nothing is a failure; a pipe would be waited for for ever.
  writeFileSync(other, "process.exit(0);");
  expect(await start(["run", other]).ended).toMatchObject({
    status: 2,
    stderr: expect.stringContaining("ended the process"),
  });
  execFileSync("mkfifo", [join(folder, "web-9.jsonl")]);
  expect(await batchweave("run", file)).toMatchObject({ code: 2, stderr: expect.stringContaining("and no file") });
  rmSync(join(folder, "web-9.jsonl"));
  expect(await batchweave("run", file, "--lanes", "2")).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("Lanes go from 0 to 1"),
  });
  expect(await batchweave("run", file, "--part", "0/2")).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("Use --lanes"),
  });
});

test("fleet size writes a plan that load and construct take, advice reads it, and a replay follows the log", async (context) => {
  const { folder, file } = setUp(context);
  const logged = join(folder, "logged.mjs");
  const text = readFileSync(file, "utf8");
  writeFileSync(
    logged,
    text
      .replace("steps: 6,", 'exchange: "log",')
      .replace("transforms }", "transforms, epochs: 1, lanes: 2 }")
      .replace("./log", "./far"),
  );
  const plan = join(folder, "plan.json");
  const sized = await batchweave("fleet", "size", logged, "--step-seconds", "2", "--seconds", "2", "--out", plan);
  expect(sized).toMatchObject({ code: 0 });
  expect(sized.stdout).toMatch(/^web +0 /m);
  expect(sized.stdout).toMatch(/what binds: /);
  expect((await batchweave("fleet", "size", logged, "--step-seconds", "0")).code).toBe(2);
  const fast = ["--durability", "process-crash"];
  const [load, construct] = await Promise.all([
    batchweave("load", logged, "--plan", plan, ...fast),
    batchweave("construct", logged, "--plan", plan, ...fast),
  ]);
  expect([load.code, construct.code]).toEqual([0, 0]);
  // A table, not a letter a line.
  expect(load.stdout).toMatch(/^source +samples /m);
  expect(load.stdout).toMatch(/^web +\d+ /m);
  const advice = await batchweave(
    "fleet",
    "advice",
    logged,
    "--plan",
    plan,
    "--loaders",
    "1",
    "--constructors",
    "1",
    "--json",
  );
  expect(JSON.parse(advice.stdout)).toMatchObject({
    loaders: 1,
    constructors: 1,
    now: { loaders: 1, constructors: 1 },
  });

  await batchweave("run", file, "--no-audit", ...fast);
  const to = new URL(`file://${folder}/again`).href;
  const replayed = await batchweave(
    "run",
    file,
    "--replay",
    `file://${folder}/log`,
    "--namespace",
    to,
    "--json",
    ...fast,
  );
  expect(JSON.parse(replayed.stdout)).toMatchObject({
    batches: 6,
    from: 0,
    to: 6,
    samples: 120,
    leftOut: 0,
    closed: true,
  });
  const wrong = await batchweave("run", file, "--replay", `file://${folder}/log`, "--lanes", "0");
  expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringMatching(/--lanes does not go with --replay/)]);
});
