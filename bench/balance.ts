/**
 * What balancing is worth: max/mean cost over ranks and microbatches, and a modelled iteration time, for the models of MegaScale-Data's Table 1.
 * The same samples are divided in three ways. vanilla: the same number of samples to every microbatch, in order of arrival, images encoded by
 * the ranks of their own dp group. backbone: microbatches balanced by backbone cost. hybrid: images balanced over all ranks as well.
 *
 * Time model, in units of one rank's operations a second: the encoder runs first, data-parallel over the world, and is as slow as its slowest
 * rank; then every dp rank runs its microbatches through a 1F1B pipeline of pp stages, which takes the sum of its microbatches plus pp - 1 times
 * its longest (fill and drain wait for it), and the step ends with the slowest dp rank. Mesh tp 4, pp 8, dp 9 as in the paper's 288-GPU trial, 8
 * microbatches. A batch has as many samples as vanilla can take: the fullest microbatch reaches the context length.
 */
import {
  backboneCost,
  balanceBins,
  ClientPlaceTree,
  type CostFunction,
  costColumns,
  encoderCost,
  imbalance,
  type Model,
  models,
  type SampleMeta,
} from "../src/plan/index.js";
import { number, readOptions } from "./harness/options.js";
import { Report } from "./harness/report.js";
import { skewedSamples, skews } from "./harness/skewed-samples.js";

export const summary: string = "imbalance and modelled speed-up on Table 1's models";

const [dp, pp, tp, microbatches] = [9, 8, 4, 8];
const bins = dp * microbatches;
const world = new ClientPlaceTree({ dp, pp, tp }).worldSize;

interface Division {
  /** Bin of every sample. */
  readonly backbone: Int32Array;
  /** Rank that encodes its image. */
  readonly encoder: Int32Array;
}

interface Figures {
  readonly ranks: number;
  readonly microbatches: number;
  readonly encoderRanks: number;
  readonly time: number;
}

/** The same number of samples for every microbatch, as many as the fullest one can hold. */
function takeBatch(pool: readonly SampleMeta[], context: number): { samples: SampleMeta[]; dealt: Int32Array } {
  const fits = (each: number): boolean => {
    for (let bin = 0; bin < bins; bin++) {
      let tokens = 0;
      for (let i = bin * each; i < (bin + 1) * each; i++) tokens += pool[i]?.tokens ?? Infinity;
      if (tokens > context) return false;
    }
    return true;
  };
  let each = 1;
  while (fits(each + 1)) each++;
  return {
    samples: pool.slice(0, each * bins),
    dealt: Int32Array.from({ length: each * bins }, (_, i) => Math.floor(i / each)),
  };
}

/** Images go round the ranks of the dp group that has their sample. */
function encodeAtHome(backbone: Int32Array): Int32Array {
  const turn = new Int32Array(dp);
  return backbone.map((bin) => {
    const group = Math.floor(bin / microbatches);
    const local = (turn[group] as number) % (pp * tp);
    turn[group] = (turn[group] as number) + 1;
    return group * pp * tp + local;
  });
}

function balanced(
  samples: readonly SampleMeta[],
  cost: CostFunction,
  buckets: number,
  perBucket: number,
  capacity: number | undefined,
  start: Int32Array,
): Int32Array {
  const columns = costColumns(samples, cost);
  return balanceBins(
    { columns, buckets, binsPerBucket: perBucket, capacity: { tokens: capacity }, start },
    { method: "greedy" },
  );
}

function judge(
  samples: readonly SampleMeta[],
  { backbone, encoder }: Division,
  costs: { backbone: CostFunction; encoder: CostFunction | undefined },
): Figures {
  const columns = costColumns(samples, costs.backbone);
  const loads = new Float64Array(bins);
  backbone.forEach((bin, i) => {
    loads[bin] = (loads[bin] as number) + (columns.compute[i] as number);
  });
  let pipeline = 0;
  for (let d = 0; d < dp; d++) {
    const own = loads.subarray(d * microbatches, (d + 1) * microbatches);
    const time = own.reduce((a, b) => a + b, 0) + (pp - 1) * Math.max(...own);
    pipeline = Math.max(pipeline, time / (tp * pp));
  }
  const encoding = costs.encoder ? costColumns(samples, costs.encoder) : undefined;
  const encoded = new Float64Array(world);
  if (encoding)
    encoder.forEach((rank, i) => {
      encoded[rank] = (encoded[rank] as number) + (encoding.compute[i] as number);
    });
  return {
    ranks: imbalance(backbone, columns, bins, microbatches),
    microbatches: imbalance(backbone, columns, bins),
    encoderRanks: encoding ? imbalance(encoder, encoding, world) : 1,
    time: pipeline + Math.max(...encoded),
  };
}

