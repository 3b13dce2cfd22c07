/**
 * Dividing samples among bins so that the bins cost the same and none holds more than it can. Pure.
 *
 * A bucket is what one consumer gets (a dp rank, say), a bin one microbatch of a bucket. Every method is given a start, an assignment that
 * keeps the capacities; when a method cannot keep them, the start is improved by moves and swaps instead, so a plan that fits is never
 * refused and never broken.
 */
import { BatchWeaveError } from "../../index.js";
import { descending } from "../mix/order.js";
import { type BinCapacity, BinLoads, doesNotFit, loadsOf } from "./bin-loads.js";
import type { CostColumns } from "./cost.js";
import { karmarkarKarp } from "./karmarkar-karp.js";
import { refine, repair } from "./refine.js";

/** What is balanced: the samples' costs, and how many bins there are. Bin `b * binsPerBucket + m` is microbatch m of bucket b. */
export interface BalanceProblem {
  readonly columns: CostColumns;
  readonly buckets: number;
  readonly binsPerBucket: number;
  /** Of each bin. */
  readonly capacity: BinCapacity;
  /** The assignment to begin with; it keeps the capacities. */
  readonly start: Int32Array;
}

/** `greedy`: largest first into the lightest bin. `karmarkar-karp`: largest differencing. Or a function that returns the bin of every sample. */
export type BalanceMethod = "greedy" | "karmarkar-karp" | ((problem: BalanceProblem) => ArrayLike<number>);

/**
 * What may move. `all`: any sample to any bin. `across-ranks`: between buckets, keeping the microbatch count only. `across-microbatches`: a
 * sample stays in its bucket. `within-microbatch`: a sample stays in its microbatch, and changes ranks only, so that each microbatch has
 * the same members as before. The global batch has the same members in every case.
 */
export type BalanceLevel = "all" | "across-ranks" | "across-microbatches" | "within-microbatch";

/** How {@link balanceBins} works. */
interface BalanceSettings {
  readonly method?: BalanceMethod | undefined;
  readonly level?: BalanceLevel | undefined;
  /** Consumers per bucket (`distribute`'s group size): buckets are balanced first, then the bins inside each. Default 1. */
  readonly groupSize?: number | undefined;
}

/** An assignment in the order of arrival that keeps the capacities: what a loader without a plan does. */
export function arrivalAssignment(columns: CostColumns, bins: number, capacity: BinCapacity): Int32Array {
  const n = columns.tokens.length;
  const assignment = new Int32Array(n);
  const loads = new BinLoads(bins, columns, capacity);
  const share = Math.max(1, Math.ceil(n / bins));
  const limited = capacity.tokens !== undefined || capacity.memory !== undefined;
  let bin = 0;
  for (let i = 0; i < n; i++) {
    // Equal numbers of samples where nothing limits a bin; otherwise fill one after another.
    if (!limited) bin = Math.floor(i / share);
    else while (bin < bins && !loads.fits(i, bin)) bin++;
    if (bin >= bins) return tightAssignment(columns, bins, capacity);
    assignment[i] = bin;
    loads.add(i, bin);
  }
  return assignment;
}

/** An assignment that keeps the capacities, found by best fit on the scarcest resource. Throws LIMIT when there is none to be found. */
export function tightAssignment(columns: CostColumns, bins: number, capacity: BinCapacity): Int32Array {
  const { tokens, memory } = columns;
  const scarcity = Float64Array.from(tokens, (t, i) =>
    Math.max(t / (capacity.tokens ?? Infinity), (memory[i] as number) / (capacity.memory ?? Infinity)),
  );
  const loads = new BinLoads(bins, columns, capacity);
  const assignment = new Int32Array(tokens.length);
  const used = new Float64Array(bins);
  for (const i of descending(scarcity)) {
    let best = -1;
    for (let bin = 0; bin < bins; bin++) {
      if (loads.fits(i, bin) && (best === -1 || (used[bin] as number) > (used[best] as number))) best = bin;
    }
    if (best === -1) throw doesNotFit(tokens.length, bins, columns, capacity);
    assignment[i] = best;
    loads.add(i, best);
    used[best] = (used[best] as number) + (scarcity[i] as number);
  }
  return assignment;
}

