/** A fleet on this machine: processes that are started again when they fail, and end together. */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import type { Env } from "../../index.js";
import type { Fleet, Role } from "./role.js";

/** How a fleet ended. */
export interface LocalOutcome {
  /** The exit status of the fleet: 0, or that of a process which can never do better. */
  readonly status: number;
  readonly restarts: number;
  /** Processes by role that ended with status 0. */
  readonly ended: Readonly<Record<string, number>>;
}

/** What is told about the processes. */
export interface LocalEvents {
  onLine?(process: string, line: string): void;
  onRestart?(process: string, why: string, delayMs: number): void;
}

const delayMsMin = 1_000;
const delayMsMax = 60_000;
/** A process that ran so long was well: its next failure is its first. */
const wellMs = 60_000;
/** Commands end within two seconds of a signal; one that does not is killed. */
const graceMs = 5_000;
/** Input or configuration is at fault (docs/errors.md): starting it again would only say so again. */
const hopelessStatus = 2;

/** Runs a fleet until all of its processes have ended, one of them cannot be helped, or the signal aborts. */
export async function runLocalFleet(
  { roles }: Fleet,
  env: Env,
  signal: AbortSignal,
  events: LocalEvents = {},
): Promise<LocalOutcome> {
  const failed = new AbortController();
  const stop = AbortSignal.any([signal, failed.signal]);
  const ended: Record<string, number> = Object.fromEntries(roles.map(({ name }) => [name, 0]));
  let [restarts, status] = [0, 0];
  const supervise = async (role: Role, i: number): Promise<void> => {
    const name = `${role.name}-${i}`;
    for (let failures = 0; !stop.aborted; ) {
      const begun = env.monotonic();
      const end = await runProcess(name, role, i, stop, env, events);
      if (stop.aborted) return;
      if (end.code === 0) {
        ended[role.name] = (ended[role.name] ?? 0) + 1;
        return;
      }
      if (end.code === hopelessStatus || end.isMissing) {
        status ||= hopelessStatus;
        failed.abort();
        return;
      }
      failures = env.monotonic() - begun > wellMs ? 1 : failures + 1;
      const delayMs = Math.min(delayMsMax, delayMsMin * 2 ** (failures - 1)) * (0.5 + env.random());
      restarts++;
      events.onRestart?.(name, end.why, delayMs);
      await env.sleep(delayMs, stop).catch(() => {});
    }
  };
  await Promise.all(roles.flatMap((role) => Array.from({ length: role.processes }, (_, i) => supervise(role, i))));
  return { status, restarts, ended };
}

interface ProcessEnd {
  readonly code: number | null;
  readonly why: string;
  readonly isMissing: boolean;
}

async function runProcess(
  name: string,
  { command, processes }: Role,
  index: number,
  stop: AbortSignal,
  env: Env,
  { onLine }: LocalEvents,
): Promise<ProcessEnd> {
  const [program = "", ...args] = command;
  const child = spawn(program, args, {
    stdio: ["ignore", "pipe", "pipe"],
    // Where an index is useful, roles find it as engines give it; none needs one.
    env: { ...process.env, JOB_COMPLETION_INDEX: String(index), BATCHWEAVE_PROCESSES: String(processes) },
  });
  const over = new AbortController();
  const onStop = (): void => {
    child.kill("SIGTERM");
    env.sleep(graceMs, over.signal).then(
      () => child.kill("SIGKILL"),
      () => {},
    );
  };
  if (stop.aborted) onStop();
  else stop.addEventListener("abort", onStop, { once: true });
  for (const stream of [child.stdout, child.stderr])
    createInterface({ input: stream }).on("line", (line) => onLine?.(name, line));
  return await new Promise<ProcessEnd>((resolve) => {
    const finish = (end: ProcessEnd): void => {
      over.abort();
      stop.removeEventListener("abort", onStop);
      resolve(end);
    };
    child.once("error", (error) => finish({ code: null, why: `${program}: ${error.message}`, isMissing: true }));
    child.once("close", (code, killed) =>
      finish({ code, why: killed ? `killed by ${killed}` : `status ${code}`, isMissing: false }),
    );
  });
}
