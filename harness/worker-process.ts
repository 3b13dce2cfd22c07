/** Real processes that do one thing at a time when told to. */
import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";

/** One worker process: `ask` sends a message and waits for the answer to it. */
export class WorkerProcess {
  readonly #child: ChildProcess;
  readonly #exited: Promise<void>;
  #settle: { resolve: (answer: never) => void; reject: (error: Error) => void } | undefined;

  /** Starts the module at `url` (source or built, as this file is) with one JSON argument. */
  constructor(url: URL, argument: unknown) {
    this.#child = fork(fileURLToPath(url), [JSON.stringify(argument)], {
      serialization: "advanced",
      stdio: ["ignore", "ignore", "inherit", "ipc"],
      // Tests run the sources as they are.
      execArgv: url.pathname.endsWith(".ts") ? ["--import", "tsx"] : [],
    });
    this.#child.on("message", (message) => this.#take()?.resolve(message as never));
    this.#exited = new Promise((resolve) => {
      this.#child.on("exit", (code, signal) => {
        this.#take()?.reject(new Error(`A worker process ended early (${signal ?? code}).`));
        resolve();
      });
    });
  }

  ask<Answer>(question: unknown): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
      this.#child.send(question as object);
    });
  }

  /** Ends the process. */
  async stop(): Promise<void> {
    this.#child.kill();
    await this.#exited;
  }

  #take(): { resolve: (answer: never) => void; reject: (error: Error) => void } | undefined {
    const settle = this.#settle;
    this.#settle = undefined;
    return settle;
  }
}

/** In a worker: the argument it was started with. */
export function workerArgument<T>(): T {
  return JSON.parse(process.argv[2] as string) as T;
}

/** In a worker: answers questions one after another until the parent ends it. A failure ends the process with its message. */
export function answer<Question>(handle: (question: Question) => Promise<unknown>): void {
  process.on("message", (question) => {
    handle(question as Question).then(
      (reply) => process.send?.(reply),
      (error) => {
        console.error(error);
        process.exit(1);
      },
    );
  });
  // A parent that died leaves nobody to work for.
  process.on("disconnect", () => process.exit(0));
}
