/**
 * Five sources, two phases, text and images, balanced for dp 4 x cp 2:
 *
 *   npx batchweave plan examples/multisource/pipeline.ts --steps 3    who gets what, at what cost
 *   npx batchweave run examples/multisource/pipeline.ts               the rehearsal: two producers, eight ranks, one kill -9, and what came of it
 *   npx batchweave run examples/multisource/pipeline.ts --id p0       a producer that writes into ./logs/run
 *
 * The data are made on the first run (data.ts).
 */
import {
  backboneCost,
  definePipeline,
  encoderCost,
  jsonl,
  megatron,
  type Pipeline,
  parquet,
  patchifyImages,
  placeImage,
  stagedMix,
  tokenize,
  transform,
  webdataset,
} from "batchweave/plan";
import { dataFolder, makeData } from "./data.js";

await makeData();

const data = (pattern: string): string => decodeURI(new URL(pattern, dataFolder).href);
const tokens = tokenize({ tokenizer: { kind: "bytes" }, end: 256 });
const imageToken = 257;
// This file runs as TypeScript or built; so does the module with its transforms.
const transforms = new URL(import.meta.url.endsWith(".ts") ? "./transforms.ts" : "./transforms.js", import.meta.url);

const pipeline: Pipeline = definePipeline({
  namespace: {
    uri: new URL("./logs/run", import.meta.url).href,
    grid: { rows: 4, chunks: 2 },
    order: "lanes",
    lanes: 4,
  },
  sources: {
    web: jsonl({ shards: data("web-*.jsonl.gz"), transforms: [tokens] }),
    code: jsonl({ shards: data("code-*.jsonl"), transforms: [tokens] }),
    math: parquet({ shards: data("math-*.parquet"), transforms: [tokens] }),
    books: megatron({ shards: data("books.idx") }),
    vlm: webdataset({
      shards: data("vlm-*.tar"),
      // Measured in the loader, decoded only once a sample is chosen.
      transforms: [
        transform(transforms, "caption"),
        tokens,
        placeImage({ token: imageToken, patch: 16, patchesMax: 256 }),
        patchifyImages({ patch: 16, at: "constructor" }),
      ],
    }),
  },
  strategy: (graph) => ({
    backbone: graph
      .mix(
        stagedMix([
          { from: 0, weights: { web: 5, code: 2, math: 1, books: 1, vlm: 1 }, name: "broad" },
          { from: 20, weights: { web: 2, code: 3, math: 2, books: 1, vlm: 2 }, name: "skills" },
        ]),
      )
      .distribute("dp")
      .cost(backboneCost("llama-12b"))
      .balance("karmarkar-karp")
      .broadcastAt("tp"),
    encoder: graph
      .select("images", (meta) => meta.images !== undefined)
      .distribute("world")
      .cost(encoderCost("vit-1b"))
      .balance("greedy"),
  }),
  construct: { seqLength: 4096, microbatches: 2 },
  batch: { samples: 140 },
  steps: 40,
  seed: 2026,
  rehearsal: true,
});

export default pipeline;
