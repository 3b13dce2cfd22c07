/** Tells who is late. One timer for all: one for each call, and an abort to end it, would cost more than all else that is done about hedging. */
import type { Env } from "../../env/index.js";

/** Something under way. */
export interface Watched {
  readonly dueMs: number;
  readonly onLate: () => void;
}

/** Calls that are under way, and when each is late. */
export class LateWatch {
  readonly #env: Env;
  readonly #watched = new Set<Watched>();
  /** The sleep there is, if any: when it ends, and how to end it before. */
  #sleep: { readonly untilMs: number; readonly wake: AbortController } | undefined;

  constructor(env: Env) {
    this.#env = env;
  }

  /** Calls `onLate` once, after `delayMs`, unless it is deleted before. */
  add(delayMs: number, onLate: () => void): Watched {
    const one: Watched = { dueMs: this.#env.monotonic() + delayMs, onLate };
    this.#watched.add(one);
    // A sleep that ends sooner will look at this one too.
    if (!this.#sleep || one.dueMs < this.#sleep.untilMs) this.#sleepUntil(one.dueMs);
    return one;
  }

  /** It is over, late or not. */
  delete(one: Watched): void {
    this.#watched.delete(one);
    // A process that has nothing else to do must be able to end.
    if (this.#watched.size === 0) this.#wake();
  }

  #wake(): void {
    this.#sleep?.wake.abort();
    this.#sleep = undefined;
  }

  #sleepUntil(untilMs: number): void {
    this.#wake();
    const sleep = { untilMs, wake: new AbortController() };
    this.#sleep = sleep;
    const delayMs = Math.max(0, untilMs - this.#env.monotonic());
    this.#env.sleep(delayMs, sleep.wake.signal).then(
      () => {
        if (this.#sleep !== sleep) return;
        this.#sleep = undefined;
        // By the time that was slept for: the clock may show a little less.
        this.#tell(Math.max(untilMs, this.#env.monotonic()));
      },
      () => {}, // no call is left, or another sleep took its place
    );
  }

  #tell(reachedMs: number): void {
    let nextMs = Number.POSITIVE_INFINITY;
    for (const one of this.#watched) {
      if (one.dueMs > reachedMs) {
        nextMs = Math.min(nextMs, one.dueMs);
        continue;
      }
      this.#watched.delete(one);
      one.onLate();
    }
    // The calls that were told may have added some.
    if (nextMs < (this.#sleep?.untilMs ?? Number.POSITIVE_INFINITY)) this.#sleepUntil(nextMs);
  }
}
