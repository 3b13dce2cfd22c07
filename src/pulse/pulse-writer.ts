/** Leaving hints of life, seldom enough for any fleet. */
import { hostname } from "node:os";
import { type Env, onAbort } from "../env/index.js";
import { BatchWeaveError, isBatchWeaveError } from "../errors.js";
import {
  assertName,
  encodePulse,
  isGonePulse,
  isLatePulse,
  isRole,
  type PulseName,
  parsePulseKey,
  pulseKey,
  pulsePrefix,
} from "../format/index.js";
import type { ObjectStore } from "../store/index.js";
import { machineId } from "./machine.js";

/** What a process does for the log. */
export type PulseRole = "producer" | "loader" | "constructor" | "rank" | "reclaimer";

/** Why a pulse does not wait for its turn: a wait has begun, has ended, a lane was taken from a holder that stood still. */
export type PulseNews = "wait" | "end" | "takeover";

/** Settings of {@link startPulse}. */
export interface PulseSettings {
  readonly role: PulseRole;
  /** Which one of its role: a producer's id, a group and a rank. The same after a restart. */
  readonly name: string;
  /** What is told of it: small, JSON-safe, the most important first. Called for each pulse; it must not fail or take long. */
  readonly facts?: (() => Readonly<Record<string, unknown>>) | undefined;
  /** How many processes of the same job start at about this time, so that they do not all write at once. Default 1. */
  readonly peers?: number | undefined;
}

/** Of one process, however few there are. */
const everyMsMin = 10_000;
/** Between two pulses of the whole fleet. */
const fleetMs = 5_000;
/** A process that is alone is seen this soon. */
const firstMsMax = 1_000;
/** What a beat may take; a store that is slower is left alone until the next. */
const beatMsMax = 10_000;
/** A process that closes down waits no longer than this for its pulse to go. */
const stopMsMax = 500;
/** After failures a process tries less and less often. */
const failureMsMax = 300_000;
/** Between two pulses of one process that do not wait for their turn, for the same reason; and how many processes of a fleet may at once. */
const hurryMs = 60_000;
const hurriesMax = 6;
/** Pages of a thousand names that are counted. */
const pagesMax = 16;

/** A process that leaves pulses until it is stopped. */
export class Pulse implements AsyncDisposable {
  readonly #env: Env;
  readonly #store: ObjectStore;
  readonly #namespace: string;
  readonly #settings: PulseSettings;
  readonly #incarnation: string;
  readonly #startedMs: number;
  readonly #ended = new AbortController();
  readonly #loop: Promise<void>;
  #last: string | undefined;
  #failedInRow = 0;
  #wake: (() => void) | undefined;
  readonly #hurriedAtMs = new Map<PulseNews, number>();
  /** Processes that were counted last. */
  #living = 1;
  /** Pulses that were written, and that could not be. */
  readonly counts: { written: number; failed: number } = { written: 0, failed: 0 };

  constructor(env: Env, store: ObjectStore, namespace: string, settings: PulseSettings) {
    this.#env = env;
    this.#store = store;
    this.#namespace = namespace;
    this.#settings = settings;
    this.#incarnation = env.id();
    this.#startedMs = Math.floor(env.now());
    this.#loop = this.#run().catch(() => {});
  }

