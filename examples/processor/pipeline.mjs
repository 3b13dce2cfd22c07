/** Captions that a Python processor prepares, balanced for two ranks. Where the logs are, the environment says. */
import { backboneCost, definePipeline, python } from "batchweave/plan";

export default definePipeline({
  namespace: {
    uri: process.env.EXAMPLE_URI ?? "file:///tmp/batchweave-processor/log",
    grid: { rows: 2, chunks: 1 },
    lanes: 2,
  },
  exchange: "log",
  sources: { captions: python({ file: new URL("./captions.py:captions", import.meta.url), lanes: 2 }) },
  strategy: (graph) => graph.distribute("dp").cost(backboneCost("llama-12b")).balance("greedy"),
  construct: { seqLength: 128 },
  workers: { threads: 0 },
});
