/** Checks on the numbers callers pass, the same for every backend. */
import { BatchWeaveError } from "../errors.js";
import type { ListOptions } from "./object-store.js";

/** Most keys in one page of a listing. */
const listLimitMax = 1000;

/** The page size asked for, at most {@link listLimitMax}. */
export function listLimit(options: ListOptions | undefined): number {
  const limit = options?.limit ?? listLimitMax;
  if (!Number.isInteger(limit) || limit < 1) {
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `The list limit ${limit} is not a whole number of at least 1; leave it out to get ${listLimitMax}.`,
      { limit },
    );
  }
  return Math.min(limit, listLimitMax);
}

/** Throws INVALID_ARGUMENT unless `[start, start + length)` is a range. */
export function assertRange(key: string, start: number, length: number): void {
  if (Number.isSafeInteger(start) && Number.isSafeInteger(length) && start >= 0 && length >= 0) return;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `The range start ${start}, length ${length} of "${key}" is not a pair of whole numbers of at least 0.`,
    {
      key,
      start,
      length,
    },
  );
}

/** Refuses an object of more bytes than anything that can stand under its name. */
export function assertBytesMax(what: string, found: number, bytesMax: number | undefined): void {
  if (bytesMax === undefined || found <= bytesMax) return;
  throw new BatchWeaveError(
    "LIMIT",
    `${what} has ${found} bytes or more, and at most ${bytesMax} can be right. It is not what its name says: restore it from a copy.`,
    { found, limit: bytesMax },
  );
}
