/** A limit on calls that come from anywhere. */

interface Waiter {
  readonly priority: number;
  readonly enter: () => void;
}

/** Lets so many calls through at a time. */
export class Gate {
  #free: number;
  readonly #waiting: Waiter[] = [];

  constructor(inFlightMax: number) {
    this.#free = inFlightMax;
  }

  /**
   * Runs `call` when there is room; a lower priority goes first, equals in the order they came. Waiters listen to no signal: an abort
   * ends the calls in flight, so the queue empties at once, and each call finds the abort when it begins.
   */
  async pass<T>(call: () => Promise<T>, priority: number = 0): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((enter) => this.#enqueue({ priority, enter }));
    try {
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
