/** A second request when the first takes unusually long; the first answer counts. Reads, and writes that are far too late. */
import type { Env } from "../../env/index.js";
import { bodyBytes } from "../body.js";
import { AbortLinks, type LinkedAbort } from "../linked-abort.js";
import type { ObjectStore } from "../object-store.js";
import { LateWatch, type Watched } from "./late-watch.js";
import { withOptionalCalls } from "./optional-calls.js";

/** Settings of {@link withHedging}. */
export interface HedgingSettings {
  /** Reads slower than this share of recent ones of their size are hedged. Default 0.95. */
  percentile?: number | undefined;
  /** The observed percentile is stretched by this, so that ordinary reads just past it are not read twice. Default 1.25. */
  slack?: number | undefined;
  /** Never hedge sooner than this. Default 5. */
  floorMs?: number | undefined;
  /** Second reads as a share of all reads, at most. Default 0.05. */
  extraMax?: number | undefined;
}

/** Observed reads kept per size class, and how many it takes to say anything. */
const samplesMax = 256;
const samplesMin = 20;
/** Second reads that may be saved up for a bad moment. */
const burstMax = 10;
/** While too little is known, small requests are repeated after this. */
const coldDelayMs = 1_000;
/** 64 KiB: up to here the request dominates, not the transfer. */
const smallClass = 16;
/** A larger body goes in parts, most of which have arrived when it is late: what is sent once more there is up to the store. */
export const hedgedPutBytesMax = 16_777_216;
/**
 * A second PUT of the same bytes under the same name changes nothing, but costs as much as the first: only what is far beyond all others
 * is repeated. A carrier that waits for a lost PUT keeps all followers waiting, and a lost batch all that its producer uploads after it.
 */
const writeHedging: HedgingSettings = { slack: 2.5, floorMs: 50, extraMax: 0.02 };
/** Why the slower of two reads is aborted; no caller sees it. */
const over = new Error("another read of the same bytes was faster");

/** Recent durations of reads of one size class. */
class Durations {
  readonly #ring = new Float64Array(samplesMax);
  #added = 0;
  #sorted = new Float64Array(0);

  add(ms: number): void {
    this.#ring[this.#added++ % samplesMax] = ms;
    // Sorting now and then is enough: the percentile moves slowly.
    if (this.#added % 16 === 0) this.#sorted = this.#ring.slice(0, this.#added).sort();
  }

  /** Undefined while there is too little to go by. */
  percentile(share: number): number | undefined {
    if (this.#sorted.length < samplesMin) return undefined;
    return this.#sorted[Math.min(this.#sorted.length - 1, Math.floor(share * this.#sorted.length))];
  }
}

/** Decides when a read is late and whether a second one may be afforded. */
class Hedger {
  readonly #env: Env;
  readonly #percentile: number;
  readonly #slack: number;
  readonly #floorMs: number;
  readonly #extraMax: number;
  readonly #watch: LateWatch;
  readonly #links = new AbortLinks();
  readonly #classes = new Map<number, Durations>();
  #tokens = 1;

  constructor(env: Env, settings: HedgingSettings) {
    this.#env = env;
    this.#percentile = settings.percentile ?? 0.95;
    this.#slack = settings.slack ?? 1.25;
    this.#floorMs = settings.floorMs ?? 5;
    this.#extraMax = settings.extraMax ?? 0.05;
    this.#watch = new LateWatch(env);
  }

  /** `sizeClass`: calls of one class are comparable. `call` is begun once or twice, each time with a signal of its own. */
  async call<T>(
    sizeClass: number,
    call: (signal: AbortSignal | undefined) => Promise<T>,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    this.#tokens = Math.min(burstMax, this.#tokens + this.#extraMax);
    let durations = this.#classes.get(sizeClass);
    if (!durations) {
      durations = new Durations();
      this.#classes.set(sizeClass, durations);
    }
    const begun = this.#env.monotonic();
    const observed = durations.percentile(this.#percentile);
    const coldMs = sizeClass <= smallClass ? coldDelayMs : undefined;
    const delayMs = observed === undefined ? coldMs : Math.max(this.#floorMs, observed * this.#slack);
    const result = await this.#race(call, delayMs, signal);
    // When the second read won, the first would have taken at least this long: leaving it out would make the percentile sink.
    durations.add(this.#env.monotonic() - begun);
    return result;
  }

  async #race<T>(
    call: (signal: AbortSignal | undefined) => Promise<T>,
    delayMs: number | undefined,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    if (delayMs === undefined) return await call(signal);
    const first = this.#links.link(signal);
    let second: LinkedAbort | undefined;
    let watched: Watched | undefined;
    try {
      const primary = call(first.signal);
      return await new Promise<T>((resolve, reject) => {
        const onLate = (): void => {
          if (this.#tokens < 1 || signal?.aborted) return;
          this.#tokens--;
          const other = this.#links.link(signal);
          second = other;
          firstToSucceed(primary, () => call(other.signal)).then(resolve, reject);
        };
        watched = this.#watch.add(delayMs, onLate);
        primary.then(resolve, (e) => {
          if (!second) reject(e);
        });
      });
    } finally {
      if (watched) this.#watch.delete(watched);
      // Aborts are dear: only where two reads were begun can one be left over.
      if (second) first.abort(over);
      second?.abort(over);
      first.unlink();
      second?.unlink();
    }
  }
}

/** The first result; when both fail, the primary's error. */
async function firstToSucceed<T>(primary: Promise<T>, begin: () => Promise<T>): Promise<T> {
  try {
    return await Promise.any([primary, begin()]);
  } catch {
    return await primary;
  }
}

/** Up to 64 KiB the request dominates, above that the transfer: one class per doubling. */
function sizeClass(bytes: number): number {
  return Math.max(smallClass, Math.ceil(Math.log2(bytes + 1)));
}

/** `store`, with slow `get`, `getRange`, `list` and `put` calls made a second time, within a cap on the extra load. */
export function withHedging(store: ObjectStore, env: Env, settings: HedgingSettings = {}): ObjectStore {
  const reads = new Hedger(env, settings);
  const writes = new Hedger(env, writeHedging);
  return {
    ...withOptionalCalls(store),
    uri: store.uri,
    create: (key, body, options) => store.create(key, body, options),
    put: (key, body, options) => {
      const bytes = bodyBytes(body);
      if (bytes > hedgedPutBytesMax) return store.put(key, body, options);
      // Not in place: the one that is given up would take away the other's object, which has the same name.
      return writes.call(
        sizeClass(bytes),
        (signal) => store.put(key, body, { ...options, unknownKey: undefined, signal }),
        options?.signal,
      );
    },
    get: (key, options) => reads.call(-1, (signal) => store.get(key, { ...options, signal }), options?.signal),
    getRange: (key, start, length, options) =>
      reads.call(
        sizeClass(length),
        (signal) => store.getRange(key, start, length, { ...options, signal }),
        options?.signal,
      ),
    list: (prefix, options) => reads.call(-2, (signal) => store.list(prefix, { ...options, signal }), options?.signal),
    delete: (keys, options) => store.delete(keys, options),
  };
}
