/** One packed sequence: samples one after another, padding at the end, and everything a model needs to keep them apart. Pure. */
import { isTargetOf, type PreparedImage, type PreparedSample } from "../load/prepared-sample.js";

/** Fills padding, and labels that do not count. */
export interface PackTokens {
  /** Default 0. */
  readonly padToken?: number | undefined;
  /** Label where there is nothing to predict. Default -100. */
  readonly ignoreLabel?: number | undefined;
}

/** Columns of one sequence of `length` slots. */
export interface PackedSequence {
  readonly tokens: Int32Array;
  /** The next token of the same document; `ignoreLabel` at its end, where that token's loss mask is 0 or an image has its place, and in padding. */
  readonly labels: Int32Array;
  readonly lossMask: Uint8Array;
  /** From 0 in each sample. */
  readonly positionIds: Int32Array;
  /** 1, 2, … by sample; 0 in padding. */
  readonly segmentIds: Int32Array;
  /** Where each sample begins, where the padding begins, and the length: attention is computed between neighbours. */
  readonly cuSeqlens: Int32Array;
  readonly maxSeqlen: number;
}

/** An image with the slot of its first placeholder in a sequence, and which of the sequence's samples has it. */
interface ImageSlot {
  readonly slot: number;
  readonly sample: number;
  readonly image: PreparedImage;
}

/** Where the images of samples come to lie that are packed into one sequence. */
export function imageSlots(samples: readonly PreparedSample[]): ImageSlot[] {
  let at = 0;
  return samples.flatMap(({ tokens, images = [] }, sample) => {
    const begin = at;
    at += tokens.length;
    return images.map((image) => ({ slot: begin + image.at, sample, image }));
  });
}

/** Packs samples into a sequence of `length` slots. They must fit. */
export function packSequence(
  samples: readonly PreparedSample[],
  length: number,
  settings: PackTokens = {},
): PackedSequence {
  const { padToken = 0, ignoreLabel = -100 } = settings;
  const columns = {
    tokens: new Int32Array(length).fill(padToken),
    labels: new Int32Array(length).fill(ignoreLabel),
    lossMask: new Uint8Array(length),
    positionIds: new Int32Array(length),
    segmentIds: new Int32Array(length),
  };
  const bounds = [0];
  let at = 0;
  let maxSeqlen = 0;
  for (const [s, sample] of samples.entries()) {
    const count = sample.tokens.length;
    if (at + count > length) throw new RangeError(`${at + count} tokens do not fit into ${length} slots`);
    put(columns, sample, at, s + 1);
    maxSeqlen = Math.max(maxSeqlen, count);
    at += count;
    if (count > 0) bounds.push(at);
  }
  if (at < length) bounds.push(length);
  return { ...columns, cuSeqlens: Int32Array.from(bounds), maxSeqlen: Math.max(maxSeqlen, length - at) };
}

/** Writes one sample into the columns of its sequence. The loops have nothing but local names: it is the hottest place of construction. */
function put(
  { tokens, labels, lossMask, positionIds, segmentIds }: Omit<PackedSequence, "cuSeqlens" | "maxSeqlen">,
  sample: PreparedSample,
  at: number,
  segment: number,
): void {
  const count = sample.tokens.length;
  tokens.set(sample.tokens, at);
  segmentIds.fill(segment, at, at + count);
  for (let i = 0; i < count; i++) positionIds[at + i] = i;
  // The label of a slot is the token after it, so it counts when that token does.
  const isTarget = sample.lossMask || sample.images ? isTargetOf(sample) : undefined;
  for (let i = 0; i < count - 1; i++) {
    if (isTarget?.[i + 1] === 0) continue;
    labels[at + i] = tokens[at + i + 1] as number;
    lossMask[at + i] = 1;
  }
  if (count === 0 || sample.nextToken === undefined) return;
  labels[at + count - 1] = sample.nextToken;
  lossMask[at + count - 1] = 1;
}

/** How a sequence is cut for context parallelism. */
export type ContextLayout = "contiguous" | "zigzag";

/**
 * The ranges of a sequence that chunk `c` of `chunks` holds. `contiguous`: one run; a reader with any layout can put runs together, zigzag
 * too. `zigzag`: pieces c and 2 chunks - 1 - c of 2 chunks, for readers that take one chunk each.
 */
export function chunkRanges(
  length: number,
  chunks: number,
  c: number,
  layout: ContextLayout,
): readonly (readonly [start: number, end: number])[] {
  const pieces = layout === "zigzag" && chunks > 1 ? 2 * chunks : chunks;
  const size = length / pieces;
  const own = pieces === chunks ? [c] : [c, pieces - 1 - c];
  return own.map((piece) => [piece * size, (piece + 1) * size] as const);
}

/** The part of a column that a chunk holds. */
export function chunkOf<T extends Int32Array | Uint8Array>(
  column: T,
  ranges: readonly (readonly [number, number])[],
): T {
  const size = ranges.reduce((sum, [start, end]) => sum + end - start, 0);
  const out = new (column.constructor as new (n: number) => T)(size);
  let at = 0;
  for (const [start, end] of ranges) {
    out.set(column.subarray(start, end), at);
    at += end - start;
  }
  return out;
}
