/**
 * Sources in clusters of about the same cost: what is decided once for a cluster is decided for all its sources, so few clusters make few changes and
 * many fit better. Costs are compared by ratio: a source of 1 ms differs from one of 2 ms as one of 10 does from one of 20. Pure.
 */

/** Clusters where no option says: the paper's optimum for its 306 sources. */
export const clustersDefault = 4;

/** Sources of about the same cost. */
export interface CostCluster {
  /** Indices of its sources, the dearest first. */
  readonly members: readonly number[];
  /** Mean, least and most cost of its members, in ms a sample. */
  readonly mean: number;
  readonly least: number;
  readonly most: number;
}

/** Cheaper than this is as cheap as this: a ratio to nothing says nothing. */
const costFloorMs = 0.01;

/**
 * Divides costs into at most `count` clusters of neighbours, the dearest first, such that the squares of distances (of logarithms) to each cluster's
 * mean are least in sum. Exact, by dynamic programming over the sorted costs.
 */
export function clusterCosts(costs: readonly number[], count: number = clustersDefault): CostCluster[] {
  const order = costs.map((_, i) => i).sort((a, b) => (costs[b] as number) - (costs[a] as number) || a - b);
  const logs = order.map((i) => Math.log(Math.max(costFloorMs, costs[i] as number)));
  const n = order.length;
  const groups = Math.min(count, new Set(logs).size);
  if (n === 0) return [];
  const cuts = bestCuts(logs, groups);
  return cuts.map((from, g) => {
    const members = order.slice(from, cuts[g + 1] ?? n);
    const own = members.map((i) => costs[i] as number);
    return {
      members,
      mean: own.reduce((a, b) => a + b, 0) / own.length,
      least: Math.min(...own),
      most: Math.max(...own),
    };
  });
}

/** First index of each of `groups` runs of a sorted list. */
function bestCuts(sorted: readonly number[], groups: number): number[] {
  const n = sorted.length;
  const sums = new Float64Array(n + 1);
  const squares = new Float64Array(n + 1);
  sorted.forEach((x, i) => {
    sums[i + 1] = (sums[i] as number) + x;
    squares[i + 1] = (squares[i] as number) + x * x;
  });
  const spread = (from: number, to: number): number => {
    const sum = (sums[to] as number) - (sums[from] as number);
    return Math.max(0, (squares[to] as number) - (squares[from] as number) - (sum * sum) / (to - from));
  };
  let best = Float64Array.from({ length: n + 1 }, (_, to) => (to === 0 ? 0 : spread(0, to)));
  const began: Int32Array[] = [new Int32Array(n + 1)];
  for (let g = 1; g < groups; g++) {
    const next = new Float64Array(n + 1).fill(Number.POSITIVE_INFINITY);
    const from = new Int32Array(n + 1);
    for (let to = g + 1; to <= n; to++) {
      for (let cut = g; cut < to; cut++) {
        const value = (best[cut] as number) + spread(cut, to);
        if (value >= (next[to] as number)) continue;
        next[to] = value;
        from[to] = cut;
      }
    }
    began.push(from);
    best = next;
  }
  const cuts: number[] = [];
  for (let g = groups - 1, to = n; g >= 0; g--) {
    const from = began[g]?.[to] as number;
    cuts.unshift(from);
    to = from;
  }
  return cuts;
}
