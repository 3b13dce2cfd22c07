/** A flag one loop waits on and any caller raises: no wake-up is lost between checking and waiting. */
import { type Env, onAbort } from "../env/index.js";

/** A reason that costs nothing to make; no caller ever sees it. */
const done = Symbol("wait is over");

export class Wakeup {
  #raised = false;
  #wake: (() => void) | undefined;

  raise(): void {
    this.#raised = true;
    this.#wake?.();
  }

  /** Waits until raised, for `delayMs` at most (Infinity: until raised), and lowers the flag. */
  async wait(env: Env, delayMs: number, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (!this.#raised && delayMs > 0) await this.#sleep(env, delayMs, signal);
    this.#raised = false;
  }

  async #sleep(env: Env, delayMs: number, signal: AbortSignal): Promise<void> {
    const stop = new AbortController();
    let unlisten = (): void => {};
    const woken = new Promise<void>((resolve, reject) => {
      this.#wake = resolve;
      unlisten = onAbort(signal, () => reject(signal.reason));
    });
    const slept = Number.isFinite(delayMs) ? env.sleep(delayMs, stop.signal).catch(() => {}) : woken;
    try {
      await Promise.race([woken, slept]);
    } finally {
      this.#wake = undefined;
      unlisten();
      stop.abort(done);
    }
  }
}
