/** Time that passes only when all callers wait: minutes of retries in a few milliseconds, the same in every run. */
import { type Env, idFromBytes, uuidFromBytes } from "../../src/env/index.js";

interface Timer {
  readonly atMs: number;
  readonly fire: () => void;
}

/** An {@link Env} for one test. */
export class VirtualEnv implements Env {
  #nowMs = 0;
  #timers: Timer[] = [];
  #state: number;

  constructor(seed = 1) {
    this.#state = seed;
  }

  now(): number {
    return this.#nowMs;
  }

  monotonic(): number {
    return this.#nowMs;
  }

  sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const timer: Timer = { atMs: this.#nowMs + delayMs, fire: resolve };
      this.#timers.push(timer);
      signal?.addEventListener("abort", () => {
        this.#timers = this.#timers.filter((one) => one !== timer);
        reject(signal.reason);
      });
    });
  }

  /** mulberry32 */
  random(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let t = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }

  id(): string {
    return idFromBytes(Uint8Array.from({ length: 12 }, () => this.random() * 256));
  }

  uuid(): string {
    return uuidFromBytes(Uint8Array.from({ length: 16 }, () => this.random() * 256));
  }

  /** Lets time pass until `work` is done. */
  async run<T>(work: Promise<T>): Promise<T> {
    let isDone = false;
    const settle = (): void => {
      isDone = true;
    };
    work.then(settle, settle);
    for (;;) {
      await new Promise((resolve) => setImmediate(resolve));
      if (isDone) return work;
      const next = this.#timers.reduce<Timer | undefined>((a, b) => (a && a.atMs <= b.atMs ? a : b), undefined);
      if (!next) throw new Error("everybody waits and no timer is set");
      this.#timers = this.#timers.filter((one) => one !== next);
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      next.fire();
    }
  }
}
