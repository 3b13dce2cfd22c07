/** Mesh and rank as the launcher of the job says them: torchrun, Slurm, Kubernetes indexed jobs, or our own variables. */
import { BatchWeaveError } from "../errors.js";
import {
  assertMesh,
  assertSizes,
  describeMesh,
  type Mesh,
  type MeshPlace,
  mismatch,
  orList,
  placeRank,
  worldSize,
} from "./mesh.js";

/** Sizes that were said; the others are filled in. */
export type GivenMesh = { readonly [K in keyof Mesh]?: Mesh[K] | undefined };

/** What the user said; everything may be left to the environment. */
export interface MeshOptions {
  readonly mesh?: GivenMesh | undefined;
  readonly rank?: number | undefined;
}

/** Variables of a process. Passed in, never read from the process here. */
export type JobEnvironment = Readonly<Record<string, string | undefined>>;

/** A mesh that is complete, and this rank's place in it. */
interface ResolvedMesh {
  readonly mesh: Mesh;
  readonly place: MeshPlace;
}

/**
 * Where a rank can come from, the surest first, each with the variable that counts the ranks. MPI goes before Slurm, of whose variables mpirun's
 * processes have those of the one task that started them.
 */
const rankSources = [
  ["BATCHWEAVE_RANK", "BATCHWEAVE_WORLD_SIZE"],
  ["RANK", "WORLD_SIZE"],
  ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
  ["PMI_RANK", "PMI_SIZE"],
  ["SLURM_PROCID", "SLURM_NTASKS"],
  ["JOB_COMPLETION_INDEX", undefined],
] as const;

/**
 * Completes mesh and rank: what is given counts, then `BATCHWEAVE_DP/CP/TP/PP/EP/ORDER` and `BATCHWEAVE_RANK`, then the launcher's
 * variables. `dp` defaults to what is left of the world; alone in the world it is 1. A rank or a world size that was not
 * given must agree with the mesh: two ranks reading the same rows by mistake would go unnoticed.
 */
export function resolveMesh(options: MeshOptions, environment: JobEnvironment): ResolvedMesh {
  const given: GivenMesh = { ...sizesFrom(environment), ...present(options.mesh ?? {}) };
  const found = options.rank === undefined ? launchedRank(environment) : undefined;
  if (found?.worldVariable === "SLURM_NTASKS") assertTask(environment);
  const launched = launchedWorld(environment, found?.worldVariable);
  const mesh: Mesh = { ...given, dp: given.dp ?? dpFrom(given, launched) };
  assertMesh(mesh);
  const size = worldSize(mesh);
  // Given both, nothing is taken from the launcher, so nothing has to agree with it.
  const isExplicit = options.rank !== undefined && given.dp !== undefined;
  if (!isExplicit && launched && launched.size !== size) throw worldMismatch(mesh, size, launched);
  const rank = options.rank ?? found?.rank ?? (size === 1 ? 0 : undefined);
  if (rank === undefined) {
    throw mismatch(
      `The mesh has ${size} ranks (${describeMesh(mesh)}) and nothing says which one this is. Pass rank, or set RANK (BATCHWEAVE_RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID, JOB_COMPLETION_INDEX).`,
      { worldSize: size },
    );
  }
  return { mesh, place: placeRank(mesh, rank) };
}

/** The fields that are set: an undefined one must not hide what the environment says. */
function present<T extends object>(fields: T): T {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T;
}

function sizesFrom(environment: JobEnvironment): GivenMesh {
  return present({
    dp: integer(environment, "BATCHWEAVE_DP"),
    cp: integer(environment, "BATCHWEAVE_CP"),
    tp: integer(environment, "BATCHWEAVE_TP"),
    pp: integer(environment, "BATCHWEAVE_PP"),
    ep: integer(environment, "BATCHWEAVE_EP"),
    order: environment["BATCHWEAVE_ORDER"] || undefined,
  });
}

/** The script of a Slurm job has the number of its tasks, and is none of them: as rank 0 it would read a part, and no process the rest. */
function assertTask(environment: JobEnvironment): void {
  const tasks = integer(environment, "SLURM_NTASKS") ?? 1;
  if (tasks < 2 || !environment["SLURM_JOB_ID"] || environment["SLURM_STEP_ID"]) return;
  throw mismatch(
    `This process is in a Slurm job of ${tasks} tasks, and srun did not start it (there is no SLURM_STEP_ID): it would read the rows of rank 0 only. Start it with srun or torchrun, or give mesh and rank (dp 1 and rank 0 read everything).`,
    { tasks },
  );
}

function launchedRank(environment: JobEnvironment): { rank: number; worldVariable: string | undefined } | undefined {
  for (const [variable, worldVariable] of rankSources) {
    const rank = integer(environment, variable);
    if (rank !== undefined) return { rank, worldVariable };
  }
  return undefined;
}

/** The world size, from the launcher that gave the rank if it did, else from the first that knows. */
function launchedWorld(
  environment: JobEnvironment,
  worldVariable: string | undefined,
): { size: number; variable: string } | undefined {
  const all = rankSources.map(([, variable]) => variable);
  for (const variable of ["BATCHWEAVE_WORLD_SIZE", worldVariable, ...all]) {
    const size = variable === undefined ? undefined : integer(environment, variable);
    if (size !== undefined && variable !== undefined) return { size, variable };
  }
  return undefined;
}

function dpFrom(given: GivenMesh, launched: { size: number; variable: string } | undefined): number {
  if (!launched) return 1;
  assertSizes({ ...given, dp: 1 });
  const rest = worldSize({ ...given, dp: 1 });
  if (launched.size >= 1 && launched.size % rest === 0) return launched.size / rest;
  const near = Math.max(1, Math.floor(launched.size / rest)) * rest;
  throw mismatch(
    `${launched.variable} is ${launched.size}, which is no multiple of the ${rest} ranks that one dp rank takes (${describeMesh({ ...given, dp: 1 })}). A world of ${orList([near, near + rest])} works, or other sizes of cp, tp and pp.`,
    { worldSize: launched.size, ranksPerDp: rest },
  );
}

function worldMismatch(mesh: Mesh, size: number, launched: { size: number; variable: string }): BatchWeaveError {
  const rest = size / mesh.dp;
  const fits = launched.size % rest === 0 ? `dp ${launched.size / rest} works` : `no dp works with these cp, tp and pp`;
  return mismatch(
    `The mesh has ${size} ranks (${describeMesh(mesh)}), but ${launched.variable} is ${launched.size}; for that ${fits}.`,
    { worldSize: size, launched: launched.size },
  );
}

function integer(environment: JobEnvironment, variable: string): number | undefined {
  const text = environment[variable];
  if (text === undefined || text === "") return undefined;
  if (/^\d{1,9}$/.test(text)) return Number(text);
  throw new BatchWeaveError("INVALID_ARGUMENT", `${variable} is ${JSON.stringify(text)}; it must be a whole number.`, {
    variable,
    value: text,
  });
}
