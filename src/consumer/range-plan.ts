/** Which range reads bring the wanted slices of one object: write fine, read coarse. Pure. */

/** Where one wanted slice lies in its object. */
interface SlicePlace {
  readonly offset: number;
  readonly length: number;
}

/** One range read, and which of the wanted slices (by their position in the list) lie in it. */
export interface RangeRead {
  readonly offset: number;
  readonly length: number;
  readonly wanted: readonly number[];
}

/** Longest range read: beyond it several smaller ones in parallel are faster and easier on memory. */
export const rangeBytesMax: number = 64 * 1024 * 1024;

/**
 * Merges slices that touch each other into single reads. No byte is read that is not wanted, and none twice. A slice longer
 * than the limit is read alone.
 */
export function planRanges(slices: readonly SlicePlace[], bytesMax: number = rangeBytesMax): RangeRead[] {
  const ranges: { offset: number; length: number; wanted: number[] }[] = [];
  slices.forEach(({ offset, length }, i) => {
    const last = ranges.at(-1);
    const touches = last !== undefined && last.offset + last.length === offset;
    if (last && touches && (length === 0 || last.length + length <= bytesMax)) {
      last.length += length;
      last.wanted.push(i);
    } else {
      ranges.push({ offset, length, wanted: [i] });
    }
  });
  return ranges;
}
