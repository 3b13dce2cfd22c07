/**
 * Which part of a source is whose. The shards of an epoch, in their order of that epoch, are one run of bytes; lane k of K has the k-th of K equal
 * parts of it, so that every byte is read by one lane. Lanes move on by one part each epoch. Pure: sizes and numbers in, parts out.
 */

/** How finely a format can be divided without reading what lies before: anywhere, between groups (row groups), or not at all. */
export type Division = "anywhere" | "groups" | "none";

/** A part of one shard, in its bytes: `[from, to)` of `size`. */
export interface ShardPart {
  readonly shard: number;
  readonly from: number;
  readonly to: number;
  readonly size: number;
  /** A format that divides between groups may move both ends by so many bytes to where a group ends. */
  readonly slack: number;
}

/** A shard without a size (an iterable) counts as so many bytes. */
export const nominalBytes = 1_048_576;

/** An end moves to the end of a shard or a group when that changes no lane's part by more than this share. */
const slackShare = 1 / 8;

/** The parts of lane `lane` of `lanes` in one epoch. `order`: the shards in the order of the epoch; `sizes`: by shard. */
export function partsOf(
  sizes: readonly number[],
  order: Uint32Array,
  { lane, lanes, epoch }: { readonly lane: number; readonly lanes: number; readonly epoch: number },
  division: Division,
): ShardPart[] {
  const starts = new Float64Array(order.length + 1);
  order.forEach((shard, i) => {
    starts[i + 1] = (starts[i] as number) + Math.max(1, sizes[shard] as number);
  });
  const total = starts[order.length] as number;
  const slack = division === "anywhere" ? 0 : Math.floor((total / lanes) * slackShare);
  const place = (lane + epoch) % lanes;
  const [from, to] = [cut(starts, place, lanes, slack), cut(starts, place + 1, lanes, slack)];
  const parts: ShardPart[] = [];
  for (let i = indexAt(starts, from); i < order.length && (starts[i] as number) < to; i++) {
    const [start, end] = [starts[i] as number, starts[i + 1] as number];
    const part = { from: Math.max(from, start) - start, to: Math.min(to, end) - start, size: end - start, slack };
    if (part.from < part.to) parts.push({ shard: order[i] as number, ...part });
  }
  return parts;
}

/** Where part `j` of `lanes` begins: at an equal share, or at the end of a shard that is near. The same for both neighbours. */
function cut(starts: Float64Array, j: number, lanes: number, slack: number): number {
  const total = starts[starts.length - 1] as number;
  if (j === 0 || j === lanes) return j === 0 ? 0 : total;
  const at = Math.floor((total / lanes) * j);
  const i = indexAt(starts, at);
  const [before, after] = [at - (starts[i] as number), (starts[i + 1] as number) - at];
  if (Math.min(before, after) > slack) return at;
  return (before <= after ? starts[i] : starts[i + 1]) as number;
}

/** The shard in which a byte lies. */
function indexAt(starts: Float64Array, at: number): number {
  let [low, high] = [0, starts.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((starts[middle] as number) <= at) low = middle;
    else high = middle;
  }
  return low;
}

/** Fractional part of the golden ratio: its multiples spread evenly, however many are taken. */
const spread = 0.618_033_988_749_894_9;

/**
 * Whether window `window` of a shard that several lanes share, because it cannot be divided, belongs to this part: each window to exactly one, to each
 * in proportion to its size.
 */
export function ownsWindow({ from, to, size }: ShardPart, window: number): boolean {
  const at = ((window * spread) % 1) * size;
  return at >= from && at < to;
}

/** Whether a part is the whole of its shard. */
export function isWhole({ from, to, size }: ShardPart): boolean {
  return from === 0 && to === size;
}
