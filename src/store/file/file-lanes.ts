/** Keeps large writes from taking every thread that file calls run on. */

/** Threads of Node's pool for file calls: libuv's default, or what the process was started with. */
const threads = Math.max(1, Math.trunc(Number(process.env["UV_THREADPOOL_SIZE"])) || 4);

/**
 * Two more than there are threads: while the bytes of one write are being prepared and another's callback waits for its turn, no thread stands
 * idle. But no more: calls of the pool are served in order, so a commit or a look at the log, a handful of short calls one after another, would wait
 * behind all uploads each time.
 */
export class BulkLanes {
  /** Calls at a time. */
  static readonly count: number = threads + 2;
  #free = BulkLanes.count;
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
