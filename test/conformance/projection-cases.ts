/** Cases of the one formula: meshes, ranks, policies, layouts, schedules; and of completing a mesh from a launcher's variables. */
import type { ConformanceCase } from "./case-runner.js";

/** xorshift32, so that the cases are the same every time. */
function randomOf(seed: number): (n: number) => number {
  let state = seed;
  return (n) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % n;
  };
}

function formulaCases(): ConformanceCase[] {
  const random = randomOf(20_250_101);
  const pick = <T>(list: readonly T[]): T => list[random(list.length)] as T;
  const schedules = [
    1,
    1,
    2,
    3,
    [
      [0, 1],
      [4, 2],
      [9, 5],
    ],
    0,
    [],
    [[1, 1]],
  ];
  return Array.from({ length: 160 }, (_, i) => {
    const mesh = {
      dp: 1 + random(6),
      cp: pick([1, 1, 2, 4]),
      tp: pick([1, 1, 2]),
      pp: pick([1, 1, 3]),
      order: pick(["megatron", "megatron-pp-dp", "torchtitan", "dp-cp-tp-pp", "tp-cp-ep-dp-pp"]),
    };
    const policy = pick(["per-rank", "per-rank", "global-batch"]);
    const rows = pick([1, 2, 4, 6, 12]);
    return {
      name: `formula ${i}`,
      op: "project",
      grid: { rows, chunks: pick([1, 2, 4, 8, 16]) },
      mesh,
      rank: random(mesh.dp * mesh.cp * mesh.tp * mesh.pp),
      policy,
      layout: pick(["contiguous", "zigzag"]),
      rowsPerRank: policy === "global-batch" && random(8) > 0 ? 1 : pick(schedules),
      row: policy === "global-batch" && random(8) > 0 ? rows * random(1_000) : random(5_000),
      iteration: random(12),
    };
  });
}

function meshCases(): ConformanceCase[] {
  const none = {};
  const list: [name: string, mesh: unknown, rank: number | null, environment: Record<string, string>][] = [
    ["alone", null, null, none],
    ["torchrun", null, null, { RANK: "5", WORLD_SIZE: "8" }],
    ["torchrun with tp and pp", { tp: 2, pp: 2 }, null, { RANK: "5", WORLD_SIZE: "8" }],
    ["pp fastest but tp", { dp: 2, pp: 2, order: "megatron-pp-dp" }, 2, none],
    [
      "own variables before the launcher's",
      null,
      null,
      { BATCHWEAVE_RANK: "1", BATCHWEAVE_DP: "2", RANK: "7", WORLD_SIZE: "2" },
    ],
    ["arguments before variables", { dp: 4 }, 3, { RANK: "0", WORLD_SIZE: "2" }],
    ["Slurm", { cp: 2 }, null, { SLURM_PROCID: "3", SLURM_NTASKS: "4" }],
    ["srun", null, null, { SLURM_JOB_ID: "7", SLURM_STEP_ID: "0", SLURM_PROCID: "3", SLURM_NTASKS: "4" }],
    ["a Slurm job without srun", null, null, { SLURM_JOB_ID: "7", SLURM_PROCID: "0", SLURM_NTASKS: "4" }],
    [
      "mpirun in a Slurm job",
      null,
      null,
      {
        SLURM_JOB_ID: "7",
        SLURM_STEP_ID: "0",
        SLURM_PROCID: "1",
        SLURM_NTASKS: "2",
        OMPI_COMM_WORLD_RANK: "13",
        OMPI_COMM_WORLD_SIZE: "16",
      },
    ],
    ["Kubernetes", { dp: 3 }, null, { JOB_COMPLETION_INDEX: "2" }],
    ["Open MPI", {}, null, { OMPI_COMM_WORLD_RANK: "2", OMPI_COMM_WORLD_SIZE: "3" }],
    ["MPICH", {}, null, { PMI_RANK: "2", PMI_SIZE: "3" }],
    ["own order", { dp: 2, cp: 2, order: "dp-cp" }, 1, none],
    ["ep as an axis", { dp: 2, ep: 2, order: "dp-ep" }, 3, none],
    ["ep regroups", { dp: 4, ep: 2 }, 3, none],
    ["ep does not divide", { dp: 3, ep: 2 }, 0, none],
    ["no rank", { dp: 4 }, null, none],
    ["a rank outside", { dp: 4 }, 4, none],
    ["a world that does not fit", { dp: 3 }, null, { RANK: "0", WORLD_SIZE: "4" }],
    ["a world that is no multiple", { tp: 3 }, null, { RANK: "0", WORLD_SIZE: "4" }],
    ["an unknown order", { dp: 2, order: "upside-down" }, 0, none],
    ["an order that leaves out", { dp: 2, tp: 2, order: "dp-cp" }, 0, none],
    ["an axis twice", { dp: 2, order: "dp-dp" }, 0, none],
    ["a size of zero", { dp: 0 }, 0, none],
    ["a size that is a fraction", { dp: 1.5 }, 0, none],
    ["a variable that is no number", null, null, { RANK: "first", WORLD_SIZE: "2" }],
    ["an empty variable", null, null, { RANK: "", WORLD_SIZE: "" }],
  ];
  return list.map(([name, mesh, rank, environment]) => ({
    name: `mesh: ${name}`,
    op: "resolve",
    mesh,
    rank,
    environment,
  }));
}

/** All of them. */
export function projectionCases(): ConformanceCase[] {
  return [...formulaCases(), ...meshCases()];
}
