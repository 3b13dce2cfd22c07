/** The grid of a namespace: how many slices a batch has. */
import { BatchWeaveError, shown } from "../errors.js";

/** `rows` (data-parallel grain) × `chunks` (context-parallel grain). */
export interface Grid {
  readonly rows: number;
  readonly chunks: number;
}

/** Cells of a batch at most: a slice table of 1.5 MiB. */
export const cellsMax = 65_536;

/** Two positive integers of at most {@link cellsMax} cells. */
export function isGrid({ rows, chunks }: Grid): boolean {
  return [rows, chunks].every((n) => Number.isSafeInteger(n) && n >= 1) && rows * chunks <= cellsMax;
}

/** Refuses a grid that is not two positive integers of at most {@link cellsMax} cells. */
export function assertGrid(grid: Grid): void {
  for (const [name, value] of Object.entries({ rows: grid.rows, chunks: grid.chunks })) {
    if (!Number.isSafeInteger(value) || value < 1) {
      throw new BatchWeaveError(
        "INVALID_ARGUMENT",
        `grid.${name} must be a whole number of at least 1, not ${shown(value)}.`,
        { [name]: value },
      );
    }
  }
  if (grid.rows * grid.chunks > cellsMax) {
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `A grid of ${grid.rows} x ${grid.chunks} has more than ${cellsMax} slices; use fewer rows or chunks and several batches per iteration.`,
      { rows: grid.rows, chunks: grid.chunks, cellsMax },
    );
  }
}
