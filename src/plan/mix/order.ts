/** Sorting indices by a column of numbers, fast enough for a million samples. Pure. */

const isLittleEndian = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1;

/** Below this many the platform's sort is done before the counts of a radix sort are cleared. */
const radixMin = 2048;
/** Bits looked at in one pass: 2,048 counts stay in the fastest cache. */
const digitBits = 11;

/**
 * Indices of `values` (not negative, finite) from the largest to the smallest; equal ones in ascending order of index. The bits of such
 * numbers sort as the numbers do, so many are sorted digit by digit, which takes a quarter of the time of comparing them.
 */
export function descending(values: Float64Array): Uint32Array {
  let order = new Uint32Array(values.length);
  for (let i = 0; i < order.length; i++) order[i] = i;
  if (values.length < radixMin) return order.sort((a, b) => values[b]! - values[a]! || a - b);
  // A copy: `values` may be a view of part of a buffer.
  const words = new Uint32Array(values.slice().buffer);
  let spare = new Uint32Array(values.length);
  const counts = new Uint32Array(1 << digitBits);
  for (const word of isLittleEndian ? [0, 1] : [1, 0]) {
    for (let shift = 0; shift < 32; shift += digitBits) {
      if (placeByDigit(words, word, shift, order, spare, counts)) [order, spare] = [spare, order];
    }
  }
  return order;
}

/** One stable pass from the largest digit to the smallest; false, and nothing done, when all digits are the same. */
function placeByDigit(
  words: Uint32Array,
  word: number,
  shift: number,
  from: Uint32Array,
  to: Uint32Array,
  counts: Uint32Array,
): boolean {
  const mask = counts.length - 1;
  counts.fill(0);
  for (let at = word; at < words.length; at += 2) {
    const digit = ((words[at] as number) >>> shift) & mask;
    counts[digit] = (counts[digit] as number) + 1;
  }
  if (counts[((words[word] as number) >>> shift) & mask] === from.length) return false;
  let before = 0;
  for (let digit = mask; digit >= 0; digit--) {
    const count = counts[digit] as number;
    counts[digit] = before;
    before += count;
  }
  for (let i = 0; i < from.length; i++) {
    const index = from[i] as number;
    const digit = ((words[2 * index + word] as number) >>> shift) & mask;
    const place = counts[digit] as number;
    counts[digit] = place + 1;
    to[place] = index;
  }
  return true;
}
