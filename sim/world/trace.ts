/** What happened: a rolling hash of every event, the last events of each actor, and, when asked for, all of it as JSON lines. */
import { mix } from "./random.js";

/** Numbers of what the world records in the hash; those of store calls start at `calls`. */
export const traceCodes = {
  action: 1,
  sleep: 2,
  spawn: 3,
  exit: 4,
  crash: 5,
  pause: 6,
  resume: 7,
  note: 8,
  fault: 9,
  calls: 16,
} as const;

/** One event as `--trace` writes it. */
export interface TraceLine {
  /** Virtual time. */
  readonly ms: number;
  /** Number of the event in the run. */
  readonly n: number;
  readonly actor: string;
  /** What happened: `put.apply`, `sleep`, `crash`, or a note of an actor. */
  readonly what: string;
  /** To what: a key, an id. */
  readonly subject: string;
  /** With what result. */
  readonly result: string | number;
}

/** Options of {@link Trace}. */
export interface TraceOptions {
  /** Events remembered per actor for failure reports; 0 remembers none. */
  readonly ringEvents?: number | undefined;
  /** Receives every event. */
  readonly sink?: ((line: TraceLine) => void) | undefined;
}

class Ring {
  readonly #lines: TraceLine[] = [];
  #next = 0;

  add(line: TraceLine, limit: number): void {
    this.#lines[this.#next] = line;
    this.#next = (this.#next + 1) % limit;
  }

  list(): TraceLine[] {
    return [...this.#lines.slice(this.#next), ...this.#lines.slice(0, this.#next)];
  }
}

/** Records events. Two runs of one seed must end with the same {@link Trace.hash}. */
export class Trace {
  readonly #ringEvents: number;
  readonly #sink: ((line: TraceLine) => void) | undefined;
  readonly #rings = new Map<string, Ring>();
  readonly #float = new Float64Array(1);
  readonly #words = new Uint32Array(this.#float.buffer);
  #high = 0x6a09e667;
  #low = 0xbb67ae85 | 0;
  /** Events recorded so far. */
  count = 0;

  constructor(options: TraceOptions = {}) {
    this.#ringEvents = options.ringEvents ?? 40;
    this.#sink = options.sink;
  }

  /** True when somebody wants the text of events, and not only their hash. */
  get wordy(): boolean {
    return this.#ringEvents > 0 || this.#sink !== undefined;
  }

  /** True when every event is written out, the dull ones too. */
  get complete(): boolean {
    return this.#sink !== undefined;
  }

  /** Mixes one event into the hash: time, what happened, and any number that sums up to whom and with what. */
  hashEvent(timeMs: number, what: number, fingerprint: number): void {
    this.count++;
    this.#float[0] = timeMs;
    const words = this.#words;
    let low = Math.imul(this.#low ^ (words[0] as number), 0x9e3779b1) + what;
    low ^= low >>> 15;
    let high = Math.imul(this.#high ^ (words[1] as number), 0x85ebca77) + fingerprint;
    high ^= high >>> 13;
    this.#low = Math.imul(low, 0x27d4eb2f) ^ (high << 5);
    this.#high = Math.imul(high, 0x165667b1) ^ (low >>> 3);
  }

  /** Keeps the text of the event that was hashed last. */
  describe(timeMs: number, actor: string, what: string, subject: string, result: string | number): void {
    const line: TraceLine = { ms: timeMs, n: this.count, actor, what, subject, result };
    if (this.#ringEvents > 0) {
      let ring = this.#rings.get(actor);
      if (ring === undefined) {
        ring = new Ring();
        this.#rings.set(actor, ring);
      }
      ring.add(line, this.#ringEvents);
    }
    this.#sink?.(line);
  }

  /** 16 hex digits over everything recorded so far. */
  hash(): string {
    const hex = (value: number): string => (mix(value) >>> 0).toString(16).padStart(8, "0");
    return hex(this.#high) + hex(this.#low ^ this.count);
  }

  /** The last events of one actor, oldest first; of all actors, in order, when none is named. */
  last(actor?: string): TraceLine[] {
    if (actor !== undefined) return this.#rings.get(actor)?.list() ?? [];
    return [...this.#rings.values()].flatMap((ring) => ring.list()).sort((a, b) => a.n - b.n);
  }
}

/** One line for people. */
export function formatTraceLine(line: TraceLine): string {
  const seconds = (line.ms / 1000).toFixed(3).padStart(10);
  return `${seconds}s  ${line.actor.padEnd(16)} ${line.what.padEnd(18)} ${line.subject}${line.result === "" ? "" : `  -> ${line.result}`}`;
}
