/** Seeded chance, split into independent streams: a new draw for one purpose never shifts the draws of another. */

/** 32-bit hash of a string (FNV-1a with a final mix). Stable across runs and machines. */
export function hashString(text: string, seed = 0x811c9dc5): number {
  let h = seed | 0;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  return mix(h);
}

/** Spreads the bits of a 32-bit integer (murmur3's finaliser). */
export function mix(value: number): number {
  let h = value | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return h ^ (h >>> 16);
}

/** One stream of random numbers (sfc32). */
export class Rng {
  #a: number;
  #b: number;
  #c: number;
  #counter = 1;

  /** The stream called `name` of a seed; the same pair always gives the same numbers. */
  constructor(seed: number, name: string) {
    this.#a = mix(seed);
    this.#b = mix(Math.floor(seed / 0x1_0000_0000) ^ 0x9e3779b9);
    this.#c = hashString(name);
    for (let i = 0; i < 12; i++) this.uint32();
  }

  /** Uniform 32 bits. */
  uint32(): number {
    const t = (((this.#a + this.#b) | 0) + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + t) | 0;
    return t >>> 0;
  }

  /** Uniform in [0, 1). */
  next(): number {
    return this.uint32() / 0x1_0000_0000;
  }

  /** Uniform integer in [0, bound). */
  below(bound: number): number {
    return Math.floor(this.next() * bound);
  }

  /** Uniform in [low, high). */
  between(low: number, high: number): number {
    return low + (high - low) * this.next();
  }

  /** True with this probability. */
  chance(probability: number): boolean {
    return this.next() < probability;
  }

  /** Exponential with this mean: the gap between events that know nothing of each other. */
  exponential(mean: number): number {
    return -mean * Math.log(1 - this.next());
  }

  /** One of the items, each as likely. */
  pick<T>(items: readonly T[]): T {
    if (items.length === 0) throw new RangeError("pick from an empty list");
    return items[this.below(items.length)] as T;
  }

  /** `count` random bytes. */
  bytes(count: number): Uint8Array {
    const out = new Uint8Array(count);
    for (let i = 0; i < count; i++) out[i] = this.uint32() & 0xff;
    return out;
  }
}
