/**
 * Karmarkar-Karp, the largest differencing method, for any number of bins. Pure.
 *
 * Every item starts as a partial solution of its own: one full bin, the others empty. The two solutions whose bins differ most are merged,
 * the fullest bins of one with the emptiest of the other, until one is left. While a solution has empty bins its difference is its largest
 * item, so the top one keeps absorbing the next largest item. Merging changes only as many bins of the larger solution as the smaller one
 * has, so that a single item costs little even when thousands of them meet one giant.
 */
import { descending } from "../mix/order.js";

/** A partial solution: sums of its non-empty bins, largest first, and the items of each as a linked list. */
interface Partial {
  readonly id: number;
  readonly sums: Float64Array;
  readonly heads: Int32Array;
  readonly tails: Int32Array;
  size: number;
  spread: number;
}

/** The bin of every item. Bins come out numbered from the heaviest on. */
export function karmarkarKarp(costs: Float64Array, bins: number): Int32Array {
  const n = costs.length;
  const assignment = new Int32Array(n);
  if (n === 0 || bins === 1) return assignment;
  const next = new Int32Array(n).fill(-1);
  // Single items wait in order; the heap holds what has been merged.
  const order = descending(costs);
  let waiting = 0;
  const heap = new SpreadHeap();
  const merger = new Merger(bins, next);
  // Among equals, what was merged goes first: it is what absorbs.
  const isItemNext = (): boolean =>
    waiting < n && (heap.size === 0 || (costs[order[waiting] as number] as number) > heap.widest);
  let solution: Partial;
  for (;;) {
    if (isItemNext()) {
      const item = order[waiting++] as number;
      solution = merger.single(item, costs[item] as number);
    } else solution = heap.pop();
    if (isItemNext()) {
      const item = order[waiting++] as number;
      merger.absorb(solution, item, costs[item] as number);
    } else if (heap.size > 0) solution = merger.merge(solution, heap.pop());
    else break;
    heap.push(solution);
  }
  for (let bin = 0; bin < solution.size; bin++) {
    for (let item = solution.heads[bin] as number; item !== -1; item = next[item] as number) assignment[item] = bin;
  }
  return assignment;
}

/** Makes and merges partial solutions of one problem. */
class Merger {
  readonly #bins: number;
  readonly #next: Int32Array;
  readonly #scratch: Partial;
  readonly #order = new Uint32Array(48);
  #made = 0;

  constructor(bins: number, next: Int32Array) {
    this.#bins = bins;
    this.#next = next;
    this.#scratch = this.#empty();
  }

  single(item: number, cost: number): Partial {
    const made = this.#empty();
    made.sums[0] = cost;
    made.heads[0] = item;
    made.tails[0] = item;
    made.size = 1;
    made.spread = cost;
    return made;
  }

  /** A single item goes into an empty bin, or into the emptiest. */
  absorb(into: Partial, item: number, cost: number): void {
    const { sums, heads, tails } = into;
    let [sum, head] = [cost, item];
    let at = into.size;
    if (at < this.#bins) into.size++;
    else {
      at--;
      sum += sums[at] as number;
      head = heads[at] as number;
      this.#next[tails[at] as number] = item;
    }
    for (; at > 0 && (sums[at - 1] as number) < sum; at--) {
      sums[at] = sums[at - 1] as number;
      heads[at] = heads[at - 1] as number;
      tails[at] = tails[at - 1] as number;
    }
    sums[at] = sum;
    heads[at] = head;
    tails[at] = item;
    this.#measure(into);
  }

  /** The fullest bins of one meet the emptiest of the other. The larger of the two is changed and returned. */
  merge(x: Partial, y: Partial): Partial {
    const [a, b] = x.size >= y.size ? [x, y] : [y, x];
    const from = Math.min(a.size, this.#bins - b.size);
    for (let j = 0; j < b.size; j++) {
      const at = this.#bins - 1 - j;
      if (at < a.size) {
        a.sums[at] = (a.sums[at] as number) + (b.sums[j] as number);
        this.#next[a.tails[at] as number] = b.heads[j] as number;
      } else {
        a.sums[at] = b.sums[j] as number;
        a.heads[at] = b.heads[j] as number;
      }
      a.tails[at] = b.tails[j] as number;
    }
    // Bins [from, bins) changed, less the gap between them where both were empty.
    const gap = this.#bins - b.size - from;
    const changed = this.#bins - from - gap;
    this.#mergeTail(a, from, gap, changed);
    a.size = from + changed;
    this.#measure(a);
    return a;
  }

  /** `[0, from)` is sorted, `[from + gap, …)` is not: sorts the latter and merges the two. */
  #mergeTail(a: Partial, from: number, gap: number, changed: number): void {
    const tail = from + gap;
    const { sums, heads, tails } = a;
    const order = this.#sortTail(sums, tail, changed);
    const out = this.#scratch;
    let i = 0;
    let j = 0;
    for (let at = 0; at < from + changed; at++) {
      const late = tail + (order[j] as number);
      const isEarly = j >= changed || (i < from && (sums[i] as number) >= (sums[late] as number));
      const k = isEarly ? i++ : late;
      if (!isEarly) j++;
      out.sums[at] = sums[k] as number;
      out.heads[at] = heads[k] as number;
      out.tails[at] = tails[k] as number;
    }
    sums.set(out.sums);
    heads.set(out.heads);
    tails.set(out.tails);
  }

  /** Offsets of the changed bins from the largest on; a few are sorted in place, without the cost of setting up. */
  #sortTail(sums: Float64Array, tail: number, changed: number): Uint32Array {
    if (changed > 48) return descending(sums.subarray(tail, tail + changed));
    const order = this.#order;
    for (let n = 0; n < changed; n++) {
      const sum = sums[tail + n] as number;
      let at = n;
      for (; at > 0 && (sums[tail + (order[at - 1] as number)] as number) < sum; at--)
        order[at] = order[at - 1] as number;
      order[at] = n;
    }
    return order;
  }

  #measure(a: Partial): void {
    a.spread = (a.sums[0] as number) - (a.size < this.#bins ? 0 : (a.sums[this.#bins - 1] as number));
  }

  #empty(): Partial {
    const bins = this.#bins;
    return {
      id: this.#made++,
      sums: new Float64Array(bins),
      heads: new Int32Array(bins),
      tails: new Int32Array(bins),
      size: 0,
      spread: 0,
    };
  }
}

/** Solutions by the difference of their fullest and emptiest bins, the widest on top; among equals the older. */
class SpreadHeap {
  readonly #heap: Partial[] = [];

  get size(): number {
    return this.#heap.length;
  }

  get widest(): number {
    return this.#heap[0]?.spread ?? 0;
  }

  push(solution: Partial): void {
    const heap = this.#heap;
    let at = heap.push(solution) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!isWider(solution, heap[parent]!)) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = solution;
  }

  pop(): Partial {
    const heap = this.#heap;
    const top = heap[0]!;
    const last = heap.pop()!;
    if (heap.length === 0) return top;
    let at = 0;
    for (let child = 1; child < heap.length; child = 2 * at + 1) {
      if (child + 1 < heap.length && isWider(heap[child + 1]!, heap[child]!)) child++;
      if (!isWider(heap[child]!, last)) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
    return top;
  }
}

function isWider(a: Partial, b: Partial): boolean {
  return a.spread > b.spread || (a.spread === b.spread && a.id < b.id);
}
