/**
 * Packing samples into sequences of a fixed number of slots. Pure.
 *
 * `first-fit` and `best-fit` are the decreasing kinds: longest sample first, into the first (or the fullest) sequence that still has room.
 * `naive` is what most loaders do: samples as they come, a new sequence when the next one does not fit. `none`: one sample per sequence.
 */
import { BatchWeaveError } from "../../index.js";
import { descending } from "../mix/order.js";

/** How samples are put into sequences. */
export type PackingMethod = "none" | "naive" | "first-fit" | "best-fit";

/** Sequences, each the indices of its samples in ascending order, and how well they are filled. */
interface Packing {
  readonly sequences: readonly (readonly number[])[];
  /** Real tokens / slots. */
  readonly efficiency: number;
}

/** Packs `lengths` into sequences of `capacity` slots. Every sample goes into exactly one; one that is longer than a sequence is refused. */
export function packSequences(lengths: ArrayLike<number>, capacity: number, method: PackingMethod): Packing {
  let tokens = 0;
  for (let i = 0; i < lengths.length; i++) {
    const length = lengths[i] as number;
    if (!(length >= 0 && length <= capacity)) {
      throw new BatchWeaveError(
        "LIMIT",
        `Sample ${i} has ${length} tokens and a sequence has ${capacity} slots. Truncate it, leave it out, or use longer sequences.`,
        { sample: i, tokens: length, capacity },
      );
    }
    tokens += length;
  }
  const sequences = packers[method](lengths, capacity);
  for (const sequence of sequences) sequence.sort((a, b) => a - b);
  return { sequences, efficiency: sequences.length === 0 ? 1 : tokens / (sequences.length * capacity) };
}

type Packer = (lengths: ArrayLike<number>, capacity: number) => number[][];

const packers: Readonly<Record<PackingMethod, Packer>> = {
  none: (lengths) => Array.from({ length: lengths.length }, (_, i) => [i]),
  naive: (lengths, capacity) => {
    const sequences: number[][] = [];
    let room = -1;
    for (let i = 0; i < lengths.length; i++) {
      const length = lengths[i] as number;
      if (length > room) {
        sequences.push([]);
        room = capacity;
      }
      sequences.at(-1)?.push(i);
      room -= length;
    }
    return sequences;
  },
  "first-fit": (lengths, capacity) => {
    const rooms = new RoomTree(Math.max(1, lengths.length), capacity);
    return fill(lengths, (length) => rooms.takeFirst(length));
  },
  "best-fit": (lengths, capacity) => {
    const rooms = new RoomIndex(capacity);
    return fill(lengths, (length) => rooms.takeTightest(length));
  },
};

function fill(lengths: ArrayLike<number>, take: (length: number) => number): number[][] {
  const sequences: number[][] = [];
  for (const i of descending(Float64Array.from(lengths))) {
    const sequence = take(lengths[i] as number);
    const members = sequences[sequence];
    if (members) members.push(i);
    else sequences[sequence] = [i];
  }
  return sequences;
}

/** Finds the first of n bins with enough room in logarithmic time: a tree of maxima. */
class RoomTree {
  readonly #size: number;
  readonly #most: Float64Array;

  constructor(bins: number, capacity: number) {
    this.#size = 2 ** Math.ceil(Math.log2(bins));
    this.#most = new Float64Array(2 * this.#size).fill(capacity);
  }

  takeFirst(length: number): number {
    let node = 1;
    while (node < this.#size) node = (this.#most[2 * node] as number) >= length ? 2 * node : 2 * node + 1;
    const bin = node - this.#size;
    this.#most[node] = (this.#most[node] as number) - length;
    for (node >>= 1; node >= 1; node >>= 1) {
      this.#most[node] = Math.max(this.#most[2 * node] as number, this.#most[2 * node + 1] as number);
    }
    return bin;
  }
}

/** Finds the fullest bin with enough room: bins by their room, and a bitmap of the rooms that occur. */
class RoomIndex {
  readonly #capacity: number;
  readonly #bins: number[][] = [];
  readonly #words: Uint32Array;
  readonly #binsMax: number;
  #count = 0;

  /** `binsMax`: how many bins may be opened. Default: no limit. */
  constructor(capacity: number, binsMax: number = Number.POSITIVE_INFINITY) {
    this.#capacity = capacity;
    this.#binsMax = binsMax;
    this.#words = new Uint32Array((capacity >>> 5) + 1);
  }

  /** Bins opened so far. */
  get count(): number {
    return this.#count;
  }

  /** Takes room in the fullest bin that has it, opening one if none has; -1 when no more may be opened. */
  takeTightest(length: number): number {
    const room = this.#nextRoom(length);
    if (room === -1) {
      if (this.#count >= this.#binsMax) return -1;
      this.#add(this.#capacity - length, this.#count);
      return this.#count++;
    }
    const list = this.#bins[room] as number[];
    const bin = list.pop() as number;
    if (list.length === 0) this.#words[room >>> 5] = (this.#words[room >>> 5] as number) & ~(1 << (room & 31));
    this.#add(room - length, bin);
    return bin;
  }

  #add(room: number, bin: number): void {
    let list = this.#bins[room];
    if (!list) {
      list = [];
      this.#bins[room] = list;
    }
    list.push(bin);
    this.#words[room >>> 5] = (this.#words[room >>> 5] as number) | (1 << (room & 31));
  }

  #nextRoom(from: number): number {
    let word = from >>> 5;
    let bits = ((this.#words[word] as number) >>> (from & 31)) << (from & 31);
    while (bits === 0) {
      if (++word >= this.#words.length) return -1;
      bits = this.#words[word] as number;
    }
    return (word << 5) + (31 - Math.clz32(bits & -bits));
  }
}
