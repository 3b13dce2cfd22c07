/** One listener per abort signal, however many calls wait on it: adding a listener per call costs more than simulating the call. */

/** Something that waits and can be told to stop. */
export interface Abortable {
  /** The signal fired. */
  onAbort(reason: unknown): void;
}

/** Who waits on which signal. */
export class Aborts {
  readonly #waiting = new WeakMap<AbortSignal, Set<Abortable>>();

  /** From now on `waiter` hears of an abort of `signal`. The signal must not be aborted yet. */
  add(signal: AbortSignal, waiter: Abortable): void {
    let waiters = this.#waiting.get(signal);
    if (waiters === undefined) {
      const fresh = new Set<Abortable>();
      this.#waiting.set(signal, fresh);
      signal.addEventListener(
        "abort",
        () => {
          const told = [...fresh];
          fresh.clear();
          for (const each of told) each.onAbort(signal.reason);
        },
        { once: true },
      );
      waiters = fresh;
    }
    waiters.add(waiter);
  }

  /** `waiter` no longer waits. */
  remove(signal: AbortSignal, waiter: Abortable): void {
    this.#waiting.get(signal)?.delete(waiter);
  }
}
