/** Who may work now: a few lanes at a time, the one that is needed first. */

interface Waiter {
  readonly leftMs: () => number;
  readonly begin: () => void;
}

/** A limit on work in which need decides who is next. */
export class Turns {
  readonly #max: number;
  readonly #waiting = new Set<Waiter>();
  #busy = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** Whether no lane could begin at once. */
  get isFull(): boolean {
    return this.#busy >= this.#max;
  }

  /** Waits for a turn; give it back with the function that it resolves to, which may be called again without effect. */
  async take(leftMs: () => number, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    if (this.isFull) {
      await new Promise<void>((resolve, reject) => {
        const stop = (): void => {
          this.#waiting.delete(waiter);
          reject(signal.reason);
        };
        const waiter: Waiter = {
          leftMs,
          begin: () => {
            signal.removeEventListener("abort", stop);
            resolve();
          },
        };
        this.#waiting.add(waiter);
        signal.addEventListener("abort", stop, { once: true });
      });
    } else this.#busy++;
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      this.#giveBack();
    };
  }

  #giveBack(): void {
    let first: Waiter | undefined;
    let least = Number.POSITIVE_INFINITY;
    for (const waiter of this.#waiting) {
      const leftMs = waiter.leftMs();
      if (first && leftMs >= least) continue;
      first = waiter;
      least = leftMs;
    }
    if (!first) {
      this.#busy--;
      return;
    }
    this.#waiting.delete(first);
    first.begin();
  }
}
