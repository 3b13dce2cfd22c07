/** What a simulated fleet works on: sources whose every sample is known, and a pipeline over them. */
import { definePipeline, type Pipeline, type Source } from "../../src/plan/index.js";
import type { Rng } from "../world/random.js";

/** One source. */
interface ToySource {
  readonly name: string;
  readonly lanes: number;
  /** Samples of each shard. */
  readonly shards: readonly number[];
  /** Time that a window takes to be read. */
  readonly readMs: number;
}

/** A fleet, drawn from the seed. */
export interface FleetPlan {
  readonly sources: readonly ToySource[];
  readonly lanes: number;
  readonly loaders: number;
  readonly constructors: number;
  readonly trainMs: number;
  readonly checkpointEvery: number;
}

/** Draws a fleet. */
export function drawFleet(rng: Rng): FleetPlan {
  const between = (least: number, most: number): number => least + rng.below(most - least + 1);
  return {
    sources: Array.from({ length: between(2, 3) }, (_, i) => {
      const lanes = between(1, 3);
      return {
        name: `source-${i}`,
        lanes,
        // Fewer shards than lanes leave lanes without a sample.
        shards: Array.from({ length: between(1, 4) }, () => between(12, 48)),
        readMs: rng.pick([20, 100, 400]),
      };
    }),
    lanes: between(2, 4),
    loaders: between(2, 3),
    constructors: between(2, 3),
    trainMs: rng.pick([20, 100, 300]),
    checkpointEvery: between(2, 6),
  };
}

/** The tokens of a sample: its length and every value are known from its name. */
export function toyTokens(source: string, id: string): number[] {
  let state = 0;
  for (const letter of `${source}/${id}`) state = (Math.imul(state, 31) + letter.charCodeAt(0)) >>> 0;
  return Array.from({ length: 3 + (state % 20) }, (_, i) => (state + i * 7919) % 50_000);
}

/** Every sample of a fleet's sources, as `source id`. */
export function allSamples({ sources }: FleetPlan): string[] {
  return sources.flatMap(({ name, shards }) =>
    shards.flatMap((count, shard) => Array.from({ length: count }, (_, i) => `${name} ${shard}:${i}`)),
  );
}

function toySource({ name, lanes, shards, readMs }: ToySource): Source {
  return {
    shards: shards.map((_, shard) => `${name}-${shard}`),
    settings: { lanes, epochs: 1, windowSamplesMax: 8, shuffle: true },
    format: {
      // Its shards are no files.
      name: "iterable",
      division: () => "none",
      files: () => [],
      open: async (uri, { env }) => ({
        async read(place, limits, _part, signal) {
          await env.sleep(readMs, signal);
          const shard = Number(uri.slice(uri.lastIndexOf("-") + 1));
          const [first, count] = [Number(place ?? 0), shards[shard] as number];
          const last = Math.min(count, first + limits.samplesMax);
          const samples = Array.from({ length: last - first }, (_, i) => {
            const id = String(first + i);
            return { id, bytes: 64, value: { tokens: toyTokens(name, `${shard}:${id}`) } };
          });
          return { samples, next: last < count ? last : undefined };
        },
        async [Symbol.asyncDispose]() {},
      }),
    },
  };
}

/** The training log's address. */
export const trainingUri = "memory:training";

/** The pipeline of a fleet. */
export function fleetPipeline({ sources, lanes }: FleetPlan): Pipeline {
  return definePipeline({
    namespace: { uri: trainingUri, grid: { rows: 2, chunks: 1 }, lanes },
    sources: Object.fromEntries(sources.map((source) => [source.name, toySource(source)])),
    strategy: (graph) => graph.balance(),
    construct: { seqLength: 64 },
    batch: { samples: 4 },
    exchange: { kind: "log", blockSamples: 4, aheadBlocks: 12 },
    workers: { threads: 0 },
  });
}
