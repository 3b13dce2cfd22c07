/** How long a small write takes on this store: the measure of every pace. */

/** Until anything is known: what S3 takes. */
const defaultMs = 100;
/** One that took long says little about the next: it counts for less. */
const fasterWeight = 0.5;
const slowerWeight = 0.1;
/** A write costs about so many times a read where this process has not written yet. */
const writesPerRead = 1.5;

/** A moving measure. Asked for at any time; fed by all code that reads and writes small objects anyway. */
export class RoundTrip {
  #ms = defaultMs;
  #isMeasured = false;

  get ms(): number {
    return this.#ms;
  }

  /** A small write that was answered took so long. */
  learn(tookMs: number): void {
    if (!this.#isMeasured) this.#ms = tookMs;
    else this.#ms += (tookMs < this.#ms ? fasterWeight : slowerWeight) * (tookMs - this.#ms);
    this.#isMeasured = true;
  }

  /** A small read: better than nothing before the first write. */
  guess(tookMs: number): void {
    if (!this.#isMeasured) this.#ms = writesPerRead * tookMs;
  }
}
