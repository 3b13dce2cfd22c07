/** A fleet on Slurm: a batch script with an array for each role. */
import { missingPackage } from "./local.js";
import type { Fleet, Role } from "./role.js";

/** How the scripts are made. */
export interface SlurmSettings {
  readonly partition?: string | undefined;
  readonly account?: string | undefined;
  /** As sbatch takes it: `1-00:00:00`. */
  readonly time?: string | undefined;
}

/** A script for sbatch. */
interface SlurmScript {
  readonly role: string;
  readonly text: string;
}

/** Input or configuration is at fault (docs/errors.md). */
const hopelessStatus = 2;

/** Text as one word of a shell. */
function quoted(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/**
 * One script a role. Slurm starts a task again when its node failed (`--requeue`); a process that failed is started again by the script. Tasks are equal:
 * the array's index only gives them names.
 */
export function slurmScripts({ name, roles }: Fleet, settings: SlurmSettings): SlurmScript[] {
  return roles.map((role) => ({ role: role.name, text: slurmScript(name, role, settings) }));
}

/** The name of a role's jobs. */
export function slurmJob(fleet: string, role: string): string {
  return `batchweave-${fleet}-${role}`;
}

/** `first`: the number of the first task, where others of the role are there. */
export function slurmScript(
  fleet: string,
  { name, processes, command, cores, memoryBytes }: Role,
  settings: SlurmSettings,
  first = 0,
): string {
  const options = {
    "job-name": slurmJob(fleet, name),
    array: `${first}-${first + processes - 1}`,
    "cpus-per-task": cores,
    mem: `${Math.ceil(memoryBytes / 2 ** 20)}M`,
    partition: settings.partition,
    account: settings.account,
    time: settings.time,
    output: `batchweave-${fleet}-${name}-%a.log`,
    "open-mode": "append",
    // The command is told two seconds' worth before it is killed.
    signal: "B:TERM@10",
  };
  const header = Object.entries(options)
    .filter(([, value]) => value !== undefined)
    .map(([option, value]) => `#SBATCH --${option}=${value}`);
  const at = command.indexOf("-m");
  const python = command.slice(0, Math.max(0, at)).map(quoted).join(" ");
  const missing = quoted(`error[MISSING_PACKAGE]: ${missingPackage(python)}`);
  // Python itself would end with the status of any failure, and be started for ever.
  const check =
    at > 0 && command[at + 1] === "batchweave"
      ? `${python} -c 'import batchweave' || { echo ${missing} >&2; exit ${hopelessStatus}; }\n`
      : "";
  return `#!/bin/bash
${header.join("\n")}
#SBATCH --requeue
# Written by batchweave fleet render. Processes are equal: any of them may be cancelled, and the log goes on.
${check}delay=1
stop() { trap - TERM; [ -n "$child" ] && kill -TERM "$child"; wait "$child"; exit 143; }
trap stop TERM
while :; do
  ${command.map(quoted).join(" ")} &
  child=$!
  wait "$child"
  status=$?
  [ "$status" -eq 0 ] && exit 0
  # Input or configuration is at fault: starting it again would only say so again.
  [ "$status" -eq ${hopelessStatus} ] && exit ${hopelessStatus}
  echo "ended with status $status; again in $delay s" >&2
  sleep "$delay" & wait $!
  delay=$(( delay < 60 ? delay * 2 : 60 ))
done
`;
}
