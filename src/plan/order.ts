/** Sorting indices by a column of numbers, fast enough for a million samples. Pure. */

const isLittleEndian = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1;

/**
 * Indices of `values` (not negative, finite) from the largest to the smallest; equal ones in ascending order of index. The index rides in
 * the low bits of the number it sorts by, so the platform's typed sort does the work; numbers that differ by less than one part in 2^27
 * may count as equal, the same way on every machine.
 */
export function descending(values: Float64Array): Uint32Array {
  const n = values.length;
  const bits = Math.max(1, Math.ceil(Math.log2(Math.max(2, n))));
  if (bits > 25) return Uint32Array.from(values.keys()).sort((a, b) => values[b]! - values[a]! || a - b);
  const mask = 2 ** bits - 1;
  const keys = Float64Array.from(values);
  const words = new Uint32Array(keys.buffer);
  const low = isLittleEndian ? 0 : 1;
  for (let i = 0; i < n; i++) {
    const at = 2 * i + low;
    // A larger embedded number sorts first among equals, so index 0 gets the largest.
    words[at] = ((((words[at] as number) & ~mask) >>> 0) + (mask - i)) >>> 0;
  }
  keys.sort();
  const order = new Uint32Array(n);
  for (let i = 0; i < n; i++) order[n - 1 - i] = mask - ((words[2 * i + low] as number) & mask);
  return order;
}
