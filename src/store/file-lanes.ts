/** Keeps large writes from taking every thread that file calls run on. */

/** Threads of Node's pool for file calls: libuv's default, or what the process was started with. */
const threads = Number(process.env["UV_THREADPOOL_SIZE"]) || 4;

/**
 * At most all threads but one. Calls of the pool are served in order, so a commit or a look at the log, a handful of short calls one
 * after another, would wait behind the writes and syncs of eight uploads each time; with a thread left free it does not.
 */
export class BulkLanes {
  #free = Math.max(1, threads - 1);
  readonly #waiting: (() => void)[] = [];

  /** Runs `call` when there is a lane for it, in the order of the calls. */
  async pass<T>(call: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await call();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free++;
    }
  }
}