  /** Ends it and takes the last pulse away: a process that leaves is not missed. Never fails, and takes half a second at most. */
  async stop(): Promise<void> {
    if (this.#ended.signal.aborted) return;
    this.#ended.abort(new Error("the pulse has ended"));
    await this.#loop;
    const last = this.#last;
    this.#last = undefined;
    if (last === undefined) return;
    await within(this.#env, stopMsMax, undefined, (signal) => this.#store.delete([last], { hint: true, signal })).catch(
      () => {},
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #run(): Promise<void> {
    const { signal } = this.#ended;
    const { peers = 1 } = this.#settings;
    await this.#env.sleep(this.#env.random() * (peers > 1 ? peers * fleetMs : firstMsMax), signal);
    for (;;) {
      const everyMs = await this.#beat(signal);
      if (everyMs === undefined) return;
      const [woken, slept] = [new AbortController(), everyMs * (0.9 + 0.2 * this.#env.random())];
      this.#wake = () => woken.abort();
      await this.#env.sleep(slept, AbortSignal.any([signal, woken.signal])).catch(() => {});
      signal.throwIfAborted();
    }
  }

  /** Something worth knowing: the next pulse need not wait for its turn. Once a minute of a kind, and in a large fleet only a few processes, drawn by lot, are heard. */
  hurry(news: PulseNews = "wait"): void {
    const nowMs = this.#env.monotonic();
    if (nowMs < (this.#hurriedAtMs.get(news) ?? Number.NEGATIVE_INFINITY) + hurryMs) return;
    this.#hurriedAtMs.set(news, nowMs);
    if (this.#env.random() * this.#living < hurriesMax) this.#wake?.();
  }

  /** One pulse; gives the time to the next, undefined when there will be none. */
  async #beat(signal: AbortSignal): Promise<number | undefined> {
    try {
      const everyMs = await within(this.#env, beatMsMax, signal, (call) => this.#write(call));
      this.#failedInRow = 0;
      this.counts.written++;
      return everyMs;
    } catch (error) {
      if (signal.aborted) return undefined;
      this.counts.failed++;
      // A process that may only read leaves no pulses.
      if (isBatchWeaveError(error, "STORE_DENIED")) return undefined;
      return Math.min(failureMsMax, everyMsMin * 2 ** this.#failedInRow++);
    }
  }

  async #write(signal: AbortSignal): Promise<number> {
    const nowMs = Math.floor(this.#env.now());
    const { role, name, facts, peers = 1 } = this.#settings;
    const listed = await listPulses(this.#store, signal);
    const others = listed.filter((one) => one.incarnation !== this.#incarnation);
    const living = others.filter((one) => !isLatePulse(one, nowMs)).length + 1;
    this.#living = Math.max(living, peers);
    // Its peers may not have written yet.
    const everyMs = Math.max(everyMsMin, Math.max(living, peers) * fleetMs);
    const own: PulseName = { role, name, atMs: nowMs, everyMs, incarnation: this.#incarnation };
    const key = pulseKey(own);
    if (key === this.#last) return everyMs;
    const bytes = encodePulse(this.#namespace, own, {
      host: hostname(),
      pid: process.pid,
      machine: machineId(),
      startedMs: this.#startedMs,
      facts: facts?.() ?? {},
    });
    await this.#store.put(key, bytes, { hint: true, signal });
    const before = this.#last;
    this.#last = key;
    // Its own, and what those of its name left that did not live to take theirs away. A crash before this leaves one more, which the next one finds.
    const spent = others
      .filter((one) => one.role === role && one.name === name && (isLatePulse(one, nowMs) || isGonePulse(one, nowMs)))
      .map(pulseKey);
    if (before !== undefined) spent.push(before);
    if (spent.length > 0) await this.#store.delete(spent, { hint: true, signal });
    return everyMs;
  }
}

/** The names of all pulses, a few pages of them. */
export async function listPulses(store: ObjectStore, signal: AbortSignal | undefined): Promise<readonly PulseName[]> {
  const names: PulseName[] = [];
  let startAfter: string | undefined;
  for (let page = 0; page < pagesMax; page++) {
    const { objects, more } = await store.list(pulsePrefix, { keysOnly: true, startAfter, signal });
    for (const { key } of objects) {
      const name = parsePulseKey(key);
      if (name) names.push(name);
    }
    startAfter = objects.at(-1)?.key;
    if (!more || startAfter === undefined) break;
  }
  return names;
}

/** Begins to leave pulses in the folder of a life. */
export function startPulse(env: Env, store: ObjectStore, namespace: string, settings: PulseSettings): Pulse {
  assertName(settings.name, "The name of a pulse");
  if (!isRole(settings.role))
    throw new BatchWeaveError("INVALID_ARGUMENT", `A role is a lower-case word, not ${JSON.stringify(settings.role)}.`);
  return new Pulse(env, store, namespace, settings);
}

/** A call that is given up after so long, or when `outer` aborts, whatever the store makes of its signal. */
async function within<T>(
  env: Env,
  ms: number,
  outer: AbortSignal | undefined,
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const [late, done] = [new AbortController(), new AbortController()];
  const signal = outer ? AbortSignal.any([late.signal, outer]) : late.signal;
  const givenUp = new Promise<never>((_, reject) => onAbort(signal, () => reject(signal.reason)));
  givenUp.catch(() => {});
  env.sleep(ms, done.signal).then(
    () => late.abort(new Error("too slow")),
    () => {},
  );
  try {
    return await Promise.race([call(signal), givenUp]);
  } finally {
    done.abort();
  }
}
