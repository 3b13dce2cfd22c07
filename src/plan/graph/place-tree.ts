/**
 * ClientPlaceTree: who reads what. The ranks of a training job as a tree, world -> dp -> cp -> pp -> tp, so that "the nodes at an axis" are
 * the consumers among which samples are divided, and "the ranks that fetch" are the leaves that a broadcast does not serve. Pure.
 */
import { BatchWeaveError, type Mesh, placeRank, worldSize } from "../../index.js";

/** Axes of the tree from the root down. Ranks that differ only in `pp` or `tp` read the same samples. */
const levels = ["dp", "cp", "pp", "tp"] as const;

/** A level of the tree: `world` is every rank. */
export type PlaceAxis = "dp" | "cp" | "world";

/** A dimension along which the trainer broadcasts what one rank has read. */
export type BroadcastDim = "cp" | "pp" | "tp";

/** One node: its place on each axis above it, and the ranks below it in ascending order. */
interface PlaceNode {
  readonly name: string;
  readonly ranks: readonly number[];
  readonly children: readonly PlaceNode[];
}

/** A logical view of the trainer's mesh. */
export class ClientPlaceTree {
  readonly mesh: Mesh;
  readonly root: PlaceNode;
  readonly #axes: ReadonlyMap<string, readonly PlaceNode[]>;

  /** From a mesh, or with `root` built otherwise: a tree whose depth-1 nodes are the dp consumers and depth-2 nodes the cp ones. */
  constructor(mesh: Mesh, root?: PlaceNode | undefined) {
    this.mesh = mesh;
    this.root = root ?? treeOf(mesh);
    const dp = this.root.children;
    const cp = dp.flatMap((node) => node.children);
    const world = this.root.ranks.map((rank) => ({ name: `rank ${rank}`, ranks: [rank], children: [] }));
    this.#axes = new Map<string, readonly PlaceNode[]>([
      ["dp", dp],
      ["cp", cp.length > 0 ? cp : dp],
      ["world", world],
    ]);
    const seen = new Set(dp.flatMap((node) => node.ranks));
    if (seen.size !== this.root.ranks.length || this.root.ranks.some((rank) => !seen.has(rank))) {
      throw new BatchWeaveError(
        "MESH_MISMATCH",
        `The place tree has ${this.root.ranks.length} ranks at its root and ${seen.size} below its dp nodes. Every rank must be in exactly one.`,
        { root: this.root.ranks.length, below: seen.size },
      );
    }
  }

  /** Every rank of the job. */
  get worldSize(): number {
    return this.root.ranks.length;
  }

  /** The consumers at an axis: `dp` groups, `dp x cp` groups, or every rank. */
  nodesAt(axis: PlaceAxis): readonly PlaceNode[] {
    return this.#axes.get(axis) as readonly PlaceNode[];
  }

  /** Ranks of `node` that read for themselves when the trainer broadcasts along `dims`: those at place 0 of each. */
  fetchers(node: PlaceNode, dims: readonly BroadcastDim[]): number[] {
    if (dims.length === 0) return [...node.ranks];
    return node.ranks.filter((rank) => {
      const { coordinates } = placeRank(this.mesh, rank);
      return dims.every((dim) => (coordinates[dim] ?? 0) === 0);
    });
  }

  /** The same mesh with the tree rebuilt by `change`, for placements of your own. */
  override(change: (root: PlaceNode) => PlaceNode): ClientPlaceTree {
    return new ClientPlaceTree(this.mesh, change(this.root));
  }
}

function treeOf(mesh: Mesh): PlaceNode {
  const all = Array.from({ length: worldSize(mesh) }, (_, rank) => placeRank(mesh, rank));
  const at = (rank: (typeof all)[number], axis: (typeof levels)[number]): number =>
    // A mesh with ep as an axis of its own divides rows further: then d counts both.
    axis === "dp" ? rank.d : (rank.coordinates[axis] ?? 0);
  const build = (name: string, members: readonly (typeof all)[number][], depth: number): PlaceNode => {
    const ranks = members.map((m) => m.rank);
    const axis = levels[depth];
    if (axis === undefined || members.length === 1) return { name, ranks, children: leafChain(name, ranks, depth) };
    const groups = new Map<number, (typeof all)[number][]>();
    for (const member of members) {
      const place = at(member, axis);
      const group = groups.get(place);
      if (group) group.push(member);
      else groups.set(place, [member]);
    }
    const children = [...groups]
      .sort(([a], [b]) => a - b)
      .map(([i, group]) => build(`${name === "world" ? "" : `${name} `}${axis}${i}`, group, depth + 1));
    return { name, ranks, children };
  };
  return build("world", all, 0);
}

/** A single rank still has a node at each level that consumers are counted on. */
function leafChain(name: string, ranks: readonly number[], depth: number): PlaceNode[] {
  if (depth >= 2) return [];
  const child = `${name === "world" ? "" : `${name} `}${levels[depth]}0`;
  return [{ name: child, ranks, children: leafChain(child, ranks, depth + 1) }];
}
