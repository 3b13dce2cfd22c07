/**
 * What balancing is worth: max/mean cost over ranks and microbatches, and a modelled iteration time, for the models of MegaScale-Data's Table 1.
 * The same samples are divided in several ways. vanilla: sequences are packed in order of arrival, the first 8 for the first dp rank; images
 * go round the ranks of the dp group that has their sequence. backbone: samples balanced over all microbatches by backbone cost. hybrid: images
 * balanced over all ranks as well. hybrid kept: the same, but an image is encoded in the turn of its own microbatch.
 *
 * Time model, in units of one rank's operations a second, mesh tp 4, pp 8, dp 9 and 72 sequences as in the paper's 288-GPU trial: the encoder
 * runs first, data-parallel over the world; then every dp rank runs its 8 microbatches through a 1F1B pipeline, simulated pass by pass; the
 * step ends with the slowest dp rank. When the ranks wait for each other while they encode decides most of the result and the paper
 * does not tell, so both are printed: once a step, or after every microbatch (vanilla and backbone inside a dp group, which gathers its own
 * images; hybrid over the world).
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
import { number, readOptions } from "./parts/options.js";
import { pipelineTime } from "./parts/pipeline-schedule.js";
import { Report } from "./parts/report.js";
import { skewedSamples, skews } from "./parts/skewed-samples.js";

export const summary: string = "imbalance and modelled speed-up on Table 1's models";

const [dp, pp, tp, microbatches] = [9, 8, 4, 8];
const bins = dp * microbatches;
const world = new ClientPlaceTree({ dp, pp, tp }).worldSize;
const groupRanks = pp * tp;

interface Division {
  /** Bin of every sample. */
  readonly backbone: Int32Array;
  /** Rank and turn in which its image is encoded: rank * microbatches + turn. */
  readonly encoder: Int32Array;
  /** Whether images leave the dp group of their sequence. */
  readonly isWorldwide: boolean;
}

interface Figures {
  readonly ranks: number;
  readonly microbatches: number;
  readonly encoderRanks: number;
  /** The step's time when ranks wait for each other once a step, and after every microbatch, while they encode. */
  readonly timeByStep: number;
  readonly timeByTurn: number;
}

/** Sequences filled in order of arrival, each until the next sample does not fit. */
function takeBatch(pool: readonly SampleMeta[], context: number): { samples: SampleMeta[]; packed: Int32Array } {
  const assignment: number[] = [];
  let [bin, tokens] = [0, 0];
  for (const sample of pool) {
    if (tokens + sample.tokens > context) [bin, tokens] = [bin + 1, 0];
    if (bin === bins) return { samples: pool.slice(0, assignment.length), packed: Int32Array.from(assignment) };
    tokens += sample.tokens;
    assignment.push(bin);
  }
  throw new Error(`The pool of ${pool.length} samples does not fill ${bins} sequences of ${context} tokens.`);
}

/** Images go round the ranks of the dp group that has their sequence, each in the turn of its microbatch. */
function encodeAtHome(backbone: Int32Array): Int32Array {
  const next = new Int32Array(dp);
  return backbone.map((bin) => {
    const group = Math.floor(bin / microbatches);
    const local = (next[group] as number) % groupRanks;
    next[group] = (next[group] as number) + 1;
    return (group * groupRanks + local) * microbatches + (bin % microbatches);
  });
}

function loadsOf(assignment: Int32Array, compute: Float64Array, count: number): Float64Array {
  const loads = new Float64Array(count);
  assignment.forEach((bin, i) => {
    loads[bin] = (loads[bin] as number) + (compute[i] as number);
  });
  return loads;
}

/** Longest time of encoding: every rank on its own, and turn by turn with `group` ranks waiting for each other. */
function encodingTimes(loads: Float64Array, group: number): { byStep: number; byTurn: number } {
  let [byStep, byTurn] = [0, 0];
  for (let first = 0; first < world; first += group) {
    let turns = 0;
    for (let turn = 0; turn < microbatches; turn++) {
      let longest = 0;
      for (let rank = first; rank < first + group; rank++)
        longest = Math.max(longest, loads[rank * microbatches + turn] as number);
      turns += longest;
    }
    byTurn = Math.max(byTurn, turns);
  }
  for (let rank = 0; rank < world; rank++) {
    const own = loads.subarray(rank * microbatches, (rank + 1) * microbatches);
    byStep = Math.max(
      byStep,
      own.reduce((a, b) => a + b, 0),
    );
  }
  return { byStep, byTurn };
}

interface Costs {
  readonly backbone: CostFunction;
  readonly encoder: CostFunction | undefined;
}

