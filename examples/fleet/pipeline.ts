/**
 * A fleet: loaders, constructors and ranks are processes of their own, any number of each, and logs are all there is between them.
 *
 *   npx batchweave run examples/fleet/pipeline.ts                 the rehearsal: processes killed, added and removed at random, and what came of it
 *   npx batchweave load examples/fleet/pipeline.ts &              a loader; start as many as you like, anywhere, at any time
 *   npx batchweave construct examples/fleet/pipeline.ts &         a constructor; the same
 *
 * The data are made on the first run (data.ts).
 */
import { backboneCost, definePipeline, jsonl, type Pipeline, stagedMix, tokenize } from "batchweave/plan";
import { dataFolder, makeData, sources } from "./data.js";

makeData();

const tokens = tokenize({ tokenizer: { kind: "bytes" }, end: 256 });
const shards = (name: string): string => decodeURI(new URL(`${name}-*.jsonl`, dataFolder).href);

const pipeline: Pipeline = definePipeline({
  namespace: { uri: new URL("./logs/run", import.meta.url).href, grid: { rows: 4, chunks: 2 }, lanes: 4 },
  // Read once, by the loaders; constructors see tables, and fetch what they chose.
  exchange: { kind: "log", blockBytes: 65_536 },
  sources: Object.fromEntries(
    Object.keys(sources).map((name) => [
      name,
      jsonl({ shards: shards(name), transforms: [tokens], epochs: 1, lanes: 3 }),
    ]),
  ),
  strategy: (graph) =>
    graph
      .mix(
        stagedMix([
          { from: 0, weights: { web: 6, code: 3, forum: 3, papers: 1, math: 1, books: 1 }, name: "broad" },
          { from: 30, weights: { web: 2, code: 3, forum: 1, papers: 4, math: 3, books: 3 }, name: "deep" },
        ]),
      )
      .distribute("dp")
      .cost(backboneCost("llama-12b"))
      .balance("greedy"),
  construct: { seqLength: 4096 },
  seed: 2026,
  rehearsal: true,
});

export default pipeline;
