/** A fleet on Ray: a Python driver whose actors supervise the processes (python/batchweave/ray/fleet.py). */
import type { Env } from "../../index.js";
import { type LocalEvents, type LocalOutcome, runLocalFleet } from "./local.js";
import type { Fleet } from "./role.js";

/** Runs a fleet until it has ended. `advice`: the command that tells the driver how many processes there should be. The driver is a process like any other: when it fails it is started again, and the log goes on. */
export async function runRayFleet(
  fleet: Fleet,
  address: string | undefined,
  env: Env,
  signal: AbortSignal,
  events: LocalEvents,
  advice?: readonly string[] | undefined,
): Promise<LocalOutcome> {
  const python = process.env["BATCHWEAVE_PYTHON"] ?? "python3";
  const spec = JSON.stringify({ ...fleet, advice, address: address ?? process.env["RAY_ADDRESS"] ?? "auto" });
  const driver = {
    name: "ray",
    processes: 1,
    command: [python, "-m", "batchweave.cli.ray_fleet", spec],
    cores: 1,
    memoryBytes: 0,
  };
  const outcome = await runLocalFleet({ name: fleet.name, roles: [driver] }, env, signal, events);
  const isDone = outcome.status === 0 && (outcome.ended["ray"] ?? 0) > 0;
  const ended = Object.fromEntries(fleet.roles.map(({ name, processes }) => [name, isDone ? processes : 0]));
  return { ...outcome, ended };
}
