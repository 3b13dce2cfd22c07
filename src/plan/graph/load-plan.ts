/** A finished plan: which sample goes into which bin of which consumer, and at what cost. Plain data, and the questions asked of it. Pure. */

import type { SampleMeta } from "../load/sample-meta.js";
import type { BinCapacity } from "./bin-loads.js";
import type { BroadcastDim, PlaceAxis } from "./place-tree.js";

/** One bin: a packed sequence of a microbatch of a bucket. */
export interface PlanBin {
  readonly bucket: number;
  readonly microbatch: number;
  readonly sequence: number;
  /** Indices into the plan's samples, ascending. */
  readonly samples: readonly number[];
  readonly tokens: number;
  readonly compute: number;
  readonly memory: number;
}

/** One consumer: a node of the place tree. */
export interface PlanBucket {
  readonly name: string;
  /** Its ranks, and those of them that read for themselves. */
  readonly ranks: readonly number[];
  readonly fetchers: readonly number[];
  readonly compute: number;
  readonly bins: readonly PlanBin[];
}

/** The heaviest over the mean, 1 is perfect: over consumers and over microbatches. */
interface Imbalance {
  readonly ranks: number;
  readonly microbatches: number;
}

/** What `plan()` returns. */
export interface LoadPlan {
  readonly axis: PlaceAxis;
  readonly groupSize: number;
  readonly microbatches: number;
  readonly sequences: number;
  readonly capacity: BinCapacity;
  readonly broadcast: readonly BroadcastDim[];
  readonly samples: readonly SampleMeta[];
  readonly buckets: readonly PlanBucket[];
  /** As the samples arrived, and as planned. */
  readonly before: Imbalance;
  readonly after: Imbalance;
  /** Cost of each consumer as the samples arrived; as planned, it is in the buckets. */
  readonly arrived: readonly number[];
}

/** What each source's loader has to hand over for a plan: ids in the order in which it read them. */
export function loaderDoPlan(plan: LoadPlan): ReadonlyMap<string, readonly string[]> {
  const orders = new Map<string, string[]>();
  for (const { source, id } of plan.samples) {
    const list = orders.get(source);
    if (list) list.push(id);
    else orders.set(source, [id]);
  }
  return orders;
}

/** What the constructor of one consumer has to assemble: its microbatches, each its packed sequences, each its samples. */
export function constructorDoPlan(plan: LoadPlan, bucket: number): readonly (readonly (readonly SampleMeta[])[])[] {
  const microbatches: SampleMeta[][][] = Array.from({ length: plan.microbatches }, () =>
    Array.from({ length: plan.sequences }, () => []),
  );
  for (const bin of plan.buckets[bucket]?.bins ?? []) {
    const sequence = microbatches[bin.microbatch]?.[bin.sequence];
    for (const i of bin.samples) sequence?.push(plan.samples[i] as SampleMeta);
  }
  return microbatches;
}

/** One source's part of a buffer. */
interface BufferSummary {
  readonly source: string;
  readonly samples: number;
  readonly tokens: number;
  readonly tokensMin: number;
  readonly tokensMax: number;
  readonly bytes: number;
}

/** What is buffered, by source: what a strategy of your own starts from. */
export function summaryBuffer(samples: Iterable<SampleMeta>): BufferSummary[] {
  const bySource = new Map<string, { -readonly [K in keyof BufferSummary]: BufferSummary[K] }>();
  for (const { source, tokens, bytes = 0 } of samples) {
    const one = bySource.get(source) ?? {
      source,
      samples: 0,
      tokens: 0,
      tokensMin: tokens,
      tokensMax: tokens,
      bytes: 0,
    };
    one.samples++;
    one.tokens += tokens;
    one.bytes += bytes;
    one.tokensMin = Math.min(one.tokensMin, tokens);
    one.tokensMax = Math.max(one.tokensMax, tokens);
    bySource.set(source, one);
  }
  return [...bySource.values()];
}
