/**
 * How long a plan takes: `cost` and `balance` over a buffer of samples for 1,152 GPUs (tp 4, pp 8, dp 36), 8 microbatches, token and memory
 * capacity of every microbatch kept (each has 2 % more than its even share). The paper's Table 2, last columns: 107 ms + 357 ms, with groups of
 * two 106 + 195. Medians of several runs after warming up; the arrival assignment that balancing starts from is part of the time.
 */
import { performance } from "node:perf_hooks";
import {
  arrivalAssignment,
  backboneCost,
  balanceBins,
  costColumns,
  imbalance,
  type SampleMeta,
} from "../src/plan/index.js";
import { number, numbers, readOptions } from "./parts/options.js";
import { Report } from "./parts/report.js";
import { skewedSamples, skews } from "./parts/skewed-samples.js";
import { median } from "./parts/statistics.js";

export const summary: string = "time of cost and balance, from 10^3 to 10^6 samples";

const buckets = 36;
const binsPerBucket = 8;
const bins = buckets * binsPerBucket;

interface Timing {
  readonly costMs: number;
  readonly balanceMs: number;
  readonly before: number;
  readonly after: number;
}

function planOnce(samples: readonly SampleMeta[], method: "greedy" | "karmarkar-karp", groupSize: number): Timing {
  const cost = backboneCost("llama-12b");
  const begun = performance.now();
  const columns = costColumns(samples, cost);
  const costed = performance.now();
  const capacity = capacityOf(columns.tokens, columns.memory);
  const limited = performance.now();
  const start = arrivalAssignment(columns, bins, capacity);
  const result = balanceBins({ columns, buckets, binsPerBucket, capacity, start }, { method, groupSize });
  const balanceMs = performance.now() - limited;
  const of = (assignment: Int32Array): number => imbalance(assignment, columns, bins);
  // Before: as loaders deal, the same number of samples to everyone.
  const share = Math.ceil(samples.length / bins);
  const dealt = Int32Array.from(samples, (_, i) => Math.floor(i / share));
  return { costMs: costed - begun, balanceMs, before: of(dealt), after: of(result) };
}

/** Two percent above the even share, and never below the longest sample. */
function capacityOf(tokens: Float64Array, memory: Float64Array): { tokens: number; memory: number } {
  const limit = (column: Float64Array): number => {
    let [sum, most] = [0, 0];
    for (const value of column) {
      sum += value;
      most = Math.max(most, value);
    }
    return Math.max(Math.ceil((1.02 * sum) / bins), most);
  };
  return { tokens: limit(tokens), memory: limit(memory) };
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["samples", "runs"]);
  const report = new Report("plan", options.json);
  const runs = number(options.runs, 7);
  for (const samples of numbers(options.samples, [1e3, 1e4, 1e5, 1e6])) {
    const metas = skewedSamples(samples, { skew: skews.coyo, images: true, tokensMax: 8192 }, "plan");
    for (const method of ["greedy", "karmarkar-karp"] as const) {
      for (const group of [1, 2]) {
        planOnce(metas, method, group);
        const timings = Array.from({ length: samples > 1e5 ? Math.min(3, runs) : runs }, () =>
          planOnce(metas, method, group),
        );
        const of = (pick: (t: Timing) => number): number => median(timings.map(pick));
        const [costMs, balanceMs] = [of((t) => t.costMs), of((t) => t.balanceMs)];
        const { before, after } = timings[0] as Timing;
        // Groups are named in the method: a row has these fields and no others.
        const name = group === 1 ? method : `${method}, groups of ${group}`;
        report.row(
          { method: name, samples, bins, ms: costMs + balanceMs, imbalanceBefore: before, imbalanceAfter: after },
          { costMs, balanceMs, fastestMs: Math.min(...timings.map((t) => t.costMs + t.balanceMs)) },
        );
      }
    }
  }
  report.end();
}
