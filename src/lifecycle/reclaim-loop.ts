/** Reclaiming again and again: `reclaim --watch`, or rank 0 of a job. */
import { isBatchWeaveError } from "../errors.js";
import type { Log } from "../log/index.js";
import { type ReclaimReport, type ReclaimSettings, reclaimSince } from "./reclaim.js";
import type { SweptBefore } from "./sweep-window.js";
import type { ReclaimObserver } from "./tally.js";

/** Settings of a {@link ReclaimLoop}. */
export interface ReclaimLoopSettings extends Omit<ReclaimSettings, "dryRun"> {
  /** Between two runs. Default 60,000. */
  readonly intervalMs?: number | undefined;
  /** Every so many runs everything is listed, not only what can have died since the run before. Default 64. */
  readonly fullEvery?: number | undefined;
}

/** Told of every run. */
export interface ReclaimLoopObserver extends ReclaimObserver {
  onRun?(report: ReclaimReport): void;
  /** A run failed; the next one comes after the interval. */
  onFailure?(error: unknown): void;
}

/** Runs until its signal aborts or the namespace is deleted. A failed run is told and tried again: a dead reclaimer must not go unnoticed, nor stop for a hiccup. */
export class ReclaimLoop {
  readonly #log: Log;
  readonly #settings: ReclaimLoopSettings;
  readonly #observer: ReclaimLoopObserver;
  #swept: SweptBefore | undefined;
  #runs = 0;

  constructor(log: Log, settings: ReclaimLoopSettings = {}, observer: ReclaimLoopObserver = {}) {
    this.#log = log;
    this.#settings = settings;
    this.#observer = observer;
  }

  /** One run. */
  async once(signal?: AbortSignal): Promise<ReclaimReport> {
    const isFull = this.#runs++ % (this.#settings.fullEvery ?? 64) === 0;
    const earlier = isFull ? undefined : this.#swept;
    // A run that fails half-way leaves no hint: the next one looks at everything.
    this.#swept = undefined;
    const parts = { observer: this.#observer, signal };
    const { report, swept } = await reclaimSince(this.#log, this.#settings, parts, earlier);
    this.#swept = swept;
    this.#observer.onRun?.(report);
    return report;
  }

  /** Runs until aborted; rejects with the signal's reason, or with DELETED. */
  async run(signal: AbortSignal): Promise<never> {
    const intervalMs = this.#settings.intervalMs ?? 60_000;
    for (;;) {
      try {
        await this.once(signal);
      } catch (error) {
        signal.throwIfAborted();
        if (isBatchWeaveError(error, "DELETED")) throw error;
        this.#observer.onFailure?.(error);
      }
      // Jitter, so that several reclaimers of one namespace do not meet every time.
      await this.#log.env.sleep(intervalMs * (0.9 + 0.2 * this.#log.env.random()), signal);
    }
  }
}
