/** What transforms must have made of a sample by the time it is planned: tokens, and images where there are any. */
import { BatchWeaveError } from "../index.js";
import type { SampleMeta } from "./sample-meta.js";

/** An image of a sample. Its place among the tokens is held by `tokens` placeholders. */
export interface PreparedImage {
  /** Index of its first placeholder in the sample's tokens. */
  readonly at: number;
  /** Placeholders, which is also the number of patches the encoder makes of it. */
  readonly tokens: number;
  /** In patches. */
  readonly height: number;
  readonly width: number;
  /** Rows of one patch each (after patchify), or the encoded file (before). */
  readonly data: Uint8Array | Float32Array;
  /** Values of one patch; absent while `data` is an encoded file. */
  readonly patchValues?: number | undefined;
}

/** A sample that is ready to be planned and packed. */
export interface PreparedSample {
  readonly tokens: Int32Array | readonly number[];
  /** 1 where the loss counts; as long as `tokens`. Default: everywhere. */
  readonly lossMask?: Uint8Array | readonly number[] | undefined;
  readonly images?: readonly PreparedImage[] | undefined;
  /** Numbers for cost functions. */
  readonly features?: Readonly<Record<string, number>> | undefined;
}

/** Refuses what is not a prepared sample. */
export function asPrepared(value: unknown, source: string, id: string): PreparedSample {
  const tokens = (value as Partial<PreparedSample> | null | undefined)?.tokens;
  if (tokens instanceof Int32Array || Array.isArray(tokens)) return value as PreparedSample;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `Sample ${id} of ${source} has no tokens after its transforms: the last one must return { tokens }, an Int32Array or a list of numbers. Add tokenize() or a transform of your own.`,
    { source, id },
  );
}

/** The metadata of a prepared sample. */
export function metaOf(sample: PreparedSample, source: string, id: string, bytes: number): SampleMeta {
  const { tokens, images, features } = sample;
  return {
    source,
    id,
    tokens: tokens.length,
    bytes,
    ...(images && images.length > 0 ? { images: images.map((image) => image.tokens) } : {}),
    ...(features ? { features } : {}),
  };
}
