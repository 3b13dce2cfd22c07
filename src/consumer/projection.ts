/** The projection: which cells of the log one rank gets in one iteration. One formula for every mesh. Pure. */
import { BatchWeaveError, shown } from "../errors.js";
import { asRow, asStep, type Grid, type Row, type Step } from "../format/index.js";
import { divisors, type MeshPlace, mismatch, orList } from "./mesh.js";

/**
 * `"per-rank"`: an iteration takes the next `dataRanks * rowsPerRank` rows, whatever batches they are in.
 * `"global-batch"`: an iteration takes one whole batch, divided among the data ranks.
 */
export type Policy = "per-rank" | "global-batch";

/** How chunks are divided among context-parallel ranks: one run each, or Megatron's two groups (c and 2cp-1-c). */
export type ChunkLayout = "contiguous" | "zigzag";

/**
 * Rows of one rank in one iteration: a number; `[fromIteration, rows]` pairs in ascending order, the first from 0; or a function of the
 * iteration. The same on all ranks.
 */
export type RowsPerRank =
  | number
  | readonly (readonly [fromIteration: number, rows: number])[]
  | ((iteration: number) => number);

/** Everything the formula needs besides a position. */
export interface Projection {
  readonly grid: Grid;
  readonly policy: Policy;
  readonly layout: ChunkLayout;
  readonly rowsPerRank: RowsPerRank;
  readonly place: Pick<MeshPlace, "dataRanks" | "d" | "chunkRanks" | "c">;
}

/** One slice of the log. `row` counts within its batch. */
export interface Cell {
  readonly step: Step;
  readonly row: number;
  readonly chunk: number;
}

/** What one iteration takes from the log, and what of it is this rank's. */
export interface IterationPlan {
  readonly iteration: number;
  /** All ranks together take the global rows `[row, nextRow)`. */
  readonly row: Row;
  readonly nextRow: Row;
  /** Steps that must be visible: the first and the last of all ranks' rows. */
  readonly firstStep: Step;
  readonly lastStep: Step;
  /** How many rows are this rank's. */
  readonly rows: number;
  /** This rank's cells: rows ascending, chunks within a row in the order of the sequence. */
  readonly cells: readonly Cell[];
}

/** Rows of one rank in one iteration at most. */
const rowsPerRankMax = 65_536;

/** Refuses a mesh that the grid cannot be divided among. Says which sizes work. */
export function assertProjection(projection: Projection): void {
  const { grid, policy, layout, place, rowsPerRank } = projection;
  const { chunkRanks: cp, dataRanks: dp } = place;
  oneOf("policy", policy, ["per-rank", "global-batch"]);
  oneOf("layout", layout, ["contiguous", "zigzag"]);
  const pieces = layout === "zigzag" && cp > 1 ? 2 * cp : cp;
  if (grid.chunks % pieces !== 0) {
    const fits = divisors(grid.chunks).filter((n) => n === 1 || layout === "contiguous" || grid.chunks % (2 * n) === 0);
    throw mismatch(
      `cp ${cp} cannot divide the ${grid.chunks} chunks of this namespace${layout === "zigzag" ? " in zigzag (2 x cp groups)" : ""}; cp can be ${orList(fits)}.`,
      { cp, chunks: grid.chunks, fits },
    );
  }
  if (policy === "global-batch") {
    if (grid.rows % dp !== 0) {
      throw mismatch(
        `dp ${dp} cannot divide the ${grid.rows} rows of a batch with policy "global-batch"; dp can be ${orList(divisors(grid.rows))}, or use policy "per-rank", which takes any.`,
        { dp, rows: grid.rows, fits: divisors(grid.rows) },
      );
    }
    if (rowsPerRank !== 1) {
      throw new BatchWeaveError(
        "INVALID_ARGUMENT",
        `rowsPerRank does not go with policy "global-batch": every iteration is one batch of ${grid.rows} rows. Leave it out, or use policy "per-rank".`,
        { rowsPerRank },
      );
    }
    return;
  }
  assertSchedule(rowsPerRank);
}

