/** Tasks of a fleet that Slurm has: counted by the names of their jobs, so the scaler needs no memory. */

import { askProgram } from "./program.js";
import type { Role } from "./role.js";
import { type SlurmSettings, slurmJob, slurmScript } from "./slurm.js";

interface Task {
  /** As scancel takes it: `<job>_<index>`. */
  readonly id: string;
  readonly index: number;
  readonly isRunning: boolean;
}

/** The tasks of one role that run or wait. */
async function tasksOf(job: string, signal: AbortSignal): Promise<Task[]> {
  // One line a task, also of those that wait.
  const said = await askProgram("squeue", ["--me", "-h", "-r", "-n", job, "-o", "%A %F %K %T"], "", signal);
  return said.split("\n").flatMap((line): Task[] => {
    const [id, array, index, state] = line.trim().split(/\s+/);
    if (!id || state === undefined || state === "COMPLETING") return [];
    return [{ id: `${array}_${index}`, index: Number(index) || 0, isRunning: state === "RUNNING" }];
  });
}

/** Makes a role have as many tasks as it says: submits what is missing, cancels what is too much. Gives how many it had, and the job submitted. */
export async function fillRole(
  fleet: string,
  role: Role,
  settings: SlurmSettings,
  signal: AbortSignal,
): Promise<{ readonly had: number; readonly job?: string | undefined }> {
  const tasks = await tasksOf(slurmJob(fleet, role.name), signal);
  const missing = role.processes - tasks.length;
  if (missing > 0) {
    const first = tasks.reduce((next, { index }) => Math.max(next, index + 1), 0);
    const text = slurmScript(fleet, { ...role, processes: missing }, settings, first);
    const said = await askProgram("sbatch", ["--parsable"], text, signal);
    return { had: tasks.length, job: said.trim().split(";")[0] };
  }
  // Those that wait first, then the newest.
  const order = [...tasks].sort((a, b) => Number(a.isRunning) - Number(b.isRunning) || b.index - a.index);
  const spare = order.slice(0, -missing).map(({ id }) => id);
  if (missing < 0) await askProgram("scancel", spare, "", signal);
  return { had: tasks.length };
}

/** How many tasks a role has. */
export async function countTasks(fleet: string, role: string, signal: AbortSignal): Promise<number> {
  return (await tasksOf(slurmJob(fleet, role), signal)).length;
}