/** Text alone; image encoders whose patches go to the backbone one by one, or merged two by two. */
const encoders = [
  [undefined, 1],
  ["vit-1b", 1],
  ["vit-2b", 1],
  ["vit-1b", 4],
  ["vit-2b", 4],
] as const;

/** Table 1's, and its first with the 8 layers to which the paper cut it to fit its GPUs: the encoder is then what takes the time. */
const backbones: Readonly<Record<string, Model>> = {
  "llama-12b": "llama-12b",
  "tmoe-25b": "tmoe-25b",
  "mixtral-8x7b": "mixtral-8x7b",
  "llama, 8 layers": { ...models["llama-12b"], layers: 8 },
};

interface Case {
  readonly data: "coyo" | "navit";
  /** Patches per token of the backbone. */
  readonly merge: number;
  readonly context: number;
  readonly model: Model;
  readonly encoder: (Model & string) | undefined;
}

/** Means over batches of each way. */
function runCase(
  { data, merge, context, model, encoder }: Case,
  batches: number,
): Record<"vanilla" | "backbone" | "hybrid", Figures> {
  const costs = { backbone: backboneCost(model), encoder: encoder ? encoderCost(encoder) : undefined };
  const sums: Record<string, Figures> = {};
  const add = (way: string, figures: Figures): void => {
    const old = sums[way] ?? { ranks: 0, microbatches: 0, encoderRanks: 0, time: 0 };
    sums[way] = {
      ranks: old.ranks + figures.ranks / batches,
      microbatches: old.microbatches + figures.microbatches / batches,
      encoderRanks: old.encoderRanks + figures.encoderRanks / batches,
      time: old.time + figures.time / batches,
    };
  };
  for (let b = 0; b < batches; b++) {
    const kind = { skew: skews[data], images: encoder !== undefined, tokensMax: context, patchesPerToken: merge };
    const pool = skewedSamples(encoder ? 60_000 : 120_000, kind, `${data} ${context} ${b}`);
    const { samples, dealt } = takeBatch(pool, context);
    const home = encodeAtHome(dealt);
    add("vanilla", judge(samples, { backbone: dealt, encoder: home }, costs));
    const even = balanced(samples, costs.backbone, dp, microbatches, context, dealt);
    add("backbone", judge(samples, { backbone: even, encoder: encodeAtHome(even) }, costs));
    const spread = costs.encoder ? balanced(samples, costs.encoder, world, 1, undefined, home) : home;
    add("hybrid", judge(samples, { backbone: even, encoder: spread }, costs));
  }
  return sums as Record<"vanilla" | "backbone" | "hybrid", Figures>;
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["batches"]);
  const report = new Report("balance", options.json);
  const batches = number(options.batches, 20);
  const speedups = new Map<string, number[]>();
  for (const context of [4096, 8192, 16_384]) {
    for (const data of ["coyo", "navit"] as const) {
      for (const [encoder, merge] of encoders) {
        for (const [backbone, model] of Object.entries(backbones)) {
          const figures = runCase({ data, merge, context, model, encoder }, batches);
          const { vanilla } = figures;
          for (const [way, { ranks, microbatches: across, encoderRanks, time }] of Object.entries(figures)) {
            if (way === "hybrid" && encoder === undefined) continue;
            const speedup = vanilla.time / time;
            report.row({
              context,
              data,
              encoder: encoder ?? "text",
              merge: encoder ? merge : undefined,
              backbone,
              way,
              ranks,
              microbatches: across,
              encoderRanks,
              speedup,
            });
          }
          if (encoder) {
            const key = `context ${context}, ${merge === 1 ? "patches as they are" : "patches merged two by two"}`;
            speedups.set(key, [...(speedups.get(key) ?? []), vanilla.time / figures.hybrid.time]);
          }
        }
      }
    }
  }
  report.end();
  for (const [key, list] of speedups) {
    const mean = list.reduce((a, b) => a + b, 0) / list.length;
    report.note(`${key}: hybrid ${mean.toFixed(2)} times vanilla on average, at most ${Math.max(...list).toFixed(2)}`);
  }
}
