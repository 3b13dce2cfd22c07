/** An env whose time stands still until a test moves it, and whose chance is the same in every run. */
import { type Env, idFromBytes, uuidFromBytes } from "../../src/env/index.js";

interface Timer {
  readonly at: number;
  readonly fire: () => void;
}

/** Lets everything that is ready run: promises, and work that the event loop has queued. */
async function settle(): Promise<void> {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
}

/** Time moves only in {@link ManualEnv.drive} and {@link ManualEnv.pass}. */
export class ManualEnv implements Env {
  #nowMs = 1_000_000;
  #drawn = 0;
  readonly #timers = new Set<Timer>();

  now(): number {
    return this.#nowMs;
  }

  monotonic(): number {
    return this.#nowMs;
  }

  random(): number {
    // Mulberry32: good enough a spread, and the same draws in every run.
    this.#drawn = (this.#drawn + 0x6d2b79f5) | 0;
    let t = Math.imul(this.#drawn ^ (this.#drawn >>> 15), 1 | this.#drawn);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  }

  id(): string {
    return idFromBytes(Uint8Array.from({ length: 12 }, () => Math.floor(this.random() * 256)));
  }

  uuid(): string {
    return uuidFromBytes(Uint8Array.from({ length: 16 }, () => Math.floor(this.random() * 256)));
  }

  sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const onAbort = (): void => {
        this.#timers.delete(timer);
        reject(signal?.reason);
      };
      const timer: Timer = {
        at: this.#nowMs + delayMs,
        fire: () => {
          signal?.removeEventListener("abort", onAbort);
          resolve();
        },
      };
      this.#timers.add(timer);
      signal?.addEventListener("abort", onAbort, { once: true });
    });
  }

  /** Timers that are set. */
  get pending(): number {
    return this.#timers.size;
  }

  /** Moves time from timer to timer until `work` settles, and returns what it gave. */
  async drive<T>(work: Promise<T>): Promise<T> {
    let isSettled = false;
    const done = (): void => {
      isSettled = true;
    };
    work.then(done, done);
    for (await settle(); !isSettled; await settle()) this.#fireNext(Number.POSITIVE_INFINITY);
    return await work;
  }

  /** Lets `ms` pass, firing what is due on the way. */
  async pass(ms: number): Promise<void> {
    const until = this.#nowMs + ms;
    await settle();
    while (this.#fireNext(until)) await settle();
    this.#nowMs = until;
    await settle();
  }

  #fireNext(until: number): boolean {
    let next: Timer | undefined;
    for (const timer of this.#timers) if (!next || timer.at < next.at) next = timer;
    if (!next || next.at > until) return false;
    this.#timers.delete(next);
    this.#nowMs = Math.max(this.#nowMs, next.at);
    next.fire();
    return true;
  }
}
