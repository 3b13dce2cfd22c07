/** The mesh: where a rank of a training job sits, in its framework's own rank order. Pure. */
import { BatchWeaveError, shown } from "../errors.js";

/**
 * Rank orders by name, fastest axis first, as Megatron writes them. In these the `ep` of a preset does not multiply the
 * world: expert parallelism regroups ranks that already exist (Megatron builds its data ranks with ep = 1), and each of
 * them still reads its own rows. torchtitan's `dp_replicate` and `dp_shard` are neighbours, so together they are `dp`.
 */
const presets = {
  megatron: "tp-cp-dp-pp",
  "megatron-pp-dp": "tp-cp-pp-dp",
  torchtitan: "tp-cp-dp-pp",
  // The two Megatron orders as its own settings spell them.
  "tp-cp-ep-dp-pp": "tp-cp-dp-pp",
  "tp-cp-ep-pp-dp": "tp-cp-pp-dp",
} as const;

/** A preset, or axes from the fastest to the slowest joined by hyphens: `"tp-cp-dp-pp"`. */
export type RankOrder = "megatron" | "megatron-pp-dp" | "torchtitan" | (string & {});

/** The axes of a mesh. */
export type Axis = "dp" | "cp" | "tp" | "pp" | "ep";

/** Sizes of a training job's mesh. `dp` is the whole data-parallel degree (torchtitan: `dp_replicate * dp_shard`). */
export interface Mesh {
  readonly dp: number;
  readonly cp?: number | undefined;
  readonly tp?: number | undefined;
  readonly pp?: number | undefined;
  /**
   * With a preset it says how ranks are regrouped for experts and changes nothing here. An order of your own that names
   * `ep` makes it an axis of the world, whose ranks read different rows, as dp ranks do.
   */
  readonly ep?: number | undefined;
  /** Default `"megatron"`. */
  readonly order?: RankOrder | undefined;
}

/** A rank's place in terms of data. Ranks with equal `d` and `c` (tp and pp peers) read the same bytes. */
export interface MeshPlace {
  readonly rank: number;
  /** Ranks of the whole job. */
  readonly worldSize: number;
  /** How many ways rows are divided, and which part is this rank's. */
  readonly dataRanks: number;
  readonly d: number;
  /** How many ways chunks are divided, and which part is this rank's. */
  readonly chunkRanks: number;
  readonly c: number;
  /** Position on every axis of the order. */
  readonly coordinates: Readonly<Partial<Record<Axis, number>>>;
}

const axisNames: readonly Axis[] = ["dp", "cp", "tp", "pp", "ep"];

/** Axes of the world, fastest first. */
function axesOf(mesh: Mesh): readonly Axis[] {
  const order = mesh.order ?? "megatron";
  const spelled = Object.hasOwn(presets, order) ? presets[order as keyof typeof presets] : order;
  const axes = String(spelled).split("-") as Axis[];
  const unknown = axes.filter((axis, i) => !axisNames.includes(axis) || axes.indexOf(axis) !== i);
  if (unknown.length > 0) {
    throw mismatch(
      `The rank order ${JSON.stringify(order)} is not known. Use "megatron", "megatron-pp-dp", "torchtitan", or axes from the fastest to the slowest such as "tp-cp-dp-pp".`,
      { order },
    );
  }
  const left = axisNames.filter((axis) => axis !== "ep" && !axes.includes(axis) && (mesh[axis] ?? 1) !== 1);
  if (left.length > 0) {
    throw mismatch(
      `The rank order ${JSON.stringify(order)} leaves out ${left.map((axis) => `${axis} ${mesh[axis]}`).join(", ")}. Name every axis larger than 1.`,
      { order, left },
    );
  }
  return axes;
}

/** Ranks of the whole job. */
export function worldSize(mesh: Mesh): number {
  return axesOf(mesh).reduce((product, axis) => product * (mesh[axis] ?? 1), 1);
}

/** Refuses sizes that are not whole numbers of at least 1. */
export function assertSizes(mesh: Mesh): void {
  for (const axis of axisNames) {
    const size = mesh[axis] ?? (axis === "dp" ? undefined : 1);
    if (Number.isSafeInteger(size) && (size as number) >= 1) continue;
    throw mismatch(`mesh.${axis} must be a whole number of at least 1, not ${shown(size)}.`, { [axis]: size });
  }
}

/** Refuses wrong sizes, and an `ep` that cannot regroup the ranks. */
export function assertMesh(mesh: Mesh): void {
  assertSizes(mesh);
  const { dp, cp = 1, tp = 1, ep = 1 } = mesh;
  if (!axesOf(mesh).includes("ep") && (dp * cp * tp) % ep !== 0) {
    throw mismatch(
      `ep ${ep} does not divide the ${dp * cp * tp} ranks of dp ${dp}, cp ${cp}, tp ${tp} that experts are spread over; ep can be ${orList(divisors(dp * cp * tp))}.`,
      { mesh },
    );
  }
}

/** Where `rank` sits. */
export function placeRank(mesh: Mesh, rank: number): MeshPlace {
  assertMesh(mesh);
  const axes = axesOf(mesh);
  const size = worldSize(mesh);
  if (!Number.isSafeInteger(rank) || rank < 0 || rank >= size) {
    throw mismatch(
      `Rank ${shown(rank)} is not in a mesh of ${size} ranks (${describeMesh(mesh)}); ranks go from 0 to ${size - 1}.`,
      { rank, worldSize: size },
    );
  }
  const coordinates: Partial<Record<Axis, number>> = {};
  let rest = rank;
  let [d, dataRanks] = [0, 1];
  for (const axis of axes) {
    const length = mesh[axis] ?? 1;
    const at = rest % length;
    coordinates[axis] = at;
    rest = (rest - at) / length;
    if (axis !== "dp" && axis !== "ep") continue;
    d += at * dataRanks;
    dataRanks *= length;
  }
  const { cp = 1 } = mesh;
  return { rank, worldSize: size, dataRanks, d, chunkRanks: cp, c: coordinates.cp ?? 0, coordinates };
}

/** `dp 4, cp 2, tp 2`: the axes larger than 1. */
export function describeMesh(mesh: Mesh): string {
  const axes = axisNames.filter((axis) => axis === "dp" || (mesh[axis] ?? 1) !== 1);
  return axes.map((axis) => `${axis} ${mesh[axis]}`).join(", ");
}

/** The divisors of `n`, ascending. */
export function divisors(n: number): number[] {
  const found: number[] = [];
  for (let i = 1; i * i <= n; i++) {
    if (n % i !== 0) continue;
    found.push(i);
    if (i * i !== n) found.push(n / i);
  }
  return found.sort((a, b) => a - b);
}

/** `1, 2, 4 or 8`. */
export function orList(values: readonly number[]): string {
  return values.length < 2 ? values.join("") : `${values.slice(0, -1).join(", ")} or ${values.at(-1)}`;
}

/** MESH_MISMATCH. */
export function mismatch(message: string, details: Record<string, unknown>): BatchWeaveError {
  return new BatchWeaveError("MESH_MISMATCH", message, details);
}
