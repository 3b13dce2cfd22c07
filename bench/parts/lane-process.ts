/**
 * One process of `bench lanes`: runs one lane of a finite pipeline to its end and says what it read.
 *
 *   FOLDER FORMAT LANES LANE URI
 */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import {
  definePipeline,
  jsonl,
  megatron,
  parquet,
  runPipeline,
  type Source,
  tokenize,
  transform,
  webdataset,
} from "../../src/plan/index.js";

const [folder = "", format = "", lanes = "1", lane = "0", uri = ""] = process.argv.slice(2);
const tokens = tokenize({ tokenizer: { kind: "bytes" } });
const ofCaption = transform(new URL("./caption.js", import.meta.url), "caption");
const sources: Readonly<Record<string, () => Source>> = {
  jsonl: () => jsonl({ shards: join(folder, "*.jsonl"), transforms: [tokens], epochs: 1 }),
  "jsonl.gz": () => jsonl({ shards: join(folder, "*.jsonl.gz"), transforms: [tokens], epochs: 1 }),
  parquet: () => parquet({ shards: join(folder, "*.parquet"), transforms: [tokens], epochs: 1 }),
  webdataset: () => webdataset({ shards: join(folder, "*.tar"), transforms: [ofCaption, tokens], epochs: 1 }),
  megatron: () => megatron({ shards: join(folder, "*.idx"), epochs: 1 }),
};
const source = sources[format]?.();
if (!source || readdirSync(folder).length === 0) throw new Error(`no data of ${format} in ${folder}`);
const pipeline = definePipeline({
  namespace: { uri, grid: { rows: 4, chunks: 1 }, lanes: Number(lanes) },
  sources: { [format]: source },
  strategy: (graph) => graph.balance("greedy"),
  construct: { seqLength: 8192, microbatches: 2 },
  workers: { threads: 0 },
});
const result = await runPipeline(
  pipeline,
  { lanes: [Number(lane)] },
  { storeSettings: { durability: "process-crash" } },
);
const [figures] = result.sources;
process.stdout.write(`${JSON.stringify({ readBytes: figures?.readBytes, samples: figures?.samples })}\n`);