function judge(samples: readonly SampleMeta[], division: Division, costs: Costs): Figures {
  const { backbone, encoder, isWorldwide } = division;
  const columns = costColumns(samples, costs.backbone);
  const loads = loadsOf(backbone, columns.compute, bins).map((load) => load / tp);
  let pipeline = 0;
  for (let d = 0; d < dp; d++)
    pipeline = Math.max(pipeline, pipelineTime(loads.subarray(d * microbatches, (d + 1) * microbatches), pp));
  const encoding = costs.encoder ? costColumns(samples, costs.encoder) : undefined;
  const times = encoding
    ? encodingTimes(loadsOf(encoder, encoding.compute, world * microbatches), isWorldwide ? world : groupRanks)
    : { byStep: 0, byTurn: 0 };
  return {
    ranks: imbalance(backbone, columns, bins, microbatches),
    microbatches: imbalance(backbone, columns, bins),
    encoderRanks: encoding ? imbalance(encoder, encoding, world * microbatches, microbatches) : 1,
    timeByStep: pipeline + times.byStep,
    timeByTurn: pipeline + times.byTurn,
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

/** The divisions of one batch, by name. */
function divide(
  samples: readonly SampleMeta[],
  packed: Int32Array,
  context: number,
  costs: Costs,
): Map<string, Division> {
  const columns = costColumns(samples, costs.backbone);
  const capacity = { tokens: context };
  const even = balanceBins({ columns, buckets: dp, binsPerBucket: microbatches, capacity, start: packed });
  const home = encodeAtHome(even);
  const divisions = new Map<string, Division>([
    ["vanilla", { backbone: packed, encoder: encodeAtHome(packed), isWorldwide: false }],
    ["backbone", { backbone: even, encoder: home, isWorldwide: false }],
  ]);
  if (!costs.encoder) return divisions;
  const problem = {
    columns: costColumns(samples, costs.encoder),
    buckets: world,
    binsPerBucket: microbatches,
    capacity: {},
    start: home,
  };
  divisions.set("hybrid", { backbone: even, encoder: balanceBins(problem), isWorldwide: true });
  const kept = balanceBins(problem, { level: "within-microbatch" });
  return divisions.set("hybrid kept", { backbone: even, encoder: kept, isWorldwide: true });
}

/** Means over batches of each way. */
function runCase({ data, merge, context, model, encoder }: Case, batches: number): Map<string, Figures> {
  const costs = { backbone: backboneCost(model), encoder: encoder ? encoderCost(encoder) : undefined };
  const means = new Map<string, Figures>();
  const kind = { skew: skews[data], images: encoder !== undefined, tokensMax: context, patchesPerToken: merge };
  for (let b = 0; b < batches; b++) {
    const pool = skewedSamples(encoder ? 6_000 : 90_000, kind, `${data} ${context} ${b}`);
    const { samples, packed } = takeBatch(pool, context);
    for (const [way, division] of divide(samples, packed, context, costs)) {
      const figures = Object.entries(judge(samples, division, costs)) as [keyof Figures, number][];
      const old = means.get(way);
      means.set(
        way,
        Object.fromEntries(
          figures.map(([name, value]) => [name, (old?.[name] ?? 0) + value / batches]),
        ) as unknown as Figures,
      );
    }
  }
  return means;
}

/** Speed-ups of the hybrid way, by context and by when ranks wait, for the lines at the end. */
class Speedups {
  readonly #lists = new Map<string, number[]>();

  add(context: number, waits: string, speedup: number): void {
    const key = `context ${context}, encoding ranks wait ${waits}`;
    this.#lists.set(key, [...(this.#lists.get(key) ?? []), speedup]);
  }

  *lines(): Generator<string> {
    for (const [key, list] of this.#lists) {
      const mean = list.reduce((a, b) => a + b, 0) / list.length;
      yield `${key}: hybrid ${mean.toFixed(2)} times vanilla on average, ${Math.min(...list).toFixed(2)} to ${Math.max(...list).toFixed(2)}`;
    }
  }
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["batches"]);
  const report = new Report("balance", options.json);
  const batches = number(options.batches, 20);
  const speedups = new Speedups();
  for (const context of [4096, 8192, 16_384]) {
    for (const data of ["coyo", "navit"] as const) {
      for (const [encoder, merge] of encoders) {
        for (const [backbone, model] of Object.entries(backbones)) {
          const means = runCase({ data, merge, context, model, encoder }, batches);
          const vanilla = means.get("vanilla") as Figures;
          for (const [way, { timeByStep, timeByTurn, ...balance }] of means) {
            const byStep = vanilla.timeByStep / timeByStep;
            const byTurn = vanilla.timeByTurn / timeByTurn;
            const name = {
              context,
              data,
              encoder: encoder ?? "text",
              merge: encoder ? merge : undefined,
              backbone,
              way,
            };
            report.row({ ...name, ...balance, speedup: byStep, speedupByTurn: byTurn });
            if (way !== "hybrid") continue;
            speedups.add(context, "once a step", byStep);
            speedups.add(context, "after every microbatch", byTurn);
          }
        }
      }
    }
  }
  report.end();
  for (const line of speedups.lines()) report.note(line);
}
