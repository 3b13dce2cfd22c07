/** Shapes of training jobs, and the projection worked out a second time, so that the product's formula has something to agree with. */
import type { Grid } from "../../src/format/index.js";
import type { Rng } from "../world/random.js";

/** How a job reads. */
export interface JobShape {
  readonly mesh: { readonly dp: number; readonly cp: number; readonly tp: number };
  readonly policy: "per-rank" | "global-batch";
  readonly layout: "contiguous" | "zigzag";
  readonly rowsPerRank: number | readonly (readonly [number, number])[];
}

/** One cell that a rank must get. */
export interface ExpectedCell {
  readonly step: number;
  readonly row: number;
  readonly chunk: number;
}

/** What one rank must get in one iteration. */
export interface ExpectedShare {
  readonly cells: readonly ExpectedCell[];
  readonly nextRow: number;
}

export function worldOf({ mesh }: JobShape): number {
  return mesh.dp * mesh.cp * mesh.tp;
}

/** A shape that the grid allows, with so many ranks, going on at `row`. */
export function drawShape(
  rng: Rng,
  grid: Grid,
  { ranksMin, ranksMax }: { readonly ranksMin: number; readonly ranksMax: number },
  row: number,
): JobShape {
  for (;;) {
    const cp = rng.pick([1, 1, 2, 4]);
    const tp = rng.pick([1, 1, 1, 2]);
    const dp = 1 + rng.below(ranksMax);
    const layout = rng.chance(0.3) ? "zigzag" : "contiguous";
    const policy = rng.chance(0.3) ? "global-batch" : "per-rank";
    if (dp * cp * tp > ranksMax || dp * cp * tp < ranksMin) continue;
    if (grid.chunks % (layout === "zigzag" && cp > 1 ? 2 * cp : cp) !== 0) continue;
    if (policy === "global-batch" && (grid.rows % dp !== 0 || row % grid.rows !== 0)) continue;
    const rowsPerRank =
      policy === "global-batch" || rng.chance(0.6)
        ? 1
        : rng.pick([
            2,
            3,
            [
              [0, 1],
              [7, 2],
              [30, 3],
            ] as const,
          ]);
    return { mesh: { dp, cp, tp }, policy, layout, rowsPerRank };
  }
}

/** What rank `rank` gets in the iteration that begins at `row`. Ranks count tp fastest, then cp, then dp. */
export function expectedShare(
  shape: JobShape,
  grid: Grid,
  rank: number,
  row: number,
  iteration: number,
): ExpectedShare {
  const { dp, cp, tp } = shape.mesh;
  const c = Math.floor(rank / tp) % cp;
  const d = Math.floor(rank / (tp * cp));
  const rows = rowsOf(shape, grid, iteration);
  const cells: ExpectedCell[] = [];
  for (let i = 0; i < rows; i++) {
    const at = row + d * rows + i;
    for (let chunk = 0; chunk < grid.chunks; chunk++) {
      if (ownerOf(chunk, shape, grid) === c)
        cells.push({ step: Math.floor(at / grid.rows), row: at % grid.rows, chunk });
    }
  }
  return { cells, nextRow: row + dp * rows };
}

function rowsOf({ policy, mesh, rowsPerRank }: JobShape, grid: Grid, iteration: number): number {
  if (policy === "global-batch") return grid.rows / mesh.dp;
  if (typeof rowsPerRank === "number") return rowsPerRank;
  return rowsPerRank.findLast(([from]) => from <= iteration)?.[1] ?? 1;
}

/** Which context-parallel rank a chunk belongs to. */
function ownerOf(chunk: number, { layout, mesh: { cp } }: JobShape, { chunks }: Grid): number {
  if (cp === 1) return 0;
  if (layout === "contiguous") return Math.floor(chunk / (chunks / cp));
  const group = Math.floor(chunk / (chunks / (2 * cp)));
  return group < cp ? group : 2 * cp - 1 - group;
}
