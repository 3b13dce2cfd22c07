/**
 * Property: a pipeline whose samples go through source logs loses and repeats none, whichever processes load and construct: many processes write the log of one, bit
 * for bit; every byte of a source is read once; source logs and the training log end and verify. Method: loaders and constructors side by side in memory, some
 * of them stopped half way, and an undisturbed run of one process to compare with.
 */
import { createHash } from "node:crypto";
import { join } from "node:path";
import { expect, test } from "vitest";
import {
  createNamespace,
  encodeSampleBlock,
  makeCursor,
  type Namespace,
  openNamespace,
  openStore,
  sampleBlockType,
  systemEnv,
} from "../../src/index.js";
import { encodeSample } from "../../src/plan/exchange/sample-codec.js";
import {
  auditPipeline,
  definePipeline,
  external,
  jsonl,
  type Pipeline,
  type PipelineSpec,
  runConstructors,
  runLoaders,
  runPipeline,
  type Source,
  staticMix,
  tokenize,
} from "../../src/plan/index.js";
import { dataFolder, writeJsonl } from "./data-files.js";

const tokens = tokenize({ tokenizer: { kind: "bytes" } });
const fast = { producer: { cadence: { kind: "interval", intervalMs: 5 } }, patienceMs: 300 } as const;
let count = 0;

function build(folder: string, spec: Partial<PipelineSpec> = {}): Pipeline {
  return definePipeline({
    namespace: { uri: `memory:exchange-${count++}`, grid: { rows: 2, chunks: 1 }, lanes: 3 },
    sources: {
      web: jsonl({ shards: join(folder, "web-*.jsonl*"), transforms: [tokens], epochs: 1, lanes: 2 }),
      code: jsonl({ shards: join(folder, "code-*.jsonl*"), transforms: [tokens], epochs: 1, lanes: 3, weight: 2 }),
    },
    strategy: (graph) => graph.balance(),
    construct: { seqLength: 512 },
    workers: { threads: 0 },
    exchange: { kind: "log", blockSamples: 8, aheadBlocks: 16 },
    ...spec,
  });
}

function data(): string {
  const folder = dataFolder();
  writeJsonl(folder, "web", [70, 30]);
  writeJsonl(folder, "code", [50, 44, 21]);
  return folder;
}

/** Bytes and lineage of every step. */
async function contents(uri: string): Promise<string[]> {
  const ns = await openNamespace(uri);
  const { steps, closed, waiting } = await ns.info();
  expect({ closed, waiting }).toEqual({ closed: true, waiting: undefined });
  expect((await ns.verify()).problems).toEqual([]);
  const found: string[] = [];
  for (let step = 0; step < steps.end; step++) {
    const hash = createHash("sha256").update(JSON.stringify((await ns.samples(step)) ?? []));
    for (let row = 0; row < ns.grid.rows; row++)
      for (let chunk = 0; chunk < ns.grid.chunks; chunk++) hash.update(await ns.readSlice({ step, row, chunk }));
    found.push(hash.digest("hex"));
  }
  return found;
}

async function sampleIds(ns: Namespace): Promise<string[]> {
  const { steps } = await ns.info();
  const ids: string[] = [];
  for (let step = 0; step < steps.end; step++)
    for (const { source, id } of (await ns.samples(step)) ?? []) ids.push(`${source} ${id}`);
  return ids;
}

test("one process: every sample once, all logs closed and clean", async () => {
  const pipeline = build(data());
  const { closed, sources } = await runPipeline(pipeline, fast);
  expect(closed).toBe(true);
  const { uri } = pipeline.spec.namespace;
  const ids = await sampleIds(await openNamespace(uri));
  expect(ids.length).toBe(215);
  expect(new Set(ids).size).toBe(215);
  expect(sources.map(({ samples }) => samples)).toEqual([100, 115]);
  await contents(uri);
  expect(await auditPipeline(pipeline, await openNamespace(uri))).toMatchObject({
    lost: 0,
    repeated: 0,
    unaudited: [],
  });
  for (const name of ["web", "code"]) await contents(`${uri}.sources/${name}`);
  // Complete logs of another pipeline are no reason to do nothing without a word.
  const other = definePipeline({ ...pipeline.spec, construct: { seqLength: 256 } });
  await expect(runLoaders(other, fast)).rejects.toThrow(
    /source (web|code) cannot be continued: the source is not what it was/,
  );
  expect((await runLoaders(pipeline, fast)).batches).toBe(0);
});

