/**
 * Property: a source that Python loads and one that TypeScript loads are mixed into one training log, which a Python rank reads: every sample of both once,
 * with the tokens that the Python transform made, though a Python loader is killed on the way.
 * Method: real Python processes and a log in a folder; the constructors run here.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openNamespace, systemEnv } from "../../src/index.js";
import {
  auditPipeline,
  definePipeline,
  external,
  jsonl,
  type Pipeline,
  python,
  runConstructors,
  runLoaders,
  tokenize,
} from "../../src/plan/index.js";
import { dataFolder, writeJsonl } from "./data-files.js";

const interpreter = process.env["BATCHWEAVE_PYTHON"] ?? "python3";
const env = { ...process.env, PYTHONPATH: join(import.meta.dirname, "../../python") };

const pipelineFile = `
import time
from batchweave.load import Source, stream

def numbers():
    return range(300)

def tokens(n):
    time.sleep(0.004)
    return {"tokens": [1000 + n] * (3 + n % 5), "features": {"n": n}}

books = Source("books", stream(numbers), transforms=[tokens], lanes=2, block_samples=16)
`;

function build(folder: string): Pipeline {
  return definePipeline({
    namespace: { uri: `file://${folder}/log`, grid: { rows: 2, chunks: 1 }, lanes: 2 },
    sources: {
      web: jsonl({
        shards: join(folder, "web-*.jsonl*"),
        transforms: [tokenize({ tokenizer: { kind: "bytes" } })],
        epochs: 1,
        lanes: 2,
      }),
      books: python({ file: join(folder, "books.py:books"), lanes: 2, weight: 2 }),
    },
    strategy: (graph) => graph.balance(),
    construct: { seqLength: 256 },
    workers: { threads: 0 },
    exchange: "log",
  });
}

function load(folder: string): ChildProcess {
  const args = ["-m", "batchweave", "load", `${folder}/books.py:books`, "--uri", `file://${folder}/log.sources`];
  return spawn(interpreter, [...args, "--workers", "1"], { env, stdio: ["ignore", "ignore", "inherit"] });
}

test("samples of a Python loader and of a TypeScript loader are each in the training log once", async () => {
  const folder = dataFolder();
  mkdirSync(folder, { recursive: true });
  writeJsonl(folder, "web", [60, 40]);
  writeFileSync(join(folder, "books.py"), pipelineFile);
  const pipeline = build(folder);
  const first = load(folder);
  const fast = { producer: { cadence: { kind: "interval", intervalMs: 20 } } } as const;
  const running = Promise.all([runLoaders(pipeline, fast), runConstructors(pipeline, fast)]);
  const books = await openNamespace(`file://${folder}/log.sources/books`, { waitMs: 60_000 });
  while ((await books.info()).steps.end < 4) await systemEnv.sleep(50);
  first.kill("SIGKILL");
  await once(first, "exit");
  const ended = once(load(folder), "exit");
  const [, result] = await running;
  expect(result.closed).toBe(true);
  const [status] = (await ended) as [number];
  expect(status).toBe(0);
  const ns = await openNamespace(`file://${folder}/log`);
  expect(await auditPipeline(pipeline, ns, { env: systemEnv })).toMatchObject({ lost: 0, repeated: 0 });
  const ids: string[] = [];
  for (let step = 0; step < result.end; step++)
    for (const { source, id } of (await ns.samples(step)) ?? []) if (source === "books") ids.push(id);
  expect(ids.map(Number).sort((a, b) => a - b)).toEqual(Array.from({ length: 300 }, (_, n) => n));
  // What a rank in Python sees: each number as often as the transform wrote it. Numbers above 999 are no bytes of web pages.
  const script = `
import json, sys
from collections import Counter
from batchweave import decode_safetensors, open_namespace
seen = Counter()
for share in open_namespace(sys.argv[1]).consumer({"dp": 1}, 0, rows_per_rank=2):
    for piece in share.slices:
        tensor = decode_safetensors(piece.bytes)[0]["tokens"]
        seen.update(memoryview(bytes(tensor.data)).cast({"I32": "i", "I64": "q"}[tensor.dtype]))
print(json.dumps([seen[1000 + n] for n in range(300)]))`;
  const read = spawnSync(interpreter, ["-c", script, ns.uri], { env, encoding: "utf8" });
  expect(read.stderr).toBe("");
  expect(JSON.parse(read.stdout)).toEqual(Array.from({ length: 300 }, (_, n) => 3 + (n % 5)));
});

test("a source that others fill is refused where it would have to be read", () => {
  const spec = { ...build("/nowhere").spec, sources: { books: external({ lanes: 2 }) }, exchange: "direct" } as const;
  expect(() => definePipeline(spec)).toThrow(/Source books is filled by other processes/);
});
