/**
 * Property: numbers that a trainer reports through its consumer reach the callback of the mixture; what it decided is stored with the batch, so that the batch
 * is the same when it is made again, whatever was reported since; reports are few, bounded, and cost the training nothing when the store fails.
 * Method: a pipeline and a consumer on logs in memory, one in a folder with a report of the Python client's shape.
 */
import { join } from "node:path";
import { expect, test } from "vitest";
import { createNamespace, openNamespace, reportLogUri, systemEnv } from "../../src/index.js";
import {
  type BatchNotes,
  callbackMix,
  definePipeline,
  jsonl,
  OpenPipeline,
  type Pipeline,
  runPipeline,
  tokenize,
  trainerReports,
} from "../../src/plan/index.js";
import { dataFolder, writeJsonl } from "./data-files.js";

const fast = { producer: { cadence: { kind: "interval", intervalMs: 5 } } } as const;
let count = 0;

/** More of the source whose loss is higher. */
function build(folder: string, uri: string): Pipeline {
  const source = (name: string) =>
    jsonl({ shards: join(folder, `${name}-*.jsonl`), transforms: [tokenize({ tokenizer: { kind: "bytes" } })] });
  const mix = callbackMix(({ metrics }) => ({ web: metrics["loss/web"] ?? 1, code: metrics["loss/code"] ?? 1 }));
  return definePipeline({
    namespace: { uri, grid: { rows: 1, chunks: 1 }, order: "lanes", lanes: 1 },
    sources: { web: source("web"), code: source("code") },
    strategy: (graph) => graph.mix(mix),
    construct: { seqLength: 2_048 },
    batch: { samples: 12 },
    metrics: trainerReports(uri, { pollMs: 0 }),
    workers: { threads: 0 },
  });
}

test("a report changes the mixture of later batches, and a batch that is made again keeps the mixture it had", async () => {
  const folder = dataFolder();
  writeJsonl(folder, "web", [60]);
  writeJsonl(folder, "code", [60]);
  const uri = `memory:feedback-${count++}`;
  const pipeline = build(folder, uri);
  await runPipeline(pipeline, { ...fast, batchesMax: 2 });
  const ns = await openNamespace(uri);
  const mixes = async (): Promise<unknown[]> => {
    const { end } = (await ns.info()).steps;
    return await Promise.all(
      Array.from({ length: end }, async (_, step) => ((await ns.inspect(step)).user as BatchNotes).mix),
    );
  };
  expect(await mixes()).toEqual([
    { web: 1, code: 1 },
    { web: 1, code: 1 },
  ]);
  await using consumer = await ns.consumer({ mesh: { dp: 1 }, rank: 0, environment: {} });
  await consumer.next();
  await consumer.report({ "loss/web": 5, "loss/code": 1 });
  await runPipeline(pipeline, { ...fast, batchesMax: 1 });
  expect((await mixes())[2]).toEqual({ web: 5, code: 1 });
  const counts = ((await ns.samples(2)) ?? []).filter(({ source }) => source === "web").length;
  expect(counts).toBe(10);
  // Made again, with a trainer that says something else by now.
  const other = await createNamespace(reportLogUri(uri), { grid: { rows: 1, chunks: 1 } });
  await using second = await other.producer({ id: "trainer-other" });
  await second.append([Buffer.from(JSON.stringify({ v: 1, step: 3, values: { "loss/web": 0, "loss/code": 9 } }))], {});
  await second.flush();
  await using open = await OpenPipeline.open(pipeline, systemEnv);
  for (const step of [1, 2]) {
    const [before, batch] = await Promise.all([ns.inspect(step - 1), ns.inspect(step)]);
    const planner = open.planner(0, 1, before.resumePoint);
    const again = await planner.next({ recorded: (batch.user as BatchNotes).mix });
    expect(Buffer.compare(again?.slices[0] as Uint8Array, await ns.readSlice({ step, row: 0, chunk: 0 }))).toBe(0);
    expect(again?.notes.mix).toEqual((batch.user as BatchNotes).mix);
  }
  // A new one follows the newest report.
  await runPipeline(pipeline, { ...fast, batchesMax: 1 });
  expect((await mixes())[3]).toEqual({ web: 0, code: 9 });
});

test("reports are few: only rank 0's, one in five seconds with what came meanwhile, and nothing that is no number", async () => {
  const uri = `memory:feedback-${count++}`;
  const ns = await createNamespace(uri, { grid: { rows: 2, chunks: 1 } });
  await using first = await ns.consumer({ mesh: { dp: 2 }, rank: 0, environment: {} });
  await using second = await ns.consumer({ mesh: { dp: 2 }, rank: 1, environment: {} });
  await second.report({ loss: 1 });
  await expect(openNamespace(reportLogUri(uri))).rejects.toMatchObject({ code: "NO_NAMESPACE" });
  for (let i = 0; i < 50; i++) await first.report({ loss: i, [`only-${i}`]: i });
  const reports = await openNamespace(reportLogUri(uri));
  expect((await reports.info()).steps.end).toBe(1);
  expect(await trainerReports(uri)(0)).toEqual({ loss: 0, "only-0": 0, step: 0 });
  for (const bad of [Number.NaN, Number.POSITIVE_INFINITY, "2"])
    await expect(first.report({ loss: bad as number })).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  const many = Object.fromEntries(Array.from({ length: 5_000 }, (_, i) => [`n${i}`, i]));
  await expect(first.report(many)).rejects.toMatchObject({ code: "LIMIT" });
});

test("without reports, with one that is none, and with a store that fails, the callback goes on with what it knew", async () => {
  const uri = `memory:feedback-${count++}`;
  const metrics = trainerReports(uri, { pollMs: 0 });
  expect(await metrics(0)).toEqual({});
  const reports = await createNamespace(reportLogUri(uri), { grid: { rows: 1, chunks: 1 } });
  await using producer = await reports.producer({ id: "trainer-default" });
  const put = async (text: string): Promise<void> => {
    await producer.append([Buffer.from(text)], {});
    await producer.flush();
  };
  await put('{"v":1,"step":7,"values":{"loss":2.5,"note":"text"}}');
  expect(await metrics(1)).toEqual({ loss: 2.5, step: 7 });
  await put("no report");
  await put('{"v":9}');
  expect(await metrics(2)).toEqual({ loss: 2.5, step: 7 });
});

test("old reports are let go of", async () => {
  const uri = `memory:feedback-${count++}`;
  const reports = await createNamespace(reportLogUri(uri), { grid: { rows: 1, chunks: 1 } });
  await using producer = await reports.producer({ id: "trainer-default" });
  for (let i = 0; i < 300; i++) await producer.append([Buffer.from(`{"v":1,"step":${i},"values":{"loss":${i}}}`)], {});
  await producer.flush();
  expect(await trainerReports(uri)(0)).toEqual({ loss: 299, step: 299 });
  expect((await reports.info()).steps).toEqual({ trim: 299, end: 300 });
});