test("two loaders and two constructors, one of each stopped half way and replaced, write the log of one process", async () => {
  const folder = data();
  const calm = build(folder);
  await runPipeline(calm, fast);
  const disturbed = build(folder);
  const stop = { loader: new AbortController(), constructor: new AbortController() };
  let [blocks, batches] = [0, 0];
  const loaders = [0, 1].map(async (i) => {
    const signal = i === 0 ? stop.loader.signal : undefined;
    await runLoaders(disturbed, fast, {
      signal,
      onBlock: () => {
        if (++blocks === 6) stop.loader.abort();
      },
    });
    if (i === 0) await runLoaders(disturbed, fast);
  });
  const constructors = [0, 1].map(async (i) => {
    const signal = i === 0 ? stop.constructor.signal : undefined;
    await runConstructors(disturbed, fast, {
      signal,
      onBatch: () => {
        if (++batches === 4) stop.constructor.abort();
      },
    });
    if (i === 0) await runConstructors(disturbed, fast);
  });
  await Promise.all([...loaders, ...constructors]);
  expect(await contents(disturbed.spec.namespace.uri)).toEqual(await contents(calm.spec.namespace.uri));
  for (const name of ["web", "code"])
    expect(await contents(`${disturbed.spec.namespace.uri}.sources/${name}`)).toEqual(
      await contents(`${calm.spec.namespace.uri}.sources/${name}`),
    );
});

test("loaders stay within what they may be ahead", async () => {
  const pipeline = build(data(), { exchange: { kind: "log", blockSamples: 4, aheadBlocks: 6 }, steps: 3 });
  const loading = runLoaders(pipeline, fast);
  const web = `${pipeline.spec.namespace.uri}.sources/web`;
  const endOf = async (): Promise<number> => (await (await openNamespace(web)).info()).steps.end;
  await expect.poll(() => endOf().catch(() => 0)).toBeGreaterThanOrEqual(6);
  await new Promise((resolve) => setTimeout(resolve, 300));
  // Each of the two lanes may have one more on its way when the other's comes in.
  expect(await endOf()).toBeLessThanOrEqual(8);
  const { closed, end } = await runConstructors(pipeline, fast);
  expect({ closed, end }).toEqual({ closed: true, end: 3 });
  // The training log is complete: loaders end by themselves.
  expect((await loading).isOver).toBe(true);
});

test("a sample that no sequence holds, or that is not what its table says, is refused by name; it is not the end of its source", async () => {
  const one = (): Pipeline => {
    const { spec } = build(data());
    return definePipeline({ ...spec, sources: { code: spec.sources["code"] as Source } });
  };
  const pipeline = one();
  const { uri } = pipeline.spec.namespace;
  const samples = [20, 600, 20].map((count, i) => ({
    id: `s${i}`,
    tokens: count,
    bytes: encodeSample({ tokens: new Int32Array(count) }),
  }));
  const write = async (place: string, list: typeof samples): Promise<void> => {
    const ns = await createNamespace(place, { grid: { rows: 1, chunks: 2 }, order: "lanes", lanes: 3 });
    const producer = await ns.producer({ id: "lane-0" });
    const { table, payload } = encodeSampleBlock("code", list);
    await producer.append([table, payload], { contentType: sampleBlockType });
    await producer.close();
    await ns.endLog();
  };
  await write(`${uri}.sources/code`, samples);
  await expect(runConstructors(pipeline, fast)).rejects.toThrow(
    /"s1" in block 0 of source code has 600 tokens, .* 512/,
  );
  const other = one();
  await write(`${other.spec.namespace.uri}.sources/code`, [{ ...(samples[0] as (typeof samples)[0]), tokens: 21 }]);
  await expect(runConstructors(other, fast)).rejects.toThrow(/"s0": it has 20 tokens, and its table says 21/);
});

test("constructors refuse logs that were loaded with another file", async () => {
  const folder = data();
  const loaded = build(folder, { steps: 2 });
  await runPipeline(loaded, fast);
  const exchange = {
    kind: "log",
    blockSamples: 8,
    aheadBlocks: 16,
    uri: `${loaded.spec.namespace.uri}.sources`,
  } as const;
  for (const change of [
    { seed: 8 },
    { construct: { seqLength: 1_024 } },
    { exchange: { ...exchange, blockSamples: 9 } },
  ])
    await expect(runConstructors(build(folder, { exchange, ...change }), fast)).rejects.toThrow(
      /source (web|code) was loaded with another file/,
    );
});

