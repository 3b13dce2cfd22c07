/**
 * Property: sources that Python loads and that TypeScript loads are mixed into one training log, which a Python rank reads: every sample of both once, with the
 * tokens that the Python transform made, though a loader of each kind is killed on the way.
 * Method: real processes of both languages and a log in a folder.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { openNamespace, systemEnv } from "../../src/index.js";
import { auditPipeline, definePipeline, external, loadPipeline } from "../../src/plan/index.js";
import { dataFolder, writeJsonl } from "./data-files.js";

const interpreter = process.env["BATCHWEAVE_PYTHON"] ?? "python3";
const root = fileURLToPath(new URL("../..", import.meta.url));
const env = { ...process.env, PYTHONPATH: join(root, "python") };
const cli = join(root, "dist/src/cli/main.js");
const [books, pages] = [200, 400];

// Slow until the file `fast` is there, so that no loader ends before it is killed, however busy the machine is.
const pythonText = `
import os, time
from batchweave.load import Source, stream

FAST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fast")

def numbers():
    return range(${books})

def tokens(n):
    if not os.path.exists(FAST):
        time.sleep(0.6)
    return {"tokens": [1000 + n] * (3 + n % 5), "features": {"n": n}}

books = Source("books", stream(numbers), transforms=[tokens], lanes=4, block_samples=1)
`;

const slowText = `
import { existsSync } from "node:fs";
const fast = new URL("./fast", import.meta.url);
export const slow = (value) => {
  if (!existsSync(fast)) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300);
  return value;
};
`;

const pipelineText = `
import { definePipeline, jsonl, python, tokenize, transform } from ${JSON.stringify(join(root, "dist/src/plan/index.js"))};
const here = (name) => new URL(name, import.meta.url);
export default definePipeline({
  namespace: { uri: new URL("./log", import.meta.url).href, grid: { rows: 2, chunks: 1 }, lanes: 2 },
  sources: {
    web: jsonl({
      shards: here("./web-*.jsonl*"),
      transforms: [transform(here("./slow.mjs"), "slow"), tokenize({ tokenizer: { kind: "bytes" } })],
      epochs: 1,
      lanes: 4,
    }),
    books: python({ file: here("./books.py:books"), lanes: 4, weight: 2 }),
  },
  strategy: (graph) => graph.balance(),
  construct: { seqLength: 256 },
  workers: { threads: 1 },
  exchange: { kind: "log", blockSamples: 8 },
});
`;

/** A process of the fleet; `ended` gives its exit status. */
function start(program: string, ...args: string[]): { readonly child: ChildProcess; readonly ended: Promise<unknown> } {
  const child = spawn(program, args, { env, stdio: ["ignore", "ignore", "inherit"] });
  return { child, ended: once(child, "exit").then(([status]) => status) };
}

test("loaders of both kinds serve one pipeline and are killed: every sample is in the training log once", async () => {
  const folder = dataFolder();
  mkdirSync(folder, { recursive: true });
  writeJsonl(folder, "web", [pages / 2, pages / 2]);
  const file = join(folder, "pipeline.mjs");
  writeFileSync(join(folder, "books.py"), pythonText);
  writeFileSync(join(folder, "slow.mjs"), slowText);
  writeFileSync(file, pipelineText);
  const loadPages = (): ReturnType<typeof start> => start(process.execPath, cli, "load", file);
  const loadBooks = (): ReturnType<typeof start> =>
    start(
      interpreter,
      "-m",
      "batchweave",
      "load",
      `${folder}/books.py:books`,
      "--uri",
      `file://${folder}/log.sources`,
      "--workers",
      "1",
    );
  const construct = start(process.execPath, cli, "construct", file);
  const first = [loadPages(), loadBooks()];
  const logs = await Promise.all(
    ["books", "web"].map((name) => openNamespace(`file://${folder}/log.sources/${name}`, { waitMs: 240_000 })),
  );
  for (const log of logs)
    while ((await log.info()).steps.end < 2) {
      for (const { child } of first) expect(child.exitCode).toBe(null);
      await systemEnv.sleep(200);
    }
  for (const { child, ended } of first) {
    child.kill("SIGKILL");
    expect(await ended).toBe(null);
  }
  writeFileSync(join(folder, "fast"), "");
  const rest = [construct, loadPages(), loadBooks()];
  expect(await Promise.all(rest.map(({ ended }) => ended))).toEqual([0, 0, 0]);
  const ns = await openNamespace(`file://${folder}/log`);
  const { closed, steps } = await ns.info();
  expect(closed).toBe(true);
  const pipeline = await loadPipeline(file);
  expect(await auditPipeline(pipeline, ns, { env: systemEnv })).toMatchObject({ lost: 0, repeated: 0 });
  const ids: Record<string, string[]> = { web: [], books: [] };
  for (let step = 0; step < steps.end; step++)
    for (const { source, id } of (await ns.samples(step)) ?? []) ids[source]?.push(id);
  expect(new Set(ids["web"]).size).toBe(pages);
  expect(ids["web"]?.length).toBe(pages);
  expect(ids["books"]?.map(Number).sort((a, b) => a - b)).toEqual(Array.from({ length: books }, (_, n) => n));
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
print(json.dumps([seen[1000 + n] for n in range(${books})]))`;
  const read = spawnSync(interpreter, ["-c", script, ns.uri], { env, encoding: "utf8" });
  expect(read.stderr).toBe("");
  expect(JSON.parse(read.stdout)).toEqual(Array.from({ length: books }, (_, n) => 3 + (n % 5)));
});

test("a source that others fill is refused where it would have to be read", () => {
  const build = (): unknown =>
    definePipeline({
      namespace: { uri: "memory:none", grid: { rows: 1, chunks: 1 }, lanes: 2 },
      sources: { books: external({ lanes: 2 }) },
      strategy: (graph) => graph.balance(),
      construct: { seqLength: 256 },
    });
  expect(build).toThrow(/Source books is filled by other processes/);
});
