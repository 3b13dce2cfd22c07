/** Chance that is decided by a seed: the same parts give the same numbers on every machine and in every run. Pure. */

function mix32(value: number): number {
  let x = value | 0;
  x = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
  x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
  return (x ^ (x >>> 15)) >>> 0;
}

/** 32 bits from any mixture of strings and numbers. Parts are kept apart: ("ab", "c") is not ("a", "bc"). */
export function hash32(...parts: readonly (string | number)[]): number {
  let hash = 0x9e3779b9;
  const add = (value: number): void => {
    hash = mix32((hash ^ value) + 0x9e3779b9);
  };
  for (const part of parts) {
    if (typeof part === "number") {
      add(part | 0);
      add(Math.floor(part / 0x1_0000_0000) | 0);
    } else {
      for (let i = 0; i < part.length; i++) add(part.charCodeAt(i));
      add(0x1_0000 + part.length);
    }
  }
  return hash;
}

/** A sequence of numbers decided by a seed (sfc32: 128 bits of state, passes PractRand). */
export class SeededRandom {
  #a: number;
  #b: number;
  #c: number;
  #counter = 1;

  constructor(...seed: readonly (string | number)[]) {
    this.#a = hash32(...seed, 1);
    this.#b = hash32(...seed, 2);
    this.#c = hash32(...seed, 3);
    for (let i = 0; i < 12; i++) this.uint32();
  }

  /** 32 random bits. */
  uint32(): number {
    const out = (this.#a + this.#b + this.#counter++) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + out) | 0;
    return out >>> 0;
  }

  /** Uniform in [0, 1). */
  unit(): number {
    return this.uint32() / 0x1_0000_0000;
  }

  /** A whole number in [0, n). The bias for n below 2^20 is under 2^-12 and the same everywhere. */
  below(n: number): number {
    return Math.floor(this.unit() * n);
  }

  /** Normally distributed, mean 0, deviation 1. */
  normal(): number {
    return Math.sqrt(-2 * Math.log(1 - this.unit())) * Math.cos(2 * Math.PI * this.unit());
  }
}

/** The numbers 0 to n-1 in an order decided by the seed. */
export function permutation(n: number, ...seed: readonly (string | number)[]): Uint32Array {
  const random = new SeededRandom(...seed);
  const order = Uint32Array.from({ length: n }, (_, i) => i);
  for (let i = n - 1; i > 0; i--) {
    const j = random.below(i + 1);
    const swapped = order[i] as number;
    order[i] = order[j] as number;
    order[j] = swapped;
  }
  return order;
}
