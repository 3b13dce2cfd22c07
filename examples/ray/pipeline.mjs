/** Constructors of the Ray example: two sources that Ray Data fills, mixed and balanced for two ranks. Where the logs are, the environment says. */
import { backboneCost, definePipeline, external, staticMix } from "batchweave/plan";

export default definePipeline({
  namespace: {
    uri: process.env.EXAMPLE_URI ?? "file:///tmp/batchweave-ray/log",
    grid: { rows: 2, chunks: 1 },
    lanes: 2,
  },
  exchange: "log",
  sources: { text: external({ lanes: 2 }), images: external({ lanes: 2 }) },
  strategy: (graph) =>
    graph
      .mix(staticMix({ text: 2, images: 1 }))
      .distribute("dp")
      .cost(backboneCost("llama-12b"))
      .balance("greedy"),
  construct: { seqLength: 256 },
  workers: { threads: 0 },
});
