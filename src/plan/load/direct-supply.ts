/** Supplies that read the sources themselves: the loaders of one process, with everything they share. */
import type { Env } from "../../index.js";
import type { ShardPool } from "../source/shard-pool.js";
import type { ResolvedSource } from "../source/source.js";
import { SourceCursor, type SourcePosition } from "../source/source-cursor.js";
import type { BufferBudget } from "./buffer-budget.js";
import type { SupplyStart } from "./sample-supply.js";
import type { FigureCounter } from "./source-figures.js";
import { SourceLoader, type TooLong } from "./source-loader.js";
import type { TransformPool } from "./transform-pool.js";

/** What the loaders of a process share. */
export interface LoaderParts {
  readonly shards: ShardPool;
  readonly pool: TransformPool;
  readonly env: Env;
  readonly budget: BufferBudget;
  readonly seed: number | string;
  readonly buffers?: { readonly samplesMax?: number | undefined } | undefined;
  readonly construct: {
    readonly seqLength: number;
    readonly vocabSize?: number | undefined;
    readonly tooLong?: TooLong | undefined;
    readonly droppedShareMax?: number | undefined;
  };
}

/** The loader of lane `lane` of `lanes` of a source, from a position on. */
export function openLoader(
  { shards, pool, env, budget, seed, buffers, construct }: LoaderParts,
  source: ResolvedSource,
  counter: FigureCounter,
  part: { readonly lane: number; readonly lanes: number },
  { at, used }: SupplyStart,
): SourceLoader {
  const cursor = new SourceCursor(source, shards, env, { seed, ...part }, at as SourcePosition | undefined);
  return new SourceLoader(
    { source, cursor, pool, env, counter, used },
    {
      bufferSamplesMax: buffers?.samplesMax ?? 64,
      budget,
      tokensMax: construct.seqLength,
      vocabSize: construct.vocabSize,
      tooLong: construct.tooLong ?? "split",
      droppedShareMax: construct.droppedShareMax ?? 0.1,
    },
  );
}
