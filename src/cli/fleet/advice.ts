/** What the autoscaler says, as numbers of processes by role. It is a process of its own: it may die, and is started again. */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Env } from "../../index.js";
import type { Targets } from "./local.js";

const againMs = 15_000;

/** Follows `fleet advice --watch` until the signal aborts. */
export async function* followAdvice(pipeline: string, plan: string, env: Env, signal: AbortSignal): Targets {
  const main = fileURLToPath(new URL("../main.js", import.meta.url));
  while (!signal.aborted) {
    const args = [main, "fleet", "advice", pipeline, "--plan", plan, "--watch", "--json"];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "ignore"], signal });
    child.on("error", () => {});
    try {
      for await (const line of createInterface({ input: child.stdout })) {
        const { loaders, constructors } = JSON.parse(line) as { loaders?: number; constructors?: number };
        yield { load: loaders, run: loaders, construct: constructors };
      }
    } finally {
      child.kill();
    }
    await env.sleep(againMs, signal).catch(() => {});
  }
}
