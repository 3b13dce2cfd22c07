/** Limits the reads in flight, and lets those for the nearest iteration go first. */

interface Waiter {
  readonly priority: number;
  readonly enter: () => void;
}

/** A counting gate. */
export class ReadGate {
  #free: number;
  readonly #waiting: Waiter[] = [];

  constructor(readsInFlightMax: number) {
    this.#free = readsInFlightMax;
  }

  /**
   * Runs `call` when there is room; a lower priority goes first, equals in the order they came. Waiters do not listen to the
   * signal: an abort ends the calls in flight, so the queue empties at once, each waiter finding the abort when it enters.
   */
  async run<T>(priority: number, signal: AbortSignal | undefined, call: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((enter) => this.#enqueue({ priority, enter }));
    try {
      signal?.throwIfAborted();
      return await call();
    } finally {
      const next = this.#waiting.shift();
      if (next) next.enter();
      else this.#free++;
    }
  }

  #enqueue(waiter: Waiter): void {
    let at = this.#waiting.length;
    while (at > 0 && (this.#waiting[at - 1] as Waiter).priority > waiter.priority) at--;
    this.#waiting.splice(at, 0, waiter);
  }
}
