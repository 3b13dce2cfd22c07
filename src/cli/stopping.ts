/**
 * How a command is told to stop: the first SIGINT or SIGTERM asks it to finish cleanly and gives it less than two seconds, the second ends it
 * at once. Ending at any moment is survivable: the log holds whole batches, and the next process goes on from there.
 */
import { setMaxListeners } from "node:events";
import { constants } from "node:os";
import type { Env } from "../index.js";

/** Time from the first signal to the end of the process, whatever a store or a peer does. */
const graceMs = 1_700;

/** The reason of the abort signal; carries the exit status. */
export class Stopped extends Error {
  override readonly name = "Stopped";
  /** 128 + the signal's number, as shells do. */
  readonly exit: number;
  readonly signal: "SIGINT" | "SIGTERM";

  constructor(signal: "SIGINT" | "SIGTERM") {
    super(`stopped by ${signal}`);
    this.signal = signal;
    this.exit = 128 + constants.signals[signal];
  }
}

/** Node's own end waits for file system calls that are under way, and one on a dead mount never comes back. The signal itself waits for nothing. */
function endNow({ signal, exit }: Stopped): never {
  if (process.getActiveResourcesInfo().some((name) => name.startsWith("FSReq"))) {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  }
  process.exit(exit);
}

/** Listens for signals while a command runs. */
export class Stopping {
  readonly #controller = new AbortController();
  readonly #disposed = new AbortController();
  readonly #onSignal: (signal: "SIGINT" | "SIGTERM") => void;

  constructor(isJson: boolean, env: Env) {
    // Every call in flight listens to it, on purpose: Node would call more than ten a leak.
    setMaxListeners(0, this.signal);
    const end = (stopped: Stopped): never => {
      if (!isJson)
        process.stderr.write(
          `${stopped.message} before all was finished; the log is whole, and the next process goes on from it\n`,
        );
      return endNow(stopped);
    };
    this.#onSignal = (signal) => {
      const stopped = new Stopped(signal);
      if (this.#controller.signal.aborted) endNow(stopped);
      env.sleep(graceMs, this.#disposed.signal).then(
        () => end(stopped),
        () => {},
      );
      this.#controller.abort(stopped);
    };
    process.on("SIGINT", this.#onSignal);
    process.on("SIGTERM", this.#onSignal);
  }

  /** Aborts at the first signal, with a {@link Stopped} as its reason. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Why the command was told to stop, if it was. */
  get stopped(): Stopped | undefined {
    return this.signal.reason instanceof Stopped ? this.signal.reason : undefined;
  }

  /** Ends what listens to the signal, when the command is done by itself. */
  end(): void {
    this.#controller.abort(new Error("done"));
  }

  /** Stops listening. */
  dispose(): void {
    process.off("SIGINT", this.#onSignal);
    process.off("SIGTERM", this.#onSignal);
    this.#disposed.abort();
  }
}
