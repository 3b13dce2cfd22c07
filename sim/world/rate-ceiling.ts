/** What a store admits per second and prefix before it answers 503 SlowDown. */
import { type CallKind, isWrite } from "./call-kind.js";

/** Options of {@link RateCeiling}. */
export interface RateCeilingOptions {
  /** Writes a second per prefix; 3,500 unless told. Every key of a bulk delete counts. */
  readonly writesPerSecond?: number | undefined;
  /** Reads, LIST among them, a second per prefix; 5,500 unless told. */
  readonly readsPerSecond?: number | undefined;
  /** Which prefix a key counts against; its first segment unless told. */
  readonly prefixOf?: ((key: string) => string) | undefined;
}

class Bucket {
  tokens: number;
  filledMs = 0;

  constructor(tokens: number) {
    this.tokens = tokens;
  }
}

/** The part of a key before its first slash. */
export function firstSegment(key: string): string {
  const slash = key.indexOf("/");
  return slash < 0 ? key : key.slice(0, slash);
}

/** One token bucket for reads and one for writes per prefix, each holding a second's worth. */
export class RateCeiling {
  readonly #writesPerSecond: number;
  readonly #readsPerSecond: number;
  readonly #prefixOf: (key: string) => string;
  readonly #reads = new Map<string, Bucket>();
  readonly #writes = new Map<string, Bucket>();

  constructor(options: RateCeilingOptions = {}) {
    this.#writesPerSecond = options.writesPerSecond ?? 3500;
    this.#readsPerSecond = options.readsPerSecond ?? 5500;
    this.#prefixOf = options.prefixOf ?? firstSegment;
  }

  /** Whether the store takes `requests` more requests for this key now. */
  admits(kind: CallKind, key: string, requests: number, nowMs: number): boolean {
    const write = isWrite(kind);
    const perSecond = write ? this.#writesPerSecond : this.#readsPerSecond;
    const buckets = write ? this.#writes : this.#reads;
    const prefix = this.#prefixOf(key);
    let bucket = buckets.get(prefix);
    if (bucket === undefined) {
      bucket = new Bucket(perSecond);
      buckets.set(prefix, bucket);
    }
    bucket.tokens = Math.min(perSecond, bucket.tokens + ((nowMs - bucket.filledMs) * perSecond) / 1000);
    bucket.filledMs = nowMs;
    // A bulk delete larger than the bucket must pass some day: a full bucket admits anything and goes into debt.
    if (bucket.tokens < Math.min(requests, perSecond)) return false;
    bucket.tokens -= requests;
    return true;
  }
}
