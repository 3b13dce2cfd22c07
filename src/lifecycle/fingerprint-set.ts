/**
 * A set of texts as 53-bit fingerprints: eight to sixteen bytes each, so that a million live batches fit into 16 MiB. It may say that a
 * text is in it that is not (once in 2^53 / size questions), never the other way round: a dead object may be kept, a live one is never lost.
 */
export class FingerprintSet {
  /** Open addressing; 0 is free. */
  #slots: Float64Array = new Float64Array(1_024);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  add(text: string): void {
    if (2 * this.#size >= this.#slots.length) this.#grow();
    if (insert(this.#slots, fingerprint(text))) this.#size++;
  }

  has(text: string): boolean {
    const value = fingerprint(text);
    return this.#slots[slotOf(this.#slots, value)] === value;
  }

  #grow(): void {
    const slots = new Float64Array(2 * this.#slots.length);
    for (const value of this.#slots) if (value !== 0) insert(slots, value);
    this.#slots = slots;
  }
}

function insert(slots: Float64Array, value: number): boolean {
  const slot = slotOf(slots, value);
  const isNew = slots[slot] === 0;
  slots[slot] = value;
  return isNew;
}

/** Where the value is, or the free slot where it belongs. */
function slotOf(slots: Float64Array, value: number): number {
  const mask = slots.length - 1;
  let slot = value % slots.length;
  while (slots[slot] !== 0 && slots[slot] !== value) slot = (slot + 1) & mask;
  return slot;
}

/** Two multiplicative hashes of 32 bits, mixed into one number from 1 to 2^53 - 1. */
function fingerprint(text: string): number {
  let a = 0xdeadbeef;
  let b = 0x41c6ce57;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    a = Math.imul(a ^ c, 2_654_435_761);
    b = Math.imul(b ^ c, 1_597_334_677);
  }
  a = Math.imul(a ^ (a >>> 16), 2_246_822_507) ^ Math.imul(b ^ (b >>> 13), 3_266_489_909);
  b = Math.imul(b ^ (b >>> 16), 2_246_822_507) ^ Math.imul(a ^ (a >>> 13), 3_266_489_909);
  return 4_294_967_296 * (b & 0x1f_ffff) + (a >>> 0) || 1;
}
