/** An env whose time passes with every sleep, and whose chance is a counter: quick, and the same in every run. */
import { type Env, idFromBytes, uuidFromBytes } from "../../src/env/index.js";

export class AutoEnv implements Env {
  nowMs = 1_000_000;
  #state: number;

  constructor(seed = 1) {
    this.#state = seed;
  }

  now(): number {
    return this.nowMs;
  }

  monotonic(): number {
    return this.nowMs;
  }

  random(): number {
    // mulberry32
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let t = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  }

  id(): string {
    return idFromBytes(Uint8Array.from({ length: 12 }, () => Math.floor(this.random() * 256)));
  }

  uuid(): string {
    return uuidFromBytes(Uint8Array.from({ length: 16 }, () => Math.floor(this.random() * 256)));
  }

  async sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    await new Promise((resolve) => setImmediate(resolve));
    this.nowMs += delayMs;
    signal?.throwIfAborted();
  }
}
