/** Filling the bins of a batch sample by sample, while they are drawn: what fits is in, what does not waits for the next batch. Pure. */

import type { PackingMethod } from "../construct/packing.js";
import type { SampleMeta } from "../load/sample-meta.js";
import { tightAssignment } from "./balance.js";
import type { BinCapacity } from "./bin-loads.js";
import type { CostFunction } from "./cost.js";

/** Repacking everything costs a pass over all samples and bins; so many times a batch at most. */
const repacksMax = 16;

/** The bins of one batch. */
export class FillBins {
  readonly #bins: number;
  readonly #capacity: BinCapacity;
  readonly #method: PackingMethod;
  readonly #cost: CostFunction;
  readonly #tokens: Float64Array;
  readonly #memory: Float64Array;
  readonly #counts: Int32Array;
  readonly #metas: SampleMeta[] = [];
  readonly #memories: number[] = [];
  #assignment: number[] = [];
  #last = 0;
  #repacks = 0;

  constructor(bins: number, capacity: BinCapacity, method: PackingMethod, cost: CostFunction) {
    this.#bins = bins;
    this.#capacity = capacity;
    this.#method = method;
    this.#cost = cost;
    this.#tokens = new Float64Array(bins);
    this.#memory = new Float64Array(bins);
    this.#counts = new Int32Array(bins);
  }

  /** Tokens of all samples placed. */
  get tokens(): number {
    return this.#tokens.reduce((a, b) => a + b, 0);
  }

  /** The bin of every sample placed, in order. */
  get assignment(): Int32Array {
    return Int32Array.from(this.#assignment);
  }

  /** Places a sample; false when it does not fit, not even after everything was packed anew. */
  place(meta: SampleMeta): boolean {
    const cost = this.#cost(meta);
    const memory = typeof cost === "number" ? meta.tokens : cost.memory;
    const bin = this.#find(meta.tokens, memory);
    if (bin === -1 && !this.#repack(meta, memory)) return false;
    this.#metas.push(meta);
    this.#memories.push(memory);
    if (bin === -1) return true;
    this.#assignment.push(bin);
    this.#add(bin, meta.tokens, memory);
    return true;
  }

  #find(tokens: number, memory: number): number {
    const { tokens: tokensMax = Infinity, memory: memoryMax = Infinity } = this.#capacity;
    let best = -1;
    for (let bin = this.#method === "naive" ? this.#last : 0; bin < this.#bins; bin++) {
      const [used, held] = [this.#tokens[bin] as number, this.#memory[bin] as number];
      if (used + tokens > tokensMax || held + memory > memoryMax) continue;
      if (this.#method === "none" && (this.#counts[bin] as number) > 0) continue;
      if (this.#method !== "best-fit") return bin;
      if (best === -1 || used > (this.#tokens[best] as number)) best = bin;
    }
    return best;
  }

  #add(bin: number, tokens: number, memory: number): void {
    this.#tokens[bin] = (this.#tokens[bin] as number) + tokens;
    this.#memory[bin] = (this.#memory[bin] as number) + memory;
    this.#counts[bin] = (this.#counts[bin] as number) + 1;
    this.#last = bin;
  }

  /** Longest first wastes less than first come: often there is room after all. */
  #repack(meta: SampleMeta, memory: number): boolean {
    if (this.#method === "none" || this.#method === "naive" || this.#repacks >= repacksMax) return false;
    const { tokens: tokensMax = Infinity, memory: memoryMax = Infinity } = this.#capacity;
    const total = (values: Float64Array): number => values.reduce((a, b) => a + b, 0);
    if (total(this.#tokens) + meta.tokens > this.#bins * tokensMax) return false;
    if (total(this.#memory) + memory > this.#bins * memoryMax) return false;
    this.#repacks++;
    const metas = [...this.#metas, meta];
    const memories = [...this.#memories, memory];
    const columns = {
      tokens: Float64Array.from(metas, (m) => m.tokens),
      memory: Float64Array.from(memories),
      compute: new Float64Array(metas.length),
    };
    let assignment: Int32Array;
    try {
      assignment = tightAssignment(columns, this.#bins, this.#capacity);
    } catch {
      // It does not fit; that is the answer.
      return false;
    }
    this.#tokens.fill(0);
    this.#memory.fill(0);
    this.#counts.fill(0);
    this.#assignment = [...assignment];
    assignment.forEach((bin, i) => {
      this.#add(bin, columns.tokens[i] as number, memories[i] as number);
    });
    return true;
  }
}