/** Balances. The result holds every sample once and keeps the capacity of every bin. */
export function balanceBins(problem: BalanceProblem, settings: BalanceSettings = {}): Int32Array {
  const { method = "greedy", level = "all", groupSize = 1 } = settings;
  const { columns, buckets, binsPerBucket } = problem;
  const bins = buckets * binsPerBucket;
  const result = new Int32Array(columns.compute.length);
  if (typeof method === "function") {
    result.set(asked(method(problem), result.length));
  } else if (level === "all" && groupSize === 1) {
    result.set(
      spread(
        solve(problem, method, bins, problem.capacity, () => problem.start),
        problem,
      ),
    );
  } else if (level === "all" || level === "across-ranks") {
    balanceInTwo(problem, method, level === "all", groupSize, result);
    if (level === "all") result.set(spread(result, problem, { groupSize }));
  } else {
    const partOf =
      level === "across-microbatches"
        ? (bin: number): number => Math.floor(bin / binsPerBucket)
        : (bin: number): number => bin % binsPerBucket;
    const binsOf = (part: number): number[] =>
      Array.from({ length: bins }, (_, b) => b).filter((b) => partOf(b) === part);
    balanceParts(problem, method, (i) => partOf(problem.start[i] as number), binsOf, result);
    // Each microbatch was divided on its own: its heaviest part must not fall to the same rank every time.
    if (level === "within-microbatch") result.set(spread(result, problem, { keepsTurns: true }));
  }
  assertBalanced(problem, result, bins);
  return result;
}

/** What a custom method returned, once it is a list of as many whole numbers as there are samples: typed arrays would make zeros of anything else. */
function asked(answer: ArrayLike<number>, samples: number): ArrayLike<number> {
  const count = typeof answer === "object" && answer !== null ? answer.length : undefined;
  const wrong = count === samples ? Array.prototype.findIndex.call(answer, (bin) => !Number.isInteger(bin)) : -1;
  if (count === samples && wrong === -1) return answer;
  const what =
    count === undefined
      ? `returned ${answer === null ? "null" : typeof answer}`
      : count === samples
        ? `put sample ${wrong} into bin ${String(answer[wrong])}`
        : `returned ${count} bins for ${samples} samples`;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `The balance method ${what}. Return a list with the bin of every sample, in the order of the samples.`,
    { samples, returned: count },
  );
}

/** Buckets of `groupSize` consumers first, then inside each of them. */
function balanceInTwo(
  problem: BalanceProblem,
  method: "greedy" | "karmarkar-karp",
  isInside: boolean,
  groupSize: number,
  result: Int32Array,
): void {
  const { buckets, binsPerBucket, capacity, start } = problem;
  const groups = Math.ceil(buckets / groupSize);
  const width = groupSize * binsPerBucket;
  const bins = buckets * binsPerBucket;
  const groupCapacity = {
    tokens: capacity.tokens === undefined ? undefined : capacity.tokens * width,
    memory: capacity.memory === undefined ? undefined : capacity.memory * width,
  };
  const startGroups = start.map((bin) => Math.floor(bin / width));
  // The last group may be narrower: its start is then the only safe choice for what it holds.
  const even = buckets % groupSize === 0;
  const byGroup = even ? solve(problem, "greedy", groups, groupCapacity, () => startGroups) : startGroups;
  const binsOf = (group: number): number[] =>
    Array.from({ length: Math.min(width, bins - group * width) }, (_, i) => group * width + i);
  try {
    balanceParts(problem, isInside ? method : "arrival", (i) => byGroup[i] as number, binsOf, result);
  } catch (error) {
    if (!(error instanceof BatchWeaveError) || error.code !== "LIMIT") throw error;
    // A group was given more than fits into its bins, though not more than they hold together: keep the start's groups.
    balanceParts(problem, isInside ? method : "arrival", (i) => startGroups[i] as number, binsOf, result);
  }
}

/** Balances parts that do not touch each other: the samples of part p among the bins of part p. */
function balanceParts(
  problem: BalanceProblem,
  method: "greedy" | "karmarkar-karp" | "arrival",
  partOf: (item: number) => number,
  binsOf: (part: number) => number[],
  result: Int32Array,
): void {
  const { columns, capacity, start } = problem;
  const members: number[][] = [];
  for (let i = 0; i < start.length; i++) {
    const part = partOf(i);
    const list = members[part];
    if (list) list.push(i);
    else members[part] = [i];
  }
  members.forEach((items, part) => {
    const own = binsOf(part);
    const local = pick(columns, items);
    const known = (): Int32Array | undefined => {
      const index = new Map(own.map((bin, i) => [bin, i]));
      const begin = Int32Array.from(items, (i) => index.get(start[i] as number) ?? -1);
      return begin.includes(-1) ? undefined : begin;
    };
    const solved =
      method === "arrival"
        ? (known() ?? arrivalAssignment(local, own.length, capacity))
        : solve({ ...problem, columns: local }, method, own.length, capacity, known);
    items.forEach((item, i) => {
      result[item] = own[solved[i] as number] as number;
    });
  });
}

