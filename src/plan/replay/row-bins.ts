/** Samples of a row, packed anew in their recorded order: lengths may have changed, rows and order have not. Pure. */
import type { BinCapacity } from "../graph/bin-loads.js";

/** What a sample takes of a bin. */
interface SampleSize {
  readonly tokens: number;
  readonly memory: number;
}

/** The bin of each sample; -1 where none has room for it. */
type RowBins = Int32Array;

/** Fills bins one after another, none beyond `tokens`. What does not fit where it comes is left out. */
function fill(samples: readonly SampleSize[], bins: number, tokens: number, memoryMax: number): RowBins {
  const found = new Int32Array(samples.length);
  let [bin, used, held] = [0, 0, 0];
  samples.forEach((sample, i) => {
    if (bin + 1 < bins && (used + sample.tokens > tokens || held + sample.memory > memoryMax))
      [bin, used, held] = [bin + 1, 0, 0];
    if (used + sample.tokens > tokens || held + sample.memory > memoryMax) {
      found[i] = -1;
      return;
    }
    found[i] = bin;
    used += sample.tokens;
    held += sample.memory;
  });
  return found;
}

/**
 * Divides samples into runs of neighbours, one for each bin, such that the fullest is as empty as it can be. Where they do not all fit, bins are filled up and
 * what is left over has none.
 */
export function binsInOrder(samples: readonly SampleSize[], bins: number, capacity: BinCapacity): RowBins {
  const { tokens: tokensMax = Number.POSITIVE_INFINITY, memory: memoryMax = Number.POSITIVE_INFINITY } = capacity;
  const total = samples.reduce((sum, { tokens }) => sum + tokens, 0);
  const isAll = (limit: number): boolean => !fill(samples, bins, limit, memoryMax).includes(-1);
  let high = Math.min(tokensMax, total);
  if (!isAll(high)) return fill(samples, bins, tokensMax, memoryMax);
  let low = Math.floor(total / bins) - 1;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (isAll(middle)) high = middle;
    else low = middle;
  }
  return fill(samples, bins, high, memoryMax);
}
