/** What transforms must have made of a sample by the time it is planned: tokens, and images where there are any. */
import { BatchWeaveError } from "../../index.js";
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
  /** Whole numbers from 0 to 2^31 - 1, below the vocabulary's size where the pipeline says it. */
  readonly tokens: Int32Array | readonly number[];
  /** 1 where the token is to be predicted, else 0; as long as `tokens`. Default: 1 everywhere. Placeholders of images never are. */
  readonly lossMask?: Uint8Array | readonly number[] | undefined;
  readonly images?: readonly PreparedImage[] | undefined;
  /** The token to be predicted by the last one: set where the sample is a piece of a longer document. */
  readonly nextToken?: number | undefined;
  /** Numbers for cost functions. */
  readonly features?: Readonly<Record<string, number>> | undefined;
}

type Unchecked = Readonly<Record<keyof PreparedSample, unknown>>;

/**
 * The sample that transforms gave, checked, or why it is none: garbage is its own fault. A value without any tokens is the pipeline's, which
 * lacks a transform, so it is thrown whatever the policy.
 */
export function asPrepared(
  value: unknown,
  { source, id, vocabSize }: { readonly source: string; readonly id: string; readonly vocabSize?: number | undefined },
): PreparedSample | { readonly garbage: string } {
  const { tokens, lossMask, images, nextToken } = (value ?? {}) as Unchecked;
  if (tokens === undefined) {
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `Source ${source}: sample ${id} has no tokens after its transforms: the last one must return { tokens }, an Int32Array or a list of numbers. Add tokenize() or a transform of your own.`,
      { source, id },
    );
  }
  const garbage =
    wrongTokens(tokens, vocabSize ?? 2 ** 31) ??
    (nextToken === undefined ? undefined : wrongTokens([nextToken], vocabSize ?? 2 ** 31)) ??
    wrongMask(lossMask, tokens as ArrayLike<number>) ??
    wrongImages(images, tokens as ArrayLike<number>);
  if (garbage !== undefined) return { garbage };
  return {
    ...(value as PreparedSample),
    tokens: tokens instanceof Int32Array ? tokens : Int32Array.from(tokens as ArrayLike<number>),
    ...(lossMask === undefined ? {} : { lossMask: Uint8Array.from(lossMask as ArrayLike<number>) }),
    ...(images === undefined ? {} : { images: (images as readonly PreparedImage[]).map(ownImage) }),
  };
}

/** An image of this sample alone, though several samples were given the same, and nothing that cannot travel. A Buffer becomes what it is a kind of: its `slice` does not copy. */
function ownImage({ at, tokens, height, width, data, patchValues }: PreparedImage): PreparedImage {
  const plain = isBytes(data) ? new Uint8Array(data.buffer, data.byteOffset, data.length) : data;
  return { at, tokens, height, width, data: plain, ...(patchValues === undefined ? {} : { patchValues }) };
}

const isBytes = (data: unknown): data is Uint8Array => data instanceof Uint8Array || data instanceof Uint8ClampedArray;

const isList = (value: unknown): value is ArrayLike<unknown> =>
  Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView));

const shown = (value: unknown): string =>
  typeof value === "string" ? JSON.stringify(value) : typeof value === "bigint" ? `${value}n` : String(value);

function wrongTokens(tokens: unknown, limit: number): string | undefined {
  if (!isList(tokens)) return `its tokens are ${shown(tokens)}, not a list`;
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i] as number;
    if (Number.isInteger(token) && token >= 0 && token < limit) continue;
    return `its token ${i} of ${tokens.length} is ${shown(token)}, not a whole number from 0 to ${limit - 1}`;
  }
  return undefined;
}

function wrongMask(mask: unknown, tokens: ArrayLike<number>): string | undefined {
  if (mask === undefined) return undefined;
  if (!isList(mask)) return `its loss mask is ${shown(mask)}, not a list`;
  if (mask.length !== tokens.length)
    return `its loss mask has ${mask.length} places and there are ${tokens.length} tokens`;
  for (let i = 0; i < mask.length; i++)
    if (mask[i] !== 0 && mask[i] !== 1) return `place ${i} of its loss mask is ${shown(mask[i])}, not 0 or 1`;
  return undefined;
}

function wrongImages(images: unknown, { length }: ArrayLike<number>): string | undefined {
  if (images === undefined) return undefined;
  if (!Array.isArray(images)) return `its images are ${shown(images)}, not a list`;
  let end = 0;
  for (const [i, image] of images.entries()) {
    const { at, tokens, height, width, data, patchValues } = (image ?? {}) as Partial<PreparedImage>;
    const isWhole = [at, tokens, height, width].every((n) => Number.isInteger(n) && (n as number) >= 0);
    if (!isWhole || !isList(data)) return `its image ${i} lacks one of at, tokens, height, width and data`;
    const [from, count] = [at as number, tokens as number];
    if (from + count > length) return `its image ${i} holds tokens ${from} to ${from + count - 1} of ${length}`;
    if (from < end) return `its image ${i} begins before the end of the one before it`;
    if ((height as number) * (width as number) !== count)
      return `its image ${i} has ${height} x ${width} patches and ${count} placeholders`;
    if (!isBytes(data) && !(data instanceof Float32Array))
      return `the data of its image ${i} are of ${(data as object).constructor.name}, not a Uint8Array or Float32Array`;
    if (patchValues !== undefined && data.length !== count * patchValues)
      return `its image ${i} has ${data.length} values, and ${count} patches of ${patchValues} are ${count * patchValues}`;
    end = from + count;
  }
  return undefined;
}

/** 1 for each token that is to be predicted: as its loss mask says, and never where an image has its place. */
export function isTargetOf({ tokens, lossMask, images }: PreparedSample): Uint8Array {
  const targets = lossMask ? Uint8Array.from(lossMask) : new Uint8Array(tokens.length).fill(1);
  for (const image of images ?? []) targets.fill(0, image.at, image.at + image.tokens);
  return targets;
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
