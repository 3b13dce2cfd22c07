/** Bins that are being filled: loads, capacities, and the two questions balancing asks of them. Pure. */
import { BatchWeaveError } from "../../index.js";
import type { CostColumns } from "./cost.js";

/** What one bin can hold. Absent: no limit. */
export interface BinCapacity {
  readonly tokens?: number | undefined;
  readonly memory?: number | undefined;
}

/** Loads of `count` bins under one capacity. */
export class BinLoads {
  readonly compute: Float64Array;
  readonly tokens: Float64Array;
  readonly memory: Float64Array;
  readonly tokensMax: number;
  readonly memoryMax: number;
  readonly #columns: CostColumns;
  // A heap of bins by compute, the lightest on top, so that the usual question costs a few steps.
  readonly #heap: Uint32Array;

  constructor(count: number, columns: CostColumns, capacity: BinCapacity = {}) {
    this.#columns = columns;
    this.compute = new Float64Array(count);
    this.tokens = new Float64Array(count);
    this.memory = new Float64Array(count);
    this.tokensMax = capacity.tokens ?? Number.POSITIVE_INFINITY;
    // Sums of floating-point costs: a bin that is exactly full must not fail by rounding.
    this.memoryMax = (capacity.memory ?? Number.POSITIVE_INFINITY) * (1 + 1e-9);
    this.#heap = Uint32Array.from({ length: count }, (_, i) => i);
  }

  get count(): number {
    return this.compute.length;
  }

  /** Whether `item` still fits into `bin`. */
  fits(item: number, bin: number): boolean {
    return (
      (this.tokens[bin] as number) + (this.#columns.tokens[item] as number) <= this.tokensMax &&
      (this.memory[bin] as number) + (this.#columns.memory[item] as number) <= this.memoryMax
    );
  }

  /** Whether `bin` holds no more than it can. */
  isWithin(bin: number): boolean {
    return (this.tokens[bin] as number) <= this.tokensMax && (this.memory[bin] as number) <= this.memoryMax;
  }

  /** Adds `item` (or, with sign -1, removes it). The heap is left alone: see {@link placeLightest}. */
  add(item: number, bin: number, sign: 1 | -1 = 1): void {
    this.compute[bin] = (this.compute[bin] as number) + sign * (this.#columns.compute[item] as number);
    this.tokens[bin] = (this.tokens[bin] as number) + sign * (this.#columns.tokens[item] as number);
    this.memory[bin] = (this.memory[bin] as number) + sign * (this.#columns.memory[item] as number);
  }

  /** Puts `item` into the bin with the least compute that has room; -1 when none has. Use from empty bins on, and nothing else before. */
  placeLightest(item: number): number {
    const top = this.#heap[0] as number;
    if (this.fits(item, top)) {
      this.add(item, top);
      this.#sift(0);
      return top;
    }
    let best = -1;
    let at = -1;
    for (let i = 1; i < this.#heap.length; i++) {
      const bin = this.#heap[i] as number;
      if (!this.fits(item, bin) || (best !== -1 && !this.#isLighter(bin, best))) continue;
      best = bin;
      at = i;
    }
    if (best === -1) return -1;
    this.add(item, best);
    this.#sift(at);
    return best;
  }

  #isLighter(a: number, b: number): boolean {
    const difference = (this.compute[a] as number) - (this.compute[b] as number);
    return difference < 0 || (difference === 0 && a < b);
  }

  #sift(from: number): void {
    const heap = this.#heap;
    const compute = this.compute;
    const count = heap.length;
    const bin = heap[from] as number;
    const load = compute[bin] as number;
    let at = from;
    for (let child = 2 * at + 1; child < count; child = 2 * at + 1) {
      let lighter = heap[child] as number;
      let lightest = compute[lighter] as number;
      if (child + 1 < count) {
        const other = heap[child + 1] as number;
        const otherLoad = compute[other] as number;
        if (otherLoad < lightest || (otherLoad === lightest && other < lighter)) {
          child++;
          lighter = other;
          lightest = otherLoad;
        }
      }
      if (lightest > load || (lightest === load && lighter > bin)) break;
      heap[at] = lighter;
      at = child;
    }
    heap[at] = bin;
  }
}

/** Loads of a finished assignment. */
export function loadsOf(
  assignment: Int32Array,
  bins: number,
  columns: CostColumns,
  capacity?: BinCapacity | undefined,
): BinLoads {
  const loads = new BinLoads(bins, columns, capacity);
  for (let i = 0; i < assignment.length; i++) loads.add(i, assignment[i] as number);
  return loads;
}

/** LIMIT: no way was found to keep every bin within its capacity. */
export function doesNotFit(items: number, bins: number, columns: CostColumns, capacity: BinCapacity): BatchWeaveError {
  const tokens = columns.tokens.reduce((a, b) => a + b, 0);
  const most = Math.max(0, ...Array.from({ length: items }, (_, i) => columns.tokens[i] as number));
  return new BatchWeaveError(
    "LIMIT",
    `${items} samples of ${tokens} tokens (the longest ${most}) do not fit into ${bins} bins of ${describeCapacity(capacity)}. Take fewer samples, or allow more.`,
    { samples: items, tokens, bins, capacity },
  );
}

function describeCapacity({ tokens, memory }: BinCapacity): string {
  const parts = [tokens === undefined ? [] : `${tokens} tokens`, memory === undefined ? [] : `${memory} bytes`].flat();
  return parts.length === 0 ? "any size" : parts.join(" and ");
}
