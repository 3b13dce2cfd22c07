/** Starts file-worker.ts as real processes. Node 20 cannot run TypeScript, so it is bundled first. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface, type Interface } from "node:readline";
import { fileURLToPath } from "node:url";
import { build } from "vite";
import type { Order } from "./file-worker.js";

/** Bundles the worker into `folder`; gives the path of the script. */
export async function bundleWorker(folder: string): Promise<string> {
  const entry = fileURLToPath(new URL("./file-worker.ts", import.meta.url));
  await build({
    configFile: false,
    logLevel: "silent",
    build: {
      ssr: entry,
      outDir: folder,
      emptyOutDir: false,
      target: "node20",
      rolldownOptions: { output: { entryFileNames: "worker.mjs" } },
    },
  });
  return join(folder, "worker.mjs");
}

/** One worker process. */
export class StoreProcess {
  readonly process: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #reader: Interface;

  constructor(script: string, root: string, id: number) {
    this.process = spawn(process.execPath, [script, root, String(id)], { stdio: ["pipe", "pipe", "inherit"] });
    this.#reader = createInterface({ input: this.process.stdout as NodeJS.ReadableStream });
    this.#lines = this.#reader[Symbol.asyncIterator]();
  }

  /** The next answer, or undefined when the process has ended. */
  async answer<T>(): Promise<T | undefined> {
    const { value, done } = await this.#lines.next();
    // A line cut off by the kill is no answer.
    return done || !value.endsWith("}") ? undefined : (JSON.parse(value) as T);
  }

  order(order: Order): void {
    this.process.stdin?.write(`${JSON.stringify(order)}\n`);
  }

  async kill(): Promise<void> {
    const exited =
      this.process.exitCode === null && this.process.signalCode === null ? once(this.process, "exit") : undefined;
    this.process.kill("SIGKILL");
    await exited;
  }
}
