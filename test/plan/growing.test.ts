/**
 * Property: a pipeline can be added to while it runs: a stage at the end of its schedule, and sources for it, from a step on that no lane has come to. The log is
 * that of the longer file from the beginning, bit for bit, whenever each lane changes over; everything else is refused with the way out.
 * Method: logs in memory, lanes run with the old and the new file in turns.
 */
import { join } from "node:path";
import { expect, test } from "vitest";
import { openNamespace } from "../../src/index.js";
import {
  auditPipeline,
  definePipeline,
  jsonl,
  type Pipeline,
  runPipeline,
  stagedMix,
  tokenize,
} from "../../src/plan/index.js";
import { dataFolder, writeJsonl } from "./data-files.js";

const fast = { producer: { cadence: { kind: "interval", intervalMs: 5 } } } as const;
let count = 0;

type Stage = { readonly from: number; readonly weights: Readonly<Record<string, number>> };

function build(
  folder: string,
  uri: string,
  names: readonly string[],
  stages: readonly Stage[],
  exchange: "direct" | "log" = "direct",
): Pipeline {
  const source = (name: string) =>
    jsonl({
      shards: join(folder, `${name}-*.jsonl`),
      transforms: [tokenize({ tokenizer: { kind: "bytes" } })],
      epochs: 1,
    });
  return definePipeline({
    namespace: { uri, grid: { rows: 1, chunks: 1 }, order: "lanes", lanes: 2 },
    sources: Object.fromEntries(names.map((name) => [name, source(name)])),
    exchange,
    strategy: (graph) => graph.mix(stagedMix(stages)).balance(),
    construct: { seqLength: 1_024 },
    batch: { samples: 6 },
    workers: { threads: 0 },
  });
}

const first: Stage = { from: 0, weights: { web: 2, code: 1 } };
const second: Stage = { from: 8, weights: { web: 1, code: 1, math: 4 } };

function folderOf(): string {
  const folder = dataFolder();
  writeJsonl(folder, "web", [40, 30]);
  writeJsonl(folder, "code", [40]);
  writeJsonl(folder, "math", [40]);
  return folder;
}

async function bytesOf(uri: string): Promise<string[]> {
  const ns = await openNamespace(uri);
  const { end } = (await ns.info()).steps;
  return await Promise.all(
    Array.from({ length: end }, async (_, step) =>
      Buffer.from(await ns.readSlice({ step, row: 0, chunk: 0 })).toString("base64"),
    ),
  );
}

test("a source that is new comes in at its stage, whenever each lane changes over, and the audit finds every sample once", async () => {
  const folder = folderOf();
  const uri = `memory:grown-${count++}`;
  const old = build(folder, uri, ["web", "code"], [first]);
  // The new one stands between the others in the file: sources are known by what they are, not by their place.
  const grown = build(folder, uri, ["web", "math", "code"], [first, second]);
  await runPipeline(old, { ...fast, batchesMax: 5 });
  await runPipeline(grown, { ...fast, lanes: [0], batchesMax: 1 });
  expect(await runPipeline(grown, fast)).toMatchObject({ closed: true });
  // The order of those that were there stays: it decides between two that are due alike.
  const turned = build(folder, `memory:grown-${count++}`, ["code", "web", "math"], [first, second]);
  await runPipeline({ ...old, spec: { ...old.spec, namespace: turned.spec.namespace } }, { ...fast, batchesMax: 3 });
  await expect(runPipeline(turned, fast)).rejects.toThrow(/is not what it was|sources/);
  const audit = await auditPipeline(grown, await openNamespace(uri));
  expect(audit).toMatchObject({ lost: 0, repeated: 0, unaudited: [] });
  expect(audit.summary.mixture.map(({ steps }) => steps).reduce((a, b) => a + b)).toBe(audit.to);
});

test.each(["direct", "log"] as const)(
  "the log is the longer file's from the beginning, bit for bit: %s",
  async (exchange) => {
    const folder = folderOf();
    const [one, two] = [`memory:grown-${count++}`, `memory:grown-${count++}`];
    const names = ["web", "code", "math"];
    await runPipeline(build(folder, one, names, [first, second], exchange), fast);
    const stop = new AbortController();
    const old = build(folder, two, ["web", "code"], [first], exchange);
    // In the very moment of its first batch, so that no lane comes near the new stage.
    await runPipeline(old, fast, { signal: stop.signal, onBatch: () => stop.abort() });
    expect((await bytesOf(two)).length).toBeLessThan(8);
    await runPipeline(build(folder, two, names, [first, second], exchange), fast);
    const expected = await bytesOf(one);
    expect(expected.length).toBeGreaterThan(10);
    expect(await bytesOf(two)).toEqual(expected);
  },
);

test("a stage that lanes have passed, a share before it, a source without one, and a source that went are refused with the way out", async () => {
  const folder = folderOf();
  const uri = `memory:grown-${count++}`;
  await runPipeline(build(folder, uri, ["web", "code"], [first]), { ...fast, batchesMax: 6 });
  const attempt = async (names: readonly string[], stages: readonly Stage[]): Promise<unknown> =>
    await runPipeline(build(folder, uri, names, stages), fast);
  const names = ["web", "code", "math"];
  await expect(attempt(names, [first, { ...second, from: 4 }])).rejects.toThrow(
    /a stage more from step 4 on, and this lane is at step \d already.*fork the log/,
  );
  const early = { from: 0, weights: { web: 2, code: 1, math: 1 } };
  await expect(attempt(names, [early, second])).rejects.toThrow(
    /math is new\. Add a stage to the end.*and none before.*fork the log/,
  );
  await expect(attempt(names, [first])).rejects.toThrow(/2 sources, not 3; math is new\. Add a stage.*fork the log/);
  await expect(attempt(["web"], [{ from: 0, weights: { web: 1 } }])).rejects.toThrow(
    /it had 2 sources, not 1.*fork the log/,
  );
  // And whoever still has the old file finds that others have gone on.
  await runPipeline(build(folder, uri, names, [first, second]), { ...fast, batchesMax: 4 });
  await expect(attempt(["web", "code"], [first])).rejects.toThrow(/it had 3 sources, not 2/);
});

test("other weights in a stage that is there are refused: the log would be of two mixtures", async () => {
  const folder = folderOf();
  const uri = `memory:grown-${count++}`;
  await runPipeline(build(folder, uri, ["web", "code"], [first]), { ...fast, batchesMax: 4 });
  const other = build(folder, uri, ["web", "code"], [{ from: 0, weights: { web: 9, code: 1 } }]);
  await expect(runPipeline(other, fast)).rejects.toThrow(/the pipeline has changed .*mixture.*fork/);
  // Twice as much of everything is the same mixture.
  await runPipeline(build(folder, uri, ["web", "code"], [{ from: 0, weights: { web: 4, code: 2 } }]), {
    ...fast,
    batchesMax: 2,
  });
});
