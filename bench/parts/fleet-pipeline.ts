/** The pipeline of `bench fleet`, as its processes are told it. */
import { join } from "node:path";
import { definePipeline, jsonl, type Pipeline, parquet, tokenize, transform } from "../../src/plan/index.js";

/** What a process of the benchmark is told. */
export interface FleetShape {
  readonly folder: string;
  readonly uri: string;
  readonly format: "jsonl" | "parquet";
  /** Milliseconds of a sample in a transform thread, by source. */
  readonly sources: Readonly<Record<string, number>>;
  readonly lanes: number;
  readonly sourceLanes: number;
  readonly exchange: "direct" | "log";
  /** Passes over the data; 0: endless. */
  readonly epochs: number;
  readonly blockSamples?: number | undefined;
  readonly blockBytes?: number | undefined;
  readonly aheadBlocks?: number | undefined;
  readonly threads: number;
  /** Samples of a batch; 0: as many as fit. */
  readonly samples: number;
  /** Samples of a source in transforms at a time; 0: as many as there are threads. */
  readonly inFlight?: number | undefined;
  /** Lanes that a loader holds at most. */
  readonly lanesMax?: number | undefined;
}

const tokens = tokenize({ tokenizer: { kind: "bytes" } });

export function fleetPipeline(shape: FleetShape): Pipeline {
  const { folder, uri, format, lanes, sourceLanes, exchange, epochs, samples, threads, inFlight } = shape;
  const make = format === "jsonl" ? jsonl : parquet;
  const sources = Object.entries(shape.sources).map(([name, ms]) => [
    name,
    make({
      shards: join(folder, `${name}*.${format}`),
      transforms: ms > 0 ? [transform(new URL("./wait.js", import.meta.url), "wait", { ms }), tokens] : [tokens],
      ...(epochs > 0 ? { epochs } : {}),
      ...(inFlight ? { inFlightMax: inFlight } : {}),
      lanes: sourceLanes,
    }),
  ]);
  const { blockSamples, blockBytes, aheadBlocks } = shape;
  return definePipeline({
    namespace: { uri, grid: { rows: 4, chunks: 1 }, lanes },
    exchange: exchange === "direct" ? "direct" : { kind: "log", blockSamples, blockBytes, aheadBlocks },
    sources: Object.fromEntries(sources),
    strategy: (graph) => graph.balance("greedy"),
    construct: { seqLength: 8192, microbatches: 2 },
    workers: { threads },
    ...(samples > 0 ? { batch: { samples } } : {}),
  });
}

/** Sums the series of counters in a Prometheus text. */
export function totals(text: string, names: readonly string[]): Record<string, number> {
  const sums = Object.fromEntries(names.map((name) => [name, 0]));
  for (const line of text.split("\n")) {
    const [, name = "", value = "0"] = /^(\w+)(?:\{.*\})? (\S+)$/.exec(line) ?? [];
    if (name in sums) sums[name] = (sums[name] as number) + Number(value);
  }
  return sums;
}