function pick(columns: CostColumns, items: readonly number[]): CostColumns {
  const column = (from: Float64Array): Float64Array => {
    const out = new Float64Array(items.length);
    for (let i = 0; i < items.length; i++) out[i] = from[items[i] as number] as number;
    return out;
  };
  return { compute: column(columns.compute), memory: column(columns.memory), tokens: column(columns.tokens) };
}

function solve(
  { columns }: Pick<BalanceProblem, "columns">,
  method: "greedy" | "karmarkar-karp",
  bins: number,
  capacity: BinCapacity,
  start: () => Int32Array | undefined,
): Int32Array {
  const solved = method === "greedy" ? greedy(columns, bins, capacity) : differencing(columns, bins, capacity);
  if (solved) return solved;
  const assignment = Int32Array.from(start() ?? tightAssignment(columns, bins, capacity));
  refine(assignment, loadsOf(assignment, bins, columns, capacity), columns);
  return assignment;
}

function greedy(columns: CostColumns, bins: number, capacity: BinCapacity): Int32Array | undefined {
  const loads = new BinLoads(bins, columns, capacity);
  const assignment = new Int32Array(columns.compute.length);
  for (const i of descending(columns.compute)) {
    const bin = loads.placeLightest(i);
    if (bin === -1) return undefined;
    assignment[i] = bin;
  }
  return assignment;
}

function differencing(columns: CostColumns, bins: number, capacity: BinCapacity): Int32Array | undefined {
  const assignment = karmarkarKarp(columns.compute, bins);
  const loads = loadsOf(assignment, bins, columns, capacity);
  if (!repair(assignment, loads, columns)) return greedy(columns, bins, capacity);
  return assignment;
}

/**
 * Renumbers bins so that heavy and light microbatches are dealt evenly to the buckets of a group of `groupSize`: their totals come out even as
 * well. With `keepsTurns`, a bin changes its bucket only and stays the same microbatch.
 */
function spread(
  assignment: Int32Array,
  { columns, buckets, binsPerBucket }: BalanceProblem,
  { groupSize = buckets, keepsTurns = false }: { readonly groupSize?: number; readonly keepsTurns?: boolean } = {},
): Int32Array {
  const bins = buckets * binsPerBucket;
  const { compute } = loadsOf(assignment, bins, columns);
  const names = new Int32Array(bins);
  const totals = new Float64Array(buckets);
  const taken = new Int32Array(buckets);
  const isTaken = new Uint8Array(bins);
  for (const bin of descending(compute)) {
    const turn = bin % binsPerBucket;
    const first = Math.floor(bin / binsPerBucket / groupSize) * groupSize;
    const end = Math.min(buckets, first + groupSize);
    let to = -1;
    for (let b = first; b < end; b++) {
      const isRoom = keepsTurns ? isTaken[b * binsPerBucket + turn] === 0 : (taken[b] as number) < binsPerBucket;
      if (isRoom && (to === -1 || (totals[b] as number) < (totals[to] as number))) to = b;
    }
    const name = to * binsPerBucket + (keepsTurns ? turn : (taken[to] as number));
    names[bin] = name;
    isTaken[name] = 1;
    taken[to] = (taken[to] as number) + 1;
    totals[to] = (totals[to] as number) + (compute[bin] as number);
  }
  return assignment.map((bin) => names[bin] as number);
}

/** What a method returned is checked before a batch is built of it: a custom one may be wrong. */
function assertBalanced(problem: BalanceProblem, assignment: Int32Array, bins: number): void {
  for (let i = 0; i < assignment.length; i++) {
    const bin = assignment[i] as number;
    if (bin >= 0 && bin < bins) continue;
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `The balance method put sample ${i} into bin ${bin}; bins go from 0 to ${bins - 1}. Return one bin for every sample.`,
      { sample: i, bin, bins },
    );
  }
  const loads = loadsOf(assignment, bins, problem.columns, problem.capacity);
  for (let bin = 0; bin < bins; bin++) {
    if (!loads.isWithin(bin)) throw doesNotFit(assignment.length, bins, problem.columns, problem.capacity);
  }
}

/** The heaviest over the mean: 1 is perfect. Over bins (`binsPerBucket` 1) or over buckets. */
export function imbalance(assignment: Int32Array, columns: CostColumns, bins: number, binsPerBucket = 1): number {
  const totals = new Float64Array(Math.ceil(bins / binsPerBucket));
  for (let i = 0; i < assignment.length; i++) {
    const bucket = Math.floor((assignment[i] as number) / binsPerBucket);
    totals[bucket] = (totals[bucket] as number) + (columns.compute[i] as number);
  }
  const sum = totals.reduce((a, b) => a + b, 0);
  let most = 0;
  for (const total of totals) most = Math.max(most, total);
  return sum === 0 ? 1 : (most * totals.length) / sum;
}
