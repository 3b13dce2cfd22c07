/** Looking at the pulses of all: one listing, and each body read once. */
import type { Env } from "../env/index.js";
import { isBatchWeaveError } from "../errors.js";
import {
  decodePulse,
  isGonePulse,
  isLatePulse,
  type PulseBody,
  type PulseName,
  pulseBytesMax,
  pulseKey,
} from "../format/index.js";
import type { CallOptions, ObjectStore } from "../store/index.js";
import { isDeadHere } from "./machine.js";
import { listPulses } from "./pulse-writer.js";

/** One process as its newest pulse tells of it. What others wrote: print it with care. */
export interface PulseEntry {
  readonly role: string;
  readonly name: string;
  readonly incarnation: string;
  /** By the clock of its writer. */
  readonly atMs: number;
  readonly everyMs: number;
  /** Two beats are missing: it died, or it cannot reach the store. */
  readonly isLate: boolean;
  /** It ran on the machine that reads this, and is not there any more. */
  readonly isDead: boolean;
  /** Of the body; undefined when it could not be read, or there were too many. */
  readonly host: string | undefined;
  readonly pid: number | undefined;
  readonly startedMs: number | undefined;
  readonly facts: Readonly<Record<string, unknown>>;
}

/** Bodies that are read in one look, and read at a time. */
const bodiesMax = 512;
const inFlightMax = 16;

/** Reads pulses again and again: a body is asked for once, because a name never comes back with another. */
export class PulseReader {
  readonly #env: Env;
  readonly #store: ObjectStore;
  readonly #namespace: string;
  #bodies = new Map<string, PulseBody>();

  /** `store`: the folder of a life. */
  constructor(env: Env, store: ObjectStore, namespace: string) {
    this.#env = env;
    this.#store = store;
    this.#namespace = namespace;
  }

  /** The newest pulse of every process, by role and name. */
  async read({ signal }: CallOptions = {}): Promise<readonly PulseEntry[]> {
    const newest = new Map<string, PulseName>();
    for (const one of await listPulses(this.#store, signal)) {
      const known = newest.get(one.incarnation);
      if (!known || known.atMs < one.atMs) newest.set(one.incarnation, one);
    }
    const names = [...newest.values()].sort((a, b) => b.atMs - a.atMs);
    const wanted = names.slice(0, bodiesMax).map(pulseKey);
    const bodies = new Map<string, PulseBody>();
    const missing = wanted.filter((key) => {
      const known = this.#bodies.get(key);
      if (known) bodies.set(key, known);
      return !known;
    });
    const readNext = async (): Promise<void> => {
      for (let key = missing.pop(); key !== undefined; key = missing.pop()) {
        const body = await this.#readBody(key, signal);
        if (body) bodies.set(key, body);
      }
    };
    await Promise.all(Array.from({ length: inFlightMax }, readNext));
    this.#bodies = bodies;
    const nowMs = this.#env.now();
    return names
      .map((name): PulseEntry => {
        const { host, pid, machine, startedMs, facts = {} } = bodies.get(pulseKey(name)) ?? {};
        const isDead = isDeadHere(machine, pid);
        return { ...name, isLate: isLatePulse(name, nowMs), isDead, host, pid, startedMs, facts };
      })
      .sort((a, b) => (a.role < b.role ? -1 : a.role > b.role ? 1 : a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  }

  /** Undefined: its writer has replaced it meanwhile, or it is none. */
  async #readBody(key: string, signal: AbortSignal | undefined): Promise<PulseBody | undefined> {
    try {
      const bytes = await this.#store.get(key, { signal, bytesMax: pulseBytesMax });
      return bytes && decodePulse(bytes, key, this.#namespace);
    } catch (error) {
      if (
        isBatchWeaveError(error) &&
        ["CORRUPT", "LIMIT", "WRONG_NAMESPACE", "UNSUPPORTED_FORMAT"].includes(error.code)
      )
        return undefined;
      throw error;
    }
  }
}

/** Deletes pulses of processes that have been gone for an hour and more; gives their number. */
export async function removeGonePulses(env: Env, store: ObjectStore, { signal }: CallOptions = {}): Promise<number> {
  const nowMs = env.now();
  const gone = (await listPulses(store, signal)).filter((one) => isGonePulse(one, nowMs)).map(pulseKey);
  if (gone.length > 0) await store.delete(gone, { hint: true, signal });
  return gone.length;
}
