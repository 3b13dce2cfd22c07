/** Whether a process of this machine lives. Only for people: a number may have been given to another process meanwhile. */
import { readFileSync, readlinkSync } from "node:fs";

let known: { readonly id: string | undefined } | undefined;

/** This boot of this machine, and the process numbers that are seen in it: containers have their own. Undefined where that cannot be told. */
export function machineId(): string | undefined {
  known ??= { id: read() };
  return known.id;
}

function read(): string | undefined {
  try {
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const [inode] = /\d+/.exec(readlinkSync("/proc/self/ns/pid")) ?? [];
    return /^[0-9a-f-]{36}$/.test(boot) && inode !== undefined ? `${boot}.${inode}` : undefined;
  } catch {
    // Not Linux, or a sandbox that does not tell.
    return undefined;
  }
}

/** True: it was a process of this machine, and there is none of its number any more. */
export function isDeadHere(machine: string | undefined, pid: number | undefined): boolean {
  if (machine === undefined || pid === undefined || pid < 2 || pid > 0x7fff_ffff || machine !== machineId())
    return false;
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ESRCH";
  }
}
