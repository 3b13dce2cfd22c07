/**
 * Bytes that all loaders of a process hold, ready or in the making: one bound for the process, whatever the number of lanes and sources. Half of it belongs
 * to all loaders alike, so that idle ones starve no other; the other half to the loader that comes first. A loader that has nothing may always take one sample.
 */
export class BufferBudget {
  readonly #bytesMax: number;
  #loaders = 0;
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  /** One more loader. */
  join(): void {
    this.#loaders++;
  }

  /** What all hold now. */
  get bytes(): number {
    return this.#bytes;
  }

  add(bytes: number): void {
    this.#bytes += bytes;
  }

  /** Whether a loader that holds `own` bytes may take more. */
  hasRoom(own: number): boolean {
    return 2 * this.#bytes < this.#bytesMax || 2 * own * this.#loaders < this.#bytesMax;
  }
}
