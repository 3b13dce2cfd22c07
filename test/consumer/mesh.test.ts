/**
 * Property: a rank's place is the one its framework gives it, every (d, c) is held by exactly the tp and pp peers, and what
 * launchers say is completed or refused with the sizes that would work. Method: tables computed by hand, and random meshes.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type GivenMesh, type Mesh, placeRank, resolveMesh, worldSize } from "../../src/consumer/index.js";
import { isBatchWeaveError } from "../../src/errors.js";

function places(mesh: Mesh): [d: number, c: number][] {
  return Array.from({ length: worldSize(mesh) }, (_, rank) => {
    const { d, c } = placeRank(mesh, rank);
    return [d, c];
  });
}

function failure(call: () => unknown): { code: string; message: string } {
  try {
    call();
  } catch (error) {
    if (isBatchWeaveError(error)) return { code: error.code, message: error.message };
    throw error;
  }
  throw new Error("it did not fail");
}

describe("rank orders, by hand", () => {
  test("megatron: tp, then cp, then dp, then pp", () => {
    const expected = [
      [0, 0],
      [0, 0],
      [0, 1],
      [0, 1],
      [1, 0],
      [1, 0],
      [1, 1],
      [1, 1],
      [0, 0],
      [0, 0],
      [0, 1],
      [0, 1],
      [1, 0],
      [1, 0],
      [1, 1],
      [1, 1],
    ];
    const mesh = { dp: 2, cp: 2, tp: 2, pp: 2 };
    expect(places(mesh)).toEqual(expected);
    expect(places({ ...mesh, order: "megatron" })).toEqual(expected);
    expect(places({ ...mesh, order: "tp-cp-ep-dp-pp" })).toEqual(expected);
    expect(placeRank(mesh, 11).coordinates).toEqual({ tp: 1, cp: 1, dp: 0, pp: 1 });
  });

  test("megatron with pp before dp", () => {
    const mesh = { dp: 2, cp: 1, tp: 2, pp: 2 };
    const expected = [
      [0, 0],
      [0, 0],
      [0, 0],
      [0, 0],
      [1, 0],
      [1, 0],
      [1, 0],
      [1, 0],
    ];
    expect(places({ ...mesh, order: "megatron-pp-dp" })).toEqual(expected);
    expect(places({ ...mesh, order: "tp-cp-ep-pp-dp" })).toEqual(expected);
  });

  test("torchtitan: pp, dp_replicate, dp_shard, cp, tp, the last the fastest", () => {
    // dp_replicate 2 x dp_shard 2, cp 2, tp 1, pp 2: rank = ((pp * 2 + replicate) * 2 + shard) * 2 + cp.
    const mesh = { dp: 4, cp: 2, pp: 2, order: "torchtitan" };
    const expected: [number, number][] = [];
    for (const _pp of [0, 1])
      for (const replicate of [0, 1])
        for (const shard of [0, 1]) for (const c of [0, 1]) expected.push([replicate * 2 + shard, c]);
    expect(places(mesh)).toEqual(expected);
  });

  test("an order of one's own", () => {
    expect(places({ dp: 3, tp: 2, order: "dp-tp" })).toEqual([
      [0, 0],
      [1, 0],
      [2, 0],
      [0, 0],
      [1, 0],
      [2, 0],
    ]);
  });

  test("experts regroup ranks in a preset, and are an axis of data when an order names them", () => {
    expect(places({ dp: 4, ep: 2 })).toEqual([
      [0, 0],
      [1, 0],
      [2, 0],
      [3, 0],
    ]);
    expect(worldSize({ dp: 4, ep: 4, tp: 2 })).toBe(8);
    expect(places({ dp: 2, ep: 2, tp: 2, order: "tp-ep-dp" }).map(([d]) => d)).toEqual([0, 0, 1, 1, 2, 2, 3, 3]);
    expect(placeRank({ dp: 2, ep: 2, order: "ep-dp" }, 0).dataRanks).toBe(4);
  });
});

test("every (d, c) is held by tp x pp ranks, in any order", () => {
  const size = fc.integer({ min: 1, max: 4 });
  const orders = fc.constantFrom(
    "megatron",
    "megatron-pp-dp",
    "torchtitan",
    "pp-dp-cp-tp",
    "cp-pp-tp-dp",
    "dp-cp-tp-pp",
  );
  fc.assert(
    fc.property(size, size, size, size, orders, (dp, cp, tp, pp, order) => {
      const held = new Map<string, number>();
      for (const [d, c] of places({ dp, cp, tp, pp, order })) held.set(`${d},${c}`, (held.get(`${d},${c}`) ?? 0) + 1);
      expect(held.size).toBe(dp * cp);
      expect(new Set(held.values())).toEqual(new Set([tp * pp]));
    }),
  );
});

describe("bad meshes say what works", () => {
  const cases: [string, Mesh, number, RegExp][] = [
    ["rank too high", { dp: 2, tp: 2 }, 4, /Rank 4 is not in a mesh of 4 ranks \(dp 2, tp 2\); ranks go from 0 to 3/],
    ["negative rank", { dp: 2 }, -1, /Rank -1/],
    ["a fraction", { dp: 2 }, 0.5, /Rank 0.5/],
    ["size 0", { dp: 0 }, 0, /mesh\.dp must be a whole number of at least 1, not 0/],
    ["size missing", {} as Mesh, 0, /mesh\.dp must be/],
    ["unknown order", { dp: 2, order: "tp-xp" }, 0, /rank order "tp-xp" is not known/],
    ["an axis twice", { dp: 2, order: "dp-dp" }, 0, /not known/],
    ["an inherited name", { dp: 2, order: "constructor" }, 0, /not known/],
    ["an axis left out", { dp: 2, cp: 2, order: "tp-dp" }, 0, /leaves out cp 2/],
    ["experts that do not divide", { dp: 4, ep: 3 }, 0, /ep can be 1, 2 or 4/],
  ];
  test.each(cases)("%s", (_, mesh, rank, message) => {
    const { code, message: found } = failure(() => placeRank(mesh, rank));
    expect(code).toBe("MESH_MISMATCH");
    expect(found).toMatch(message);
  });
});

describe("what the launcher says", () => {
  const at = (mesh: GivenMesh | undefined, environment: Record<string, string>, rank?: number): string => {
    const { mesh: found, place } = resolveMesh({ mesh, rank }, environment);
    return `dp ${found.dp} rank ${place.rank} d ${place.d} c ${place.c}`;
  };

  test("torchrun, Slurm, Kubernetes, our own; alone in the world", () => {
    expect(at(undefined, {})).toBe("dp 1 rank 0 d 0 c 0");
    expect(at(undefined, { RANK: "3", WORLD_SIZE: "8" })).toBe("dp 8 rank 3 d 3 c 0");
    expect(at({ cp: 2, tp: 2 }, { RANK: "7", WORLD_SIZE: "16" })).toBe("dp 4 rank 7 d 1 c 1");
    expect(at({ pp: 2 }, { SLURM_PROCID: "5", SLURM_NTASKS: "8" })).toBe("dp 4 rank 5 d 1 c 0");
    expect(at({}, { SLURM_PROCID: "0", SLURM_JOB_ID: "7" })).toBe("dp 1 rank 0 d 0 c 0");
    expect(at({ dp: 4 }, { JOB_COMPLETION_INDEX: "2" })).toBe("dp 4 rank 2 d 2 c 0");
    const own = { BATCHWEAVE_CP: "2", BATCHWEAVE_RANK: "1", BATCHWEAVE_WORLD_SIZE: "4" };
    expect(at(undefined, own)).toBe("dp 2 rank 1 d 0 c 1");
    expect(at(undefined, { ...own, RANK: "0", WORLD_SIZE: "64" })).toBe("dp 2 rank 1 d 0 c 1");
    expect(at(undefined, { RANK: "1", WORLD_SIZE: "4", BATCHWEAVE_PP: "2", BATCHWEAVE_ORDER: "pp-dp" })).toBe(
      "dp 2 rank 1 d 0 c 0",
    );
  });

  test("the rank's own launcher counts the ranks: torchrun inside a Slurm job of two nodes", () => {
    const environment = { RANK: "9", WORLD_SIZE: "16", SLURM_PROCID: "1", SLURM_NTASKS: "2" };
    expect(at(undefined, environment)).toBe("dp 16 rank 9 d 9 c 0");
  });

  test("what is given counts, and given whole, nothing has to agree", () => {
    expect(at({ dp: 2 }, { RANK: "7", WORLD_SIZE: "8" }, 1)).toBe("dp 2 rank 1 d 1 c 0");
    expect(at({ dp: 8, cp: undefined }, { RANK: "7", WORLD_SIZE: "8" })).toBe("dp 8 rank 7 d 7 c 0");
  });

  const cases: [string, GivenMesh | undefined, Record<string, string>, string, RegExp][] = [
    ["a world that cp, tp and pp do not divide", { tp: 3 }, { RANK: "0", WORLD_SIZE: "8" }, "MESH_MISMATCH", /6 or 9/],
    ["a world smaller than one dp rank", { tp: 8 }, { RANK: "0", WORLD_SIZE: "4" }, "MESH_MISMATCH", /8 or 16/],
    ["another world", { dp: 4 }, { RANK: "0", WORLD_SIZE: "8" }, "MESH_MISMATCH", /WORLD_SIZE is 8; for that dp 8/],
    ["no rank", { dp: 4 }, {}, "MESH_MISMATCH", /nothing says which one this is/],
    ["a rank beyond", { dp: 4 }, { JOB_COMPLETION_INDEX: "4" }, "MESH_MISMATCH", /ranks go from 0 to 3/],
    ["words", undefined, { RANK: "first", WORLD_SIZE: "8" }, "INVALID_ARGUMENT", /RANK is "first"/],
    ["size 0", { cp: 0 }, { RANK: "0", WORLD_SIZE: "8" }, "MESH_MISMATCH", /mesh\.cp/],
  ];
  test.each(cases)("%s is refused", (_, mesh, environment, code, message) => {
    const found = failure(() => resolveMesh({ mesh }, environment));
    expect(found.code).toBe(code);
    expect(found.message).toMatch(message);
  });
});
