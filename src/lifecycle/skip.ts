/** Ranges of steps to leave out: `110-120,300`. Pure. */
import { BatchWeaveError } from "../errors.js";

/** Steps `[from, to)`. */
export interface SkipRange {
  readonly from: number;
  readonly to: number;
}

/** Ranges left out of one fork at most, after neighbours were joined. */
const skipRangesMax = 1_024;

/** Reads `110-120,300`: steps 110 to 120, both included, and step 300. */
export function parseSkip(text: string): SkipRange[] {
  return text.split(",").map((part) => {
    const match = /^\s*(\d+)(?:\s*-\s*(\d+))?\s*$/.exec(part);
    const from = Number(match?.[1]);
    const to = Number(match?.[2] ?? match?.[1]) + 1;
    if (match && Number.isSafeInteger(to) && from < to) return { from, to };
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `${JSON.stringify(part.trim())} is not a step or a range of steps. Write steps to skip as 110-120,300.`,
      { skip: text },
    );
  });
}

/** Sorted and joined; refuses what is not below `at`. */
export function normalizeSkip(skip: readonly SkipRange[], at: number): SkipRange[] {
  const joined: { from: number; to: number }[] = [];
  for (const { from, to } of [...skip].sort((a, b) => a.from - b.from)) {
    const isRange = Number.isSafeInteger(from) && Number.isSafeInteger(to) && from >= 0 && from < to;
    if (!isRange || to > at) {
      throw new BatchWeaveError(
        "INVALID_ARGUMENT",
        `Steps ${from} to ${to - 1} cannot be skipped: the fork shares steps below ${at}.`,
        { from, to, at },
      );
    }
    const last = joined.at(-1);
    if (last && from <= last.to) last.to = Math.max(last.to, to);
    else joined.push({ from, to });
  }
  if (joined.length <= skipRangesMax) return joined;
  throw new BatchWeaveError(
    "LIMIT",
    `A fork can leave out ${skipRangesMax} ranges of steps, not ${joined.length}. Fork in several stages.`,
    { skipRangesMax },
  );
}

/** What is left of `[first, at)`. */
export function keptRanges(first: number, at: number, skip: readonly SkipRange[]): SkipRange[] {
  const kept: SkipRange[] = [];
  let from = first;
  for (const range of skip) {
    if (range.from > from) kept.push({ from, to: Math.min(range.from, at) });
    from = Math.max(from, range.to);
  }
  if (from < at) kept.push({ from, to: at });
  return kept;
}
