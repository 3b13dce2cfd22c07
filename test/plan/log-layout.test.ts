/**
 * Property: a log's sources are divided in one way only, whichever process writes. In commit order the number of parts is fixed with the namespace; another
 * number, or a part that another process holds, puts no sample in twice; a process that sees other shards than the others is refused; and the audit counts
 * the samples of the log, not what its producers say they were given. Method: pipelines over real files into logs in memory, run against each other.
 */
import { appendFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { createNamespace, makeCursor, openNamespace, systemEnv } from "../../src/index.js";
import {
  auditPipeline,
  definePipeline,
  iterable,
  jsonl,
  OpenPipeline,
  type Pipeline,
  type PipelineSpec,
  type RunSettings,
  runPipeline,
  type Source,
  tokenize,
} from "../../src/plan/index.js";
import { dataFolder, writeJsonl } from "./data-files.js";

const tokens = tokenize({ tokenizer: { kind: "bytes" } });
const fast = { producer: { cadence: { kind: "interval", intervalMs: 5 } } } as const;
let count = 0;

function build(folder: string, spec: Partial<PipelineSpec> = {}): Pipeline {
  return definePipeline({
    namespace: { uri: `memory:layout-${count++}`, grid: { rows: 2, chunks: 1 }, order: "commit" },
    sources: { web: jsonl({ shards: join(folder, "web-*.jsonl"), transforms: [tokens], epochs: 1 }) },
    strategy: (graph) => graph.balance(),
    construct: { seqLength: 512 },
    workers: { threads: 0 },
    ...spec,
  });
}

async function samplesOf(pipeline: Pipeline): Promise<string[]> {
  const ns = await openNamespace(pipeline.spec.namespace.uri);
  const { steps } = await ns.info();
  const ids: string[] = [];
  for (let step = 0; step < steps.end; step++) ids.push(...((await ns.samples(step)) ?? []).map(({ id }) => id));
  return ids;
}

const part = (index: number, of: number, id = `p${index}`): RunSettings => ({
  ...fast,
  id,
  part: { index, count: of },
});
const failure = (running: Promise<unknown>): Promise<string> =>
  running.then(
    () => "no failure",
    (error: Error) => error.message,
  );

for (const [name, others] of Object.entries({
  "0/2, 1/2 and 2/3": [part(0, 2), part(1, 2), part(2, 3)],
  "0/1 and 1/2": [part(0, 1), part(1, 2)],
  "1/2 before 0/1": [part(1, 2), part(0, 1)],
})) {
  test(`parts ${name}: the one that divides otherwise is refused, and no sample is in the log twice`, async () => {
    const folder = dataFolder();
    writeJsonl(folder, "web", [60, 90]);
    const pipeline = build(folder);
    const said: string[] = [];
    for (const settings of others) said.push(await failure(runPipeline(pipeline, { ...settings, batchesMax: 2 })));
    const ids = await samplesOf(pipeline);
    expect(ids.length - new Set(ids).size, "samples that are in the log twice").toBe(0);
    expect(said.at(-1)).toMatch(/divides its sources into .* not \d.*samples would be in it twice/);
  });
}

test("two producers without a part: the newer one holds it, and no sample is in the log twice", async () => {
  const folder = dataFolder();
  const all = writeJsonl(folder, "web", [60, 90]);
  const pipeline = build(folder);
  await runPipeline(pipeline, { ...fast, id: "p0", batchesMax: 2 });
  const said = await Promise.all([
    failure(runPipeline(pipeline, { ...fast, id: "p0" })),
    failure(runPipeline(pipeline, { ...fast, id: "p1" })),
  ]);
  expect(said.filter((text) => text === "no failure").length, said.join(" | ")).toBeGreaterThan(0);
  for (const text of said) expect(text).toMatch(/no failure|epoch|fenced/i);
  const ids = await samplesOf(pipeline);
  expect(ids.length - new Set(ids).size, "samples that are in the log twice").toBe(0);
  expect(ids.length).toBe(all);
});

test("a log of which all was read and reclaimed goes on, and its fork where producers are inherited", async () => {
  const folder = dataFolder();
  writeJsonl(folder, "web", [90]);
  const pipeline = build(folder);
  await runPipeline(pipeline, { ...fast, batchesMax: 2 });
  const ns = await openNamespace(pipeline.spec.namespace.uri);
  await ns.checkpoint("all", makeCursor(ns.uuid, 2 * ns.grid.rows, 0));
  await ns.reclaim();
  expect((await ns.info()).steps).toEqual({ trim: 2, end: 2 });
  const at = (uri: string): Pipeline => build(folder, { namespace: { ...pipeline.spec.namespace, uri } });
  const [fresh, inheriting] = [at(`${ns.uri}-fresh`), at(`${ns.uri}-inherit`)];
  await ns.fork(fresh.spec.namespace.uri);
  await ns.fork(inheriting.spec.namespace.uri, { producers: "inherit" });
  const { closed, end } = await runPipeline(pipeline, fast);
  expect([closed, end > 2]).toEqual([true, true]);
  // Where it stood is known from nothing but its producers.
  await expect(runPipeline(fresh, fast)).rejects.toMatchObject({ code: "RECLAIMED" });
  expect((await runPipeline(inheriting, fast)).end).toBe(end);
});

test("several parts by the file: one process holds them all, or each has its own, and the last one closes the log", async () => {
  const folder = dataFolder();
  const all = writeJsonl(folder, "web", [60, 90]);
  const spec = (): Partial<PipelineSpec> => ({
    namespace: { uri: `memory:layout-${count++}`, grid: { rows: 2, chunks: 1 }, order: "commit", parts: 3 },
  });
  const one = build(folder, spec());
  expect(await runPipeline(one, fast)).toMatchObject({ closed: true });
  const three = build(folder, spec());
  const results = await Promise.all([0, 1, 2].map((index) => runPipeline(three, part(index, 3))));
  expect(results.some(({ closed }) => closed)).toBe(true);
  for (const pipeline of [one, three]) {
    expect(new Set(await samplesOf(pipeline)).size).toBe(all);
    const audit = await auditPipeline(pipeline, await openNamespace(pipeline.spec.namespace.uri));
    expect(audit).toMatchObject({ lost: 0, repeated: 0, unaudited: [] });
  }
});

test("a process that sees other shards than the lanes beside it is refused before it fences anybody", async () => {
  const folder = dataFolder();
  writeJsonl(folder, "web", [60, 90]);
  const lanes = { uri: `memory:layout-${count++}`, grid: { rows: 2, chunks: 1 }, lanes: 2 };
  const pipeline = build(folder, { namespace: lanes, steps: 8 });
  await runPipeline(pipeline, { ...fast, lanes: [0], batchesMax: 1 });
  writeFileSync(join(folder, "web-002.jsonl"), `${JSON.stringify({ text: "more" })}\n`);
  expect(await failure(runPipeline(pipeline, { ...fast, lanes: [1], batchesMax: 1 }))).toMatch(
    /source web is not what it was/,
  );
  expect((await (await openNamespace(lanes.uri)).info()).producers.map(({ id }) => id)).toEqual(["lane-0"]);
});

test("the audit counts samples: a second writer of the same part is found, whatever its resume points say", async () => {
  const folder = dataFolder();
  const all = writeJsonl(folder, "web", [60, 90]);
  const pipeline = build(folder);
  await runPipeline(pipeline, { ...fast, close: false });
  const ns = await openNamespace(pipeline.spec.namespace.uri);
  await using open = await OpenPipeline.open(pipeline, systemEnv);
  const planner = open.planner(0, 1);
  await using producer = await ns.producer({ id: "somebody", cadence: { kind: "interval", intervalMs: 5 } });
  for (let batch = await planner.next(); batch; batch = await planner.next()) {
    const { resumePoint, lineage, notes } = batch;
    await producer.append(batch.slices, { resumePoint, lineage, user: notes });
  }
  await producer.flush();
  expect(await auditPipeline(pipeline, ns)).toMatchObject({ lost: 0, repeated: all });
});

test("a shard that has changed is refused at a restart, with a way out: lines appended, a line edited, a shard gone", async () => {
  const changes: Record<string, (path: string) => void> = {
    appended: (path) => appendFileSync(path, `${JSON.stringify({ id: 1, text: "late" })}\n`),
    edited: (path) => writeFileSync(path, `${JSON.stringify({ id: 0, text: "other" })}\n`.repeat(60)),
    emptied: (path) => writeFileSync(path, ""),
  };
  for (const [name, change] of Object.entries(changes)) {
    const folder = dataFolder();
    writeJsonl(folder, "web", [60, 90]);
    const pipeline = build(folder);
    await runPipeline(pipeline, { ...fast, batchesMax: 2 });
    change(join(folder, "web-000.jsonl"));
    expect(await failure(runPipeline(pipeline, fast)), name).toMatch(
      /source web is not what it was \(shards, their sizes or contents.*new goes into a source of its own.*fork the log/,
    );
  }
});

test("a log of an earlier version, which dealt single samples, is refused in a sentence", async () => {
  const folder = dataFolder();
  writeJsonl(folder, "web", [60, 90]);
  const point = { v: 1, pipeline: 7, seq: 1, lane: [0, 1], at: 1, positions: [[1, 0, 0, null, 1]], owed: 0, debt: 0 };
  for (const [id, namespace] of [
    ["p0", { order: "commit" }],
    ["lane-0", { order: "lanes", lanes: 1 }],
  ] as const) {
    const target = { uri: `memory:layout-${count++}`, grid: { rows: 2, chunks: 1 }, ...namespace };
    const ns = await createNamespace(target.uri, target);
    await using producer = await ns.producer({ id, cadence: { kind: "interval", intervalMs: 5 } });
    await producer.append([new Uint8Array(1), new Uint8Array(1)], { resumePoint: point });
    await producer.close();
    expect(await failure(runPipeline(build(folder, { namespace: target }), fast))).toMatch(
      /earlier version.*Finish this log with that version, or begin a new namespace/,
    );
  }
});

test("of two pipelines that start together on a new log one is refused, and so is another one on a log that is complete", async () => {
  const folder = dataFolder();
  writeJsonl(folder, "web", [60, 90]);
  const namespace = {
    uri: `memory:layout-${count++}`,
    grid: { rows: 2, chunks: 1 },
    order: "lanes",
    lanes: 2,
  } as const;
  const [one, other] = [512, 256].map((seqLength) => build(folder, { namespace, construct: { seqLength } }));
  const said = await Promise.all([
    failure(runPipeline(one as Pipeline, { ...fast, lanes: [0], batchesMax: 3 })),
    failure(runPipeline(other as Pipeline, { ...fast, lanes: [1], batchesMax: 3 })),
  ]);
  expect(said.filter((text) => text === "no failure")).toHaveLength(1);
  expect(said.join()).toMatch(/was begun by another pipeline.*fork the log.*new namespace/);
  const [winner, loser] = said[0] === "no failure" ? [one, other] : [other, one];
  expect(await runPipeline(winner as Pipeline, fast)).toMatchObject({ closed: true });
  expect(await failure(runPipeline(loser as Pipeline, fast))).toMatch(/was begun by another pipeline/);
});

test("of two pipelines that start together on a log that neither created, the one that commits later stops", async () => {
  const target = { uri: `memory:layout-${count++}`, grid: { rows: 2, chunks: 1 }, order: "lanes", lanes: 2 } as const;
  const ns = await createNamespace(target.uri, target);
  let begin = (): void => {};
  const gate = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const numbers = (waits?: Promise<void>): Source =>
    iterable({
      open: async function* () {
        await waits;
        for (;;) yield { value: { tokens: [1, 2, 3] } };
      },
    });
  const [one, other] = [
    build("", { namespace: target, sources: { n: numbers() }, construct: { seqLength: 64 } }),
    build("", { namespace: target, sources: { n: numbers(gate) }, construct: { seqLength: 32 } }),
  ];
  const later = failure(runPipeline(other, { ...fast, lanes: [1] }));
  await expect.poll(() => ns.producerState("lane-1")).toBeDefined();
  await runPipeline(one, { ...fast, lanes: [0], batchesMax: 2 });
  begin();
  expect(await later).toMatch(
    /Another pipeline.* began to write .* at the same time.*fork it .*the pipeline has changed/,
  );
  expect(await failure(runPipeline(one, { ...fast, lanes: [0], batchesMax: 1 }))).toMatch(/the pipeline has changed/);
});

test("data that was copied elsewhere is the same data", async () => {
  const [here, there] = [dataFolder(), dataFolder()];
  for (const folder of [here, there]) writeJsonl(folder, "web", [60, 90]);
  const pipeline = build(here);
  await runPipeline(pipeline, { ...fast, batchesMax: 2 });
  const moved = build(there, { namespace: pipeline.spec.namespace });
  expect(await runPipeline(moved, fast)).toMatchObject({ closed: true });
});
