/**
 * Property: a pipeline goes on in a fork of its log, in both orders, whether producers are inherited or start afresh, with steps left out, on a step that is
 * no multiple of the lanes, and with another mixture or other sources: no sample of what the fork shares comes again, none is lost but those of the steps
 * that were left out, and the audit says so. Method: finite sources, logs in memory; every sample of the fork is counted.
 */
import { join } from "node:path";
import { expect, test } from "vitest";
import { type Namespace, openNamespace } from "../../src/index.js";
import {
  auditPipeline,
  definePipeline,
  jsonl,
  type Pipeline,
  type PipelineSpec,
  runPipeline,
  staticMix,
  tokenize,
} from "../../src/plan/index.js";
import { dataFolder, writeJsonl } from "./data-files.js";

const tokens = tokenize({ tokenizer: { kind: "bytes" } });
const fast = { producer: { cadence: { kind: "interval", intervalMs: 5 } } } as const;
let count = 0;

function build(folder: string, order: "commit" | "lanes", spec: Partial<PipelineSpec> = {}): Pipeline {
  const source = (name: string) => jsonl({ shards: join(folder, `${name}-*.jsonl`), transforms: [tokens], epochs: 1 });
  const shape = order === "lanes" ? ({ order, lanes: 3 } as const) : ({ order, parts: 2 } as const);
  return definePipeline({
    namespace: { uri: `memory:forked-${count++}`, grid: { rows: 2, chunks: 1 }, ...shape },
    sources: { web: source("web"), code: source("code") },
    strategy: (graph) => graph.mix(staticMix({ web: 3, code: 1 })).balance(),
    construct: { seqLength: 512 },
    batch: { samples: 8 },
    workers: { threads: 0 },
    ...spec,
  });
}

async function samplesOf(ns: Namespace): Promise<string[]> {
  const { steps } = await ns.info();
  const ids: string[] = [];
  for (let step = 0; step < steps.end; step++)
    ids.push(...((await ns.samples(step)) ?? []).map(({ source, id }) => `${source} ${id}`));
  return ids;
}

const repeatedIn = (ids: readonly string[]): number => ids.length - new Set(ids).size;

for (const order of ["lanes", "commit"] as const) {
  for (const producers of ["inherit", "fresh"] as const) {
    test(`${order}, ${producers}: the pipeline goes on behind what the fork shares, up to its end`, async () => {
      const folder = dataFolder();
      const all = writeJsonl(folder, "web", [50, 70]) + writeJsonl(folder, "code", [40]);
      const pipeline = build(folder, order);
      const { uri } = pipeline.spec.namespace;
      await runPipeline(pipeline, { ...fast, batchesMax: 10 });
      const parent = await openNamespace(uri);
      // No multiple of three: the fork's first step is lane 0's again.
      for (const at of [7, 10]) {
        const fork = await parent.fork(`${uri}-${at}`, { at, producers });
        const forked = {
          ...pipeline,
          spec: { ...pipeline.spec, namespace: { ...pipeline.spec.namespace, uri: fork.uri } },
        };
        await runPipeline(forked, { ...fast, batchesMax: 3 });
        expect(await runPipeline(forked, fast)).toMatchObject({ closed: true });
        const ids = await samplesOf(fork);
        expect({ samples: ids.length, repeated: repeatedIn(ids) }).toEqual({ samples: all, repeated: 0 });
        expect(await auditPipeline(forked, fork)).toMatchObject({ lost: 0, repeated: 0, leftOut: 0, unaudited: [] });
      }
    });

    test(`${order}, ${producers}: steps that the fork leaves out are left out, not lost`, async () => {
      const folder = dataFolder();
      const all = writeJsonl(folder, "web", [50, 70]) + writeJsonl(folder, "code", [40]);
      const pipeline = build(folder, order);
      const { uri } = pipeline.spec.namespace;
      await runPipeline(pipeline, { ...fast, batchesMax: 12 });
      const parent = await openNamespace(uri);
      const gone = await Promise.all([2, 3].map(async (step) => ((await parent.samples(step)) ?? []).length));
      const fork = await parent.fork(`${uri}-f`, { at: 12, skip: [{ from: 2, to: 4 }], producers });
      const forked = {
        ...pipeline,
        spec: { ...pipeline.spec, namespace: { ...pipeline.spec.namespace, uri: fork.uri } },
      };
      expect(await runPipeline(forked, fast)).toMatchObject({ closed: true });
      const ids = await samplesOf(fork);
      const leftOut = (gone[0] as number) + (gone[1] as number);
      expect({ samples: ids.length, repeated: repeatedIn(ids) }).toEqual({ samples: all - leftOut, repeated: 0 });
      expect(await auditPipeline(forked, fork)).toMatchObject({ lost: 0, repeated: 0, leftOut, unaudited: [] });
    });
  }

  test(`${order}: another mixture, a source more and one less: what is still there goes on where it stood`, async () => {
    const folder = dataFolder();
    writeJsonl(folder, "web", [50, 70]);
    writeJsonl(folder, "code", [40]);
    const books = writeJsonl(folder, "books", [30]);
    const pipeline = build(folder, order);
    const { uri } = pipeline.spec.namespace;
    await runPipeline(pipeline, { ...fast, batchesMax: 6 });
    const fork = await (await openNamespace(uri)).fork(`${uri}-f`, { producers: "inherit" });
    const source = (name: string) =>
      jsonl({ shards: join(folder, `${name}-*.jsonl`), transforms: [tokens], epochs: 1 });
    const changed = build(folder, order, {
      namespace: { ...pipeline.spec.namespace, uri: fork.uri },
      sources: { books: source("books"), web: source("web") },
      strategy: (graph) => graph.mix(staticMix({ books: 1, web: 1 })).balance(),
    });
    // On the log itself it is refused.
    await expect(
      runPipeline(build(folder, order, { ...changed.spec, namespace: pipeline.spec.namespace }), fast),
    ).rejects.toThrow(/pipeline has changed/);
    expect(await runPipeline(changed, fast)).toMatchObject({ closed: true });
    const ids = await samplesOf(fork);
    expect(repeatedIn(ids)).toBe(0);
    expect(ids.filter((id) => id.startsWith("web ")).length).toBe(120);
    expect(ids.filter((id) => id.startsWith("books ")).length).toBe(books);
    const audit = await auditPipeline(changed, fork);
    expect(audit).toMatchObject({ lost: 0, repeated: 0, leftOut: 0 });
    expect(audit.unaudited).toMatchObject([{ source: "code", reason: expect.stringContaining("not among") }]);
  });
}
