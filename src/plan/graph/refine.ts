/** Local changes to an assignment: bringing bins back within their capacity, and moving work from heavy bins to light ones. Pure. */

import { descending } from "../mix/order.js";
import type { BinLoads } from "./bin-loads.js";
import type { CostColumns } from "./cost.js";

function membersOf(assignment: Int32Array, bins: number): number[][] {
  const members: number[][] = Array.from({ length: bins }, () => []);
  for (let i = 0; i < assignment.length; i++) members[assignment[i] as number]?.push(i);
  return members;
}

/**
 * Moves samples out of bins that hold too much, those with the least compute for their tokens first, each into the lightest bin with room.
 * False when some bin stays too full; the assignment is then of no use.
 */
export function repair(assignment: Int32Array, loads: BinLoads, columns: CostColumns): boolean {
  const over = Array.from({ length: loads.count }, (_, bin) => bin).filter((bin) => !loads.isWithin(bin));
  if (over.length === 0) return true;
  const members = membersOf(assignment, loads.count);
  const moved: number[] = [];
  for (const bin of over) {
    const list = members[bin] as number[];
    const value = Float64Array.from(
      list,
      (i) => (columns.compute[i] as number) / Math.max(1, columns.tokens[i] as number),
    );
    const order = descending(value);
    for (let k = order.length - 1; k >= 0 && !loads.isWithin(bin); k--) {
      const item = list[order[k] as number] as number;
      loads.add(item, bin, -1);
      moved.push(item);
    }
  }
  // The longest first: the short ones find room anywhere.
  moved.sort((a, b) => (columns.tokens[b] as number) - (columns.tokens[a] as number) || a - b);
  for (const item of moved) {
    let to = -1;
    for (let bin = 0; bin < loads.count; bin++) {
      if (!loads.fits(item, bin)) continue;
      if (to === -1 || (loads.compute[bin] as number) < (loads.compute[to] as number)) to = bin;
    }
    if (to === -1) return false;
    loads.add(item, to);
    assignment[item] = to;
  }
  return true;
}

/** Pairs looked at in one exchange at most, so that a step has a limit. */
const pairsMax = 65_536;

/**
 * Takes the heaviest bin, and tries the lighter ones from the lightest on for a move or a swap that makes the heavier of the two lighter
 * and keeps both within their capacity. Stops when the heaviest cannot be helped.
 */
export function refine(assignment: Int32Array, loads: BinLoads, columns: CostColumns): void {
  const members = membersOf(assignment, loads.count);
  const stepsMax = 8 * loads.count + assignment.length;
  for (let step = 0; step < stepsMax; step++) {
    const order = descending(loads.compute);
    const heavy = order[0] as number;
    let isHelped = false;
    for (let k = order.length - 1; k > 0 && !isHelped; k--) {
      isHelped = exchange(heavy, order[k] as number, assignment, loads, columns, members);
    }
    if (!isHelped) return;
  }
}

function exchange(
  heavy: number,
  light: number,
  assignment: Int32Array,
  loads: BinLoads,
  columns: CostColumns,
  members: number[][],
): boolean {
  const gap = (loads.compute[heavy] as number) - (loads.compute[light] as number);
  const [from, to] = [members[heavy] as number[], members[light] as number[]];
  let best: { give: number; take: number; off: number } | undefined;
  let pairs = 0;
  for (const give of from) {
    const cost = columns.compute[give] as number;
    for (let k = -1; k < to.length && pairs < pairsMax; k++, pairs++) {
      const take = k === -1 ? -1 : (to[k] as number);
      const change = cost - (take === -1 ? 0 : (columns.compute[take] as number));
      // The heavier of the two becomes lighter only for a change strictly between 0 and the gap; half the gap is best.
      const off = Math.abs(change - gap / 2);
      if (change <= gap * 1e-9 || change >= gap * (1 - 1e-9) || (best && off >= best.off)) continue;
      if (isSwappable(give, take, heavy, light, loads, columns)) best = { give, take, off };
    }
  }
  if (!best) return false;
  moveItem(best.give, heavy, light, assignment, loads, members);
  if (best.take !== -1) moveItem(best.take, light, heavy, assignment, loads, members);
  return true;
}

function isSwappable(
  give: number,
  take: number,
  heavy: number,
  light: number,
  loads: BinLoads,
  columns: CostColumns,
): boolean {
  const within = (bin: number, sign: 1 | -1): boolean => {
    const tokens = (columns.tokens[give] as number) - (take === -1 ? 0 : (columns.tokens[take] as number));
    const memory = (columns.memory[give] as number) - (take === -1 ? 0 : (columns.memory[take] as number));
    return (
      (loads.tokens[bin] as number) + sign * tokens <= loads.tokensMax &&
      (loads.memory[bin] as number) + sign * memory <= loads.memoryMax
    );
  };
  return within(light, 1) && within(heavy, -1);
}

function moveItem(
  item: number,
  from: number,
  to: number,
  assignment: Int32Array,
  loads: BinLoads,
  members: number[][],
): void {
  loads.add(item, from, -1);
  loads.add(item, to);
  assignment[item] = to;
  const list = members[from] as number[];
  list.splice(list.indexOf(item), 1);
  members[to]?.push(item);
}
