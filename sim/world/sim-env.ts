/** The `Env` of a simulated process: virtual time, a wall clock that may be wrong, chance from the seed. */
import assert from "node:assert/strict";
import { type Env, idFromBytes, uuidFromBytes } from "../../src/env/index.js";
import type { Abortable } from "./aborts.js";
import { ProcessEvent } from "./process-event.js";
import type { Rng } from "./random.js";
import { traceCodes } from "./trace.js";
import type { SimProcess } from "./world.js";

/** 1 January 2025: where every simulated wall clock starts. */
export const startOfTimeMs = 1_735_689_600_000;

/** The longest `setTimeout` can wait; beyond it Node fires at once, so the simulator refuses instead of being kinder than reality. */
const sleepMsMax = 2 ** 31 - 1;

class Sleep extends ProcessEvent implements Abortable {
  override readonly isTimer = true;
  readonly #resolve: () => void;
  readonly #reject: (reason: unknown) => void;
  readonly #signal: AbortSignal | undefined;

  constructor(
    process: SimProcess,
    resolve: () => void,
    reject: (reason: unknown) => void,
    signal: AbortSignal | undefined,
  ) {
    super(process);
    this.#resolve = resolve;
    this.#reject = reject;
    this.#signal = signal;
  }

  override deliver(): void {
    const { world } = this.process;
    world.trace.hashEvent(world.nowMs, traceCodes.sleep, this.process.number);
    if (world.trace.complete) world.trace.describe(world.nowMs, this.process.label, "wake", "", "");
    if (this.#signal !== undefined) world.aborts.remove(this.#signal, this);
    world.settle();
    this.#resolve();
  }

  onAbort(reason: unknown): void {
    if (!this.process.alive) return;
    this.process.world.cancel(this);
    this.#reject(reason);
  }
}

/** Virtual time and seeded chance of one process. */
export class SimEnv implements Env {
  readonly #process: SimProcess;
  readonly #rng: Rng;
  readonly #originMs: number;
  #skewMs: number;

  constructor(process: SimProcess, rng: Rng, skewMs: number) {
    this.#process = process;
    this.#rng = rng;
    // Monotonic clocks of different processes have nothing to do with each other; code that compares them must notice.
    this.#originMs = rng.below(10_000_000);
    this.#skewMs = skewMs;
  }

  now(): number {
    return Math.floor(startOfTimeMs + this.#process.world.nowMs + this.#skewMs);
  }

  monotonic(): number {
    return this.#originMs + this.#process.world.nowMs;
  }

  /** Moves the wall clock, forwards or back. */
  jump(byMs: number): void {
    this.#skewMs += byMs;
  }

  sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    assert(
      delayMs <= sleepMsMax,
      `sleep(${delayMs}) is longer than a timer can wait; on a real machine it would fire at once`,
    );
    if (!this.#process.alive) return new Promise(() => {});
    if (signal?.aborted) return Promise.reject(signal.reason);
    return new Promise((resolve, reject) => {
      const sleep = new Sleep(this.#process, resolve, reject, signal);
      if (signal !== undefined) this.#process.world.aborts.add(signal, sleep);
      // As on Node, no timer is shorter than 1 ms: a loop that sleeps 0 still lets time pass.
      this.#process.world.schedule(sleep, delayMs >= 1 ? delayMs : 1);
    });
  }

  random(): number {
    return this.#rng.next();
  }

  id(): string {
    return idFromBytes(this.#rng.bytes(12));
  }

  uuid(): string {
    return uuidFromBytes(this.#rng.bytes(16));
  }
}
