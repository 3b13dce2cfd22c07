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
/** A process that has not ended by then is killed: this command itself ends within two seconds of a signal, and leaves no process behind. */
const graceMs = 1_400;
/** Input or configuration is at fault (docs/errors.md): starting it again would only say so again. */
const hopelessStatus = 2;

/** What Python says of a module that it does not have, where that is ours. */
const noPackage = /\bNo module named '?batchweave\b/;

/** A Python without our package, and what to do. */
export function missingPackage(python: string): string {
  return `${python} has no package batchweave, or an old one. Install it there (${python} -m pip install batchweave), or name another Python with --python (on Ray also BATCHWEAVE_PYTHON).`;
}

/** Processes that each role should have, by its name. A role that is not named keeps what it has. */
export type Targets = AsyncIterable<Readonly<Record<string, number | undefined>>>;

/** Runs a fleet until all of its processes have ended, one of them cannot be helped, or the signal aborts. `targets`: how many there should be from now on. */
export async function runLocalFleet(
  { roles }: Fleet,
  env: Env,
  signal: AbortSignal,
  events: LocalEvents = {},
  targets?: Targets | undefined,
): Promise<LocalOutcome> {
  const failed = new AbortController();
  const stop = AbortSignal.any([signal, failed.signal]);
  const ended: Record<string, number> = Object.fromEntries(roles.map(({ name }) => [name, 0]));
  const held = new Map(roles.map(({ name }) => [name, new Map<number, AbortController>()]));
  let [restarts, status, active] = [0, 0, 0];
  const { promise: over, resolve: settle } = deferred();
  const supervise = async (role: Role, i: number, own: AbortSignal): Promise<void> => {
    const name = `${role.name}-${i}`;
    for (let failures = 0; !own.aborted; ) {
      const begun = env.monotonic();
      const end = await runProcess(name, role, i, own, env, events);
      if (own.aborted) return;
      if (end.code === 0) {
        ended[role.name] = (ended[role.name] ?? 0) + 1;
        return;
      }
      if (end.code === hopelessStatus || end.missing !== undefined) {
        if (end.missing !== undefined) events.onLine?.(name, `error[MISSING_PACKAGE]: ${end.missing}`);
        status ||= hopelessStatus;
        failed.abort();
        return;
      }
      failures = env.monotonic() - begun > wellMs ? 1 : failures + 1;
      const delayMs = Math.min(delayMsMax, delayMsMin * 2 ** (failures - 1)) * (0.5 + env.random());
      restarts++;
      events.onRestart?.(name, end.why, delayMs);
      await env.sleep(delayMs, own).catch(() => {});
    }
  };
  const scale = (role: Role, count: number): void => {
    const own = held.get(role.name) as Map<number, AbortController>;
    // One that ended with status 0 says that there is nothing left to do for its role.
    if (stop.aborted || (ended[role.name] ?? 0) > 0) return;
    for (let i = 0; own.size < count; i++) {
      if (own.has(i)) continue;
      const controller = new AbortController();
      own.set(i, controller);
      active++;
      void supervise(role, i, AbortSignal.any([stop, controller.signal])).finally(() => {
        if (own.get(i) === controller) own.delete(i);
        if (--active === 0) settle();
      });
    }
    for (const i of [...own.keys()].sort((x, y) => y - x).slice(0, Math.max(0, own.size - Math.max(1, count)))) {
      own.get(i)?.abort();
      own.delete(i);
    }
  };
  const follow = async (): Promise<void> => {
    for await (const target of targets ?? [])
      for (const role of roles) scale(role, target[role.name] ?? (held.get(role.name)?.size as number));
  };
  for (const role of roles) scale(role, role.processes);
  void follow().catch(() => {});
  await over;
  return { status, restarts, ended };
}

function deferred(): { readonly promise: Promise<void>; resolve(): void } {
  let resolve = (): void => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve: () => resolve() };
}

interface ProcessEnd {
  readonly code: number | null;
  readonly why: string;
  /** What it would need to run at all. */
  readonly missing?: string | undefined;
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
  let missing: string | undefined;
  for (const stream of [child.stdout, child.stderr])
    createInterface({ input: stream }).on("line", (line) => {
      // Python itself says so, with the status of any failure.
      if (stream === child.stderr && noPackage.test(line)) missing = missingPackage(program);
      onLine?.(name, line);
    });
  return await new Promise<ProcessEnd>((resolve) => {
    const finish = (end: ProcessEnd): void => {
      over.abort();
      stop.removeEventListener("abort", onStop);
      resolve(end);
    };
    child.once("error", (error) =>
      finish({ code: null, why: `${program}: ${error.message}`, missing: `There is no program ${program} here.` }),
    );
    child.once("close", (code, killed) =>
      finish({ code, why: killed ? `killed by ${killed}` : `status ${code}`, missing }),
    );
  });
}
