/** What the autoscaler says, as numbers of processes by role. It is a process of its own: it may die, and is started again. */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Env } from "../../index.js";
import type { FleetAdvice } from "../../plan/index.js";
import type { Targets } from "./local.js";
import { loadRole } from "./role.js";

const againMs = 15_000;

/** The command that says how many there should be, again and again, until the training log is complete. */
export function adviceCommand(pipeline: string, plan: string, seconds: number | undefined): string[] {
  const main = fileURLToPath(new URL("../main.js", import.meta.url));
  const interval = seconds === undefined ? [] : ["--interval", String(seconds)];
  return [process.execPath, main, "fleet", "advice", pipeline, "--plan", plan, "--watch", "--json", ...interval];
}

/** Follows it until the training log is complete, or the signal aborts. */
export async function* followAdvice(command: readonly string[], env: Env, signal: AbortSignal): Targets {
  const [program = "", ...args] = command;
  while (!signal.aborted) {
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "ignore"], signal });
    child.on("error", () => {});
    const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
    try {
      for await (const line of createInterface({ input: child.stdout })) yield targetsOf(line);
    } finally {
      child.kill();
    }
    if ((await ended) === 0) return;
    // The training log may not be there yet.
    await env.sleep(againMs, signal).catch(() => {});
  }
}

/** Processes by role, of a line of advice. */
function targetsOf(line: string): Readonly<Record<string, number | undefined>> {
  const { loaders, constructors, own } = JSON.parse(line) as Partial<FleetAdvice>;
  const python = Object.entries(own ?? {}).map(([source, count]) => [loadRole(source), count]);
  return { load: loaders, run: loaders, construct: constructors, ...Object.fromEntries(python) };
}