test("a lane does not run away from one that stands still: what may be ahead counts from the log's end", async () => {
  const pipeline = build(data(), { exchange: { kind: "log", blockSamples: 1, aheadBlocks: 6 } });
  const web = `${pipeline.spec.namespace.uri}.sources/web`;
  const stop = new AbortController();
  // Lane 1 of web has a holder that never writes; the loader leaves it alone for longer than this test takes.
  const ns = await createNamespace(web, { grid: { rows: 1, chunks: 2 }, order: "lanes", lanes: 2 });
  await ns.producer({ id: "lane-1" });
  const loading = runLoaders(pipeline, { ...fast, patienceMs: 60_000 }, { signal: stop.signal });
  const ahead = async (): Promise<number> => (await ns.producerState("lane-0"))?.seq ?? 0;
  await expect.poll(ahead).toBeGreaterThanOrEqual(3);
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  expect(await ahead()).toBeLessThanOrEqual(4);
  stop.abort();
  await loading;
});

test("blocks stay as long as a checkpoint of the training log needs them; a fork goes on from there with another mixture", async () => {
  const folder = data();
  const pipeline = build(folder, { steps: 9 });
  const { uri } = pipeline.spec.namespace;
  const stop = new AbortController();
  let made = 0;
  await runPipeline(pipeline, fast, {
    signal: stop.signal,
    onBatch: () => {
      if (++made === 8) stop.abort();
    },
  });
  const begun = await openNamespace(uri);
  const { end } = (await begun.info()).steps;
  await begun.checkpoint("half", makeCursor(begun.uuid, Math.min(6, end) * begun.grid.rows, 0));
  await runPipeline(pipeline, fast);
  const parent = await openNamespace(uri);
  const [half] = await parent.checkpoints();
  expect(half?.step).toBeGreaterThanOrEqual(5);
  const code = await openNamespace(`${uri}.sources/code`);
  const [floor] = await code.checkpoints();
  expect(floor?.id).toMatch(/^floor-/);
  expect(floor?.step).toBeGreaterThan(0);
  await code.reclaim();
  expect((await code.info()).steps.trim).toBe(floor?.step);
  const other = build(folder, {
    namespace: { uri: `${uri}-fork`, grid: { rows: 2, chunks: 1 }, lanes: 3 },
    exchange: { kind: "log", blockSamples: 8, aheadBlocks: 16, uri: `${uri}.sources` },
    strategy: (graph) => graph.mix(staticMix({ web: 5, code: 1 })).balance(),
  });
  await parent.fork(`${uri}-fork`, { at: half?.step });
  await runPipeline(other, fast);
  const ids = await sampleIds(await openNamespace(`${uri}-fork`));
  expect(ids.length).toBe(215);
  expect(new Set(ids).size).toBe(215);
});

test("a constructor that waits says what is known of loaders: none, some, or that a program of its own fills the log", async () => {
  const folder = data();
  const wait = async (sources: PipelineSpec["sources"], said: readonly RegExp[]): Promise<void> => {
    // Twenty times as fast.
    const sleep = (ms: number, signal?: AbortSignal) => systemEnv.sleep(ms / 20, signal);
    const env = { ...systemEnv, monotonic: () => 20 * systemEnv.monotonic(), sleep };
    const pipeline = build(folder, { sources });
    const store = await openStore(`${pipeline.spec.namespace.uri}.sources/.fleet`);
    const stop = new AbortController();
    const left = [...said];
    const onWait = (text: string): void => {
      if (!left[0]?.test(text)) return;
      left.shift();
      if (left.length === 0) stop.abort();
      const id = systemEnv.id();
      void store.put(`hint/hold/${id}/3-${Math.floor(systemEnv.now()) - 4_000}-${id}`, new Uint8Array(0));
    };
    await runConstructors(pipeline, fast, { env, signal: stop.signal, onWait });
    expect(left).toEqual([]);
  };
  await wait({ web: jsonl({ shards: join(folder, "web-*.jsonl") }) }, [
    /^waiting for block \d+ of source web for \d+ s: no loader has told .*; start one \(batchweave load\)$/,
    /: loaders are there \(1 with 3 lanes, heard of \d+ s ago\): /,
  ]);
  await wait({ own: external() }, [/of source own .*: a program of its own fills that log; is it running\?$/]);
});
