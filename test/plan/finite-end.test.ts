/**
 * Property: a finite pipeline of several processes closes its log, whichever process ends last, however unevenly the lanes end, and whichever process dies at its
 * end; and a process that waits for a lane no process runs ends within two seconds of being told to. Method: runs side by side on one log in memory; the
 * built command with a real signal.
 */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { openNamespace } from "../../src/index.js";
import {
  auditPipeline,
  definePipeline,
  jsonl,
  type Pipeline,
  type PipelineSpec,
  runPipeline,
  tokenize,
} from "../../src/plan/index.js";
import { dataFolder, writeJsonl } from "./data-files.js";

const tokens = tokenize({ tokenizer: { kind: "bytes" } });
const fast = { producer: { cadence: { kind: "interval", intervalMs: 5 } } } as const;
const root = fileURLToPath(new URL("../..", import.meta.url));
const cli = join(root, "dist/src/cli/main.js");
let count = 0;

function build(folder: string, spec: Partial<PipelineSpec> = {}): Pipeline {
  return definePipeline({
    namespace: { uri: `memory:finite-${count++}`, grid: { rows: 2, chunks: 1 }, lanes: 3 },
    sources: { web: jsonl({ shards: join(folder, "web-*.jsonl*"), transforms: [tokens], epochs: 1 }) },
    strategy: (graph) => graph.balance(),
    construct: { seqLength: 512 },
    workers: { threads: 0 },
    ...spec,
  });
}

async function expectWhole(pipeline: Pipeline, samples: number): Promise<void> {
  const ns = await openNamespace(pipeline.spec.namespace.uri);
  const { closed, waiting } = await ns.info();
  expect({ closed, waiting }).toEqual({ closed: true, waiting: undefined });
  const audit = await auditPipeline(pipeline, ns);
  expect(audit).toMatchObject({ lost: 0, repeated: 0, unaudited: [] });
  expect(audit.summary.samples).toBe(samples);
}

test("three processes at once, and one after another: the last one closes the log", async () => {
  const folder = dataFolder();
  const all = writeJsonl(folder, "web", [90, 60]);
  const atOnce = build(folder);
  await Promise.all([0, 1, 2].map((lane) => runPipeline(atOnce, { ...fast, lanes: [lane] })));
  await expectWhole(atOnce, all);
  const inTurn = build(folder);
  const closed: boolean[] = [];
  for (const lane of [2, 0, 1]) closed.push((await runPipeline(inTurn, { ...fast, lanes: [lane] })).closed);
  expect(closed).toEqual([false, false, true]);
  await expectWhole(inTurn, all);
  // Once more: it is complete, and nothing is opened.
  expect(await runPipeline(inTurn, { ...fast, lanes: [1] })).toMatchObject({ closed: true });
});

test("lanes that end long before others, or have nothing at all, do not hold the log up", async () => {
  const folder = dataFolder();
  // Compressed: it cannot be divided, and all its samples are one window, which is one lane's.
  const all = writeJsonl(folder, "web", [250], { gzip: true });
  const pipeline = build(folder, { construct: { seqLength: 128 } });
  const producer = { cadence: { kind: "interval", intervalMs: 5 }, bufferedBatchesMax: 4 } as const;
  await Promise.all([0, 1, 2].map((lane) => runPipeline(pipeline, { producer, lanes: [lane] })));
  const ns = await openNamespace(pipeline.spec.namespace.uri);
  expect((await ns.info()).steps.end).toBeGreaterThan(90);
  await expectWhole(pipeline, all);
});

test("a process that died before it could close the log: whoever is started next does, whatever it holds", async () => {
  const folder = dataFolder();
  const all = writeJsonl(folder, "web", [90, 60]);
  const pipeline = build(folder);
  await Promise.all([0, 1, 2].map((lane) => runPipeline(pipeline, { ...fast, lanes: [lane], close: false })));
  expect((await (await openNamespace(pipeline.spec.namespace.uri)).info()).closed).toBe(false);
  expect(await runPipeline(pipeline, { ...fast, lanes: [1] })).toMatchObject({ closed: true });
  await expectWhole(pipeline, all);
});

test("with steps, the sources of some lanes end before: the log is closed all the same", async () => {
  const folder = dataFolder();
  const all = writeJsonl(folder, "web", [90, 60]);
  const pipeline = build(folder, { steps: 5_000 });
  await Promise.all([0, 1, 2].map((lane) => runPipeline(pipeline, { ...fast, lanes: [lane] })));
  await expectWhole(pipeline, all);
});

test("told to stop while it waits for a lane that nobody runs, a process ends", async (context) => {
  if (!existsSync(cli)) context.skip("dist is not built: npm run build");
  const folder = dataFolder();
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(root, join(folder, "node_modules/batchweave"));
  writeJsonl(folder, "web", [400, 400]);
  const file = join(folder, "pipeline.mjs");
  writeFileSync(
    file,
    `import { definePipeline, jsonl, tokenize } from "batchweave/plan";
     const transforms = [tokenize({ tokenizer: { kind: "bytes" } })];
     export default definePipeline({
       namespace: { uri: new URL("./log", import.meta.url).href, grid: { rows: 1, chunks: 1 }, lanes: 2 },
       sources: { web: jsonl({ shards: new URL("./web-*.jsonl", import.meta.url), transforms }) },
       strategy: (graph) => graph,
       construct: { seqLength: 128 },
       workers: { threads: 0 },
     });`,
  );
  const child = spawn(process.execPath, [cli, "run", file, "--lanes", "1", "--durability", "process-crash"], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let said = "";
  child.stderr.on("data", (chunk: Buffer) => {
    said += chunk.toString();
  });
  const ended = new Promise<number | null>((resolve) => child.once("exit", resolve));
  const ns = await (async () => {
    for (;;) {
      const found = await openNamespace(new URL("./log", `file://${file}`).href).catch(() => undefined);
      // Far ahead: it cannot write any more.
      if (found && ((await found.info()).waiting?.batches ?? 0) >= 8) return found;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  })();
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  expect((await ns.info()).steps.end).toBe(0);
  child.kill("SIGTERM");
  // Nobody will ever run the other lane: without the signal's own limit this would wait for ever.
  expect(await ended, said).toBe(143);
});