function oneOf(what: string, value: string, allowed: readonly string[]): void {
  if (allowed.includes(value)) return;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `${what} must be ${allowed.map((a) => `"${a}"`).join(" or ")}, not ${JSON.stringify(value)}.`,
    { [what]: value },
  );
}

function assertSchedule(rowsPerRank: RowsPerRank): void {
  if (typeof rowsPerRank === "function") return;
  if (typeof rowsPerRank === "number") {
    assertRows(rowsPerRank, "rowsPerRank");
    return;
  }
  rowsPerRank.forEach(([from, rows], i) => {
    assertRows(rows, `rowsPerRank[${i}]`);
    const previous = rowsPerRank[i - 1];
    if (Number.isSafeInteger(from) && (previous ? from > previous[0] : from === 0)) return;
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `rowsPerRank[${i}] starts at iteration ${shown(from)}: a schedule starts at iteration 0 and ascends, as in [[0, 1], [1000, 2]].`,
      { rowsPerRank },
    );
  });
  if (rowsPerRank.length === 0)
    throw new BatchWeaveError("INVALID_ARGUMENT", "rowsPerRank is an empty schedule; say [[0, rows]] at least.");
}

function assertRows(rows: number, what: string): void {
  if (Number.isSafeInteger(rows) && rows >= 1 && rows <= rowsPerRankMax) return;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `${what} is ${shown(rows)}; a rank takes 1 to ${rowsPerRankMax} whole rows in an iteration.`,
    { [what]: rows },
  );
}

/** Rows of one rank in `iteration`. */
export function rowsOfRank(projection: Projection, iteration: number): number {
  const { policy, grid, place, rowsPerRank } = projection;
  if (policy === "global-batch") return grid.rows / place.dataRanks;
  if (typeof rowsPerRank === "number") return rowsPerRank;
  if (typeof rowsPerRank === "function") {
    const rows = rowsPerRank(iteration);
    assertRows(rows, `rowsPerRank(${iteration})`);
    return rows;
  }
  let rows = 1;
  for (const [from, n] of rowsPerRank) if (from <= iteration) rows = n;
  return rows;
}

/** What the iteration that begins at global row `row` takes. Every rank computes the same rows and its own cells. */
export function planIteration(projection: Projection, row: number, iteration: number): IterationPlan {
  const { grid, policy, place } = projection;
  if (policy === "global-batch" && row % grid.rows !== 0) throw offBoundary(row, grid.rows);
  const rows = rowsOfRank(projection, iteration);
  const nextRow = row + place.dataRanks * rows;
  const first = row + place.d * rows;
  const chunks = chunksOfRank(projection);
  const cells: Cell[] = [];
  for (let global = first; global < first + rows; global++) {
    const step = asStep(Math.floor(global / grid.rows));
    for (const chunk of chunks) cells.push({ step, row: global - step * grid.rows, chunk });
  }
  return {
    iteration,
    row: asRow(row),
    nextRow: asRow(nextRow),
    firstStep: asStep(Math.floor(row / grid.rows)),
    lastStep: asStep(Math.floor((nextRow - 1) / grid.rows)),
    rows,
    cells,
  };
}

/** Chunks of one rank, in the order of the sequence. */
function chunksOfRank(projection: Projection): number[] {
  const { grid, layout, place } = projection;
  const { chunkRanks: cp, c } = place;
  const isZigzag = layout === "zigzag" && cp > 1;
  const size = grid.chunks / (isZigzag ? 2 * cp : cp);
  const chunks: number[] = [];
  for (const group of isZigzag ? [c, 2 * cp - 1 - c] : [c])
    for (let i = 0; i < size; i++) chunks.push(group * size + i);
  return chunks;
}

function offBoundary(row: number, rows: number): BatchWeaveError {
  const before = row - (row % rows);
  return new BatchWeaveError(
    "INVALID_ARGUMENT",
    `Row ${row} is inside batch ${before / rows}, and policy "global-batch" starts at a whole batch of ${rows} rows. Start from row ${before} (repeats ${row - before}) or row ${before + rows} (skips ${before + rows - row}), or go on with policy "per-rank".`,
    { row, before, after: before + rows },
  );
}
