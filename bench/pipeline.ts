/**
 * What a pipeline costs besides the user's transforms, and how well it packs. Packing: real tokens / slots for lengths of both data sets of
 * MegaScale-Data's figure 2. Throughput: a real pipeline (JSON lines, tiktoken's cl100k_base or JPEG decoding as the user's transform, mixing,
 * balancing, packing, encoding, appending to a log in memory) without worker threads, so that everything is on one core and one clock: tokens a
 * second of processor time, and the share of the time that was spent outside transforms (not told for JPEG, which decodes on threads of its own).
 * Stalls: for how long large batches keep the main thread from everything else, such as committing, with and without worker threads.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { monitorEventLoopDelay, performance } from "node:perf_hooks";
import { inScratchFolder } from "../harness/scratch-folder.js";
import {
  backboneCost,
  definePipeline,
  iterable,
  jsonl,
  type PackingMethod,
  type Pipeline,
  packSequences,
  patchifyImages,
  placeImage,
  runPipeline,
  SeededRandom,
  type Source,
  tokenize,
} from "../src/plan/index.js";
import { number, readOptions } from "./parts/options.js";
import { Report } from "./parts/report.js";
import { skewedSamples, skews } from "./parts/skewed-samples.js";

export const summary: string =
  "packing efficiency; tokens a second per core; time outside transforms; stalls of the main thread";

function packing(report: Report): void {
  for (const data of ["coyo", "navit"] as const) {
    for (const context of [4096, 8192, 16_384]) {
      const samples = skewedSamples(50_000, { skew: skews[data], images: true, tokensMax: context }, "packing");
      const lengths = samples.map(({ tokens }) => tokens);
      for (const method of ["none", "naive", "first-fit", "best-fit"] satisfies PackingMethod[]) {
        const begun = performance.now();
        const { efficiency } = packSequences(lengths, context, method);
        report.row({ part: "packing", data, context, method, efficiency, ms: performance.now() - begun });
      }
    }
  }
}

function pipelineOf(
  name: string,
  source: Source,
  steps: number,
  { microbatches = 2, threads = 0 }: { readonly microbatches?: number; readonly threads?: number } = {},
): Pipeline {
  return definePipeline({
    namespace: { uri: `memory:bench-pipeline-${name}`, grid: { rows: 8, chunks: 1 }, lanes: 1 },
    sources: { only: source },
    strategy: (graph) => graph.cost(backboneCost("llama-12b")).balance("greedy"),
    construct: { seqLength: 4096, microbatches },
    steps,
    workers: { threads },
  });
}

/** Processor time of `work`, all threads together, in ms. */
async function processorMs<T>(work: () => Promise<T>): Promise<{ readonly ms: number; readonly value: T }> {
  const before = process.cpuUsage();
  const value = await work();
  const { user, system } = process.cpuUsage(before);
  return { ms: (user + system) / 1000, value };
}

async function throughput(report: Report, name: string, source: Source, steps: number): Promise<void> {
  // Loading tokenizers and compiling is not what a long run pays.
  await runPipeline(pipelineOf(`${name}-warm`, source, Math.ceil(steps / 4)));
  const { ms, value } = await processorMs(() => runPipeline(pipelineOf(name, source, steps)));
  const { tokens, packing: efficiency } = value.summary;
  const transformMs = value.sources.reduce((sum, { transformMs: own }) => sum + own, 0);
  report.row({
    part: "throughput",
    transform: name,
    tokens,
    tokensPerSecond: (1000 * tokens) / ms,
    outsideShare: name === "jpeg" ? undefined : 1 - transformMs / value.wallMs,
    efficiency,
    ms: value.wallMs,
  });
}

/** Batches of two million tokens. */
async function stalls(report: Report, source: Source, steps: number): Promise<void> {
  for (const threads of [0, 2]) {
    const shape = { microbatches: 64, threads };
    await runPipeline(pipelineOf(`stalls-${threads}-warm`, source, 2, shape));
    const delay = monitorEventLoopDelay({ resolution: 5 });
    delay.enable();
    const { summary: made, wallMs } = await runPipeline(pipelineOf(`stalls-${threads}`, source, steps, shape));
    delay.disable();
    report.row({
      part: "stalls",
      threads,
      tokensPerBatch: Math.round(made.tokens / steps),
      tokensPerWallSecond: (1000 * made.tokens) / wallMs,
      stallMsMax: delay.max / 1e6,
      stallMsP99: delay.percentile(99) / 1e6,
    });
  }
}

async function images(): Promise<Source> {
  const { default: sharp } = await import("sharp");
  const random = new SeededRandom("bench images");
  const files = await Promise.all(
    Array.from({ length: 64 }, async () => {
      const side = (): number => 128 + Math.min(896, Math.round(192 * Math.exp(0.7 * random.normal())));
      const [width, height] = [side(), side()];
      const data = Uint8Array.from({ length: 3 * width * height }, (_, i) => (i * 31 + random.below(32)) % 256);
      return Uint8Array.from(
        await sharp(data, { raw: { width, height, channels: 3 } })
          .jpeg()
          .toBuffer(),
      );
    }),
  );
  return iterable({
    open: function* (from) {
      for (let n = (from as number | undefined) ?? 0; ; n++) {
        const image = files[n % files.length] as Uint8Array;
        yield {
          value: { image, tokens: [1, 2, 3] },
          bytes: image.length,
          ...(n % 64 === 63 ? { snapshot: n + 1 } : {}),
        };
      }
    },
    transforms: [placeImage({ token: 9 }), patchifyImages({ at: "constructor" })],
  });
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["steps", "only"]);
  const report = new Report("pipeline", options.json);
  if (options.only === undefined) packing(report);
  const steps = number(options.steps, 30);
  await inScratchFolder(undefined, async (folder) => {
    const random = new SeededRandom("bench text");
    const words = Array.from({ length: 8192 }, () => Math.floor(random.unit() * 36 ** 5).toString(36));
    const lines = Array.from({ length: 20_000 }, () => {
      const count = Math.max(1, Math.min(1500, Math.round(90 * Math.exp(0.9 * random.normal()))));
      return JSON.stringify({ text: Array.from({ length: count }, () => words[random.below(words.length)]).join(" ") });
    });
    writeFileSync(join(folder, "text.jsonl"), lines.join("\n"));
    const text = (transform: Parameters<typeof tokenize>[0]["tokenizer"]): Source =>
      jsonl({ shards: join(folder, "text.jsonl"), transforms: [tokenize({ tokenizer: transform })] });
    const isWanted = (name: string): boolean => (options.only ?? name) === name;
    if (isWanted("cl100k_base"))
      await throughput(report, "cl100k_base", text({ kind: "tiktoken", encoding: "cl100k_base" }), steps);
    if (isWanted("jpeg")) await throughput(report, "jpeg", await images(), Math.ceil(steps / 3));
    if (isWanted("stalls")) await stalls(report, text({ kind: "bytes" }), Math.ceil(steps / 3));
    if (isWanted("bytes")) await throughput(report, "bytes", text({ kind: "bytes" }), steps);
  });
  report.end();
}
