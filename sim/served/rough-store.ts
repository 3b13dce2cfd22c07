/**
 * The simulated store in real time, for processes that no virtual clock can hold: every call takes a while, and some go wrong. What goes wrong
 * follows from the seed, the name of the process and the number of its call; what the machine makes of it does not.
 */
import { BatchWeaveError } from "../../src/errors.js";
import { manifestPrefix } from "../../src/format/index.js";
import type { Body, CreateOutcome, ListOptions, ListPage, ObjectStore } from "../../src/store/index.js";
import { pageKeysMax, type SimStore } from "../store/sim-store.js";
import type { CallKind } from "../world/call-kind.js";
import { keyInLife } from "../world/life-key.js";
import { Rng } from "../world/random.js";

const writes: readonly CallKind[] = ["create", "put", "delete"];
const every: readonly CallKind[] = ["create", "put", "get", "getRange", "list", "delete"];

/** What can go wrong, which calls it can hit, and how often. The names are the simulator's, where it has them. */
const faults = {
  /** Never arrives, and the caller does not know. */
  requestLost: { kinds: every, rate: 0.012 },
  /** Applied, and the caller does not know. */
  responseLost: { kinds: every, rate: 0.012 },
  /** The caller gave up, and then it lands. */
  requestLate: { kinds: writes, rate: 0.02 },
  /** Lands a second time, seconds later. */
  duplicate: { kinds: writes, rate: 0.02 },
  /** Lands twice in a row, and the caller hears of the second: success as 412. */
  duplicateAnswer: { kinds: ["create"], rate: 0.04 },
  /** 500 although it was applied. */
  errorAfterApply: { kinds: every, rate: 0.01 },
  /** 500, nothing applied. */
  errorBeforeApply: { kinds: every, rate: 0.01 },
  /** 409 or 429: no verdict. */
  conflict: { kinds: ["create"], rate: 0.03 },
  /** 503 SlowDown, or no connection: certainly not applied. */
  slowDown: { kinds: every, rate: 0.01 },
  /** Takes a good part of a second. */
  slow: { kinds: every, rate: 0.01 },
  /** Under way for seconds, then applied and answered: what a process does that was stopped with its request unsent. */
  held: { kinds: ["create"], rate: 0.1 },
  shortPage: { kinds: ["list"], rate: 0.1 },
  /** A listing without what is new. */
  staleList: { kinds: ["list"], rate: 0.1 },
  truncated: { kinds: ["getRange"], rate: 0.03 },
  corrupted: { kinds: ["getRange"], rate: 0.02 },
} as const satisfies Record<string, { readonly kinds: readonly CallKind[]; readonly rate: number }>;

type Fault = keyof typeof faults;

/** Every fault by name, and `ambush`: a read of a manifest that somebody's held create is about to make. */
export const roughFaults: readonly string[] = [...Object.keys(faults), "ambush"];

const lateMs = [50, 3_000] as const;
const heldMs = [200, 6_000] as const;
const ambushRate = 0.5;
/** How far behind a late listing may be. */
const staleMs = 400;

/** Tells every call of every process apart, and hits some. */
export class RoughStore {
  /** False: nothing new goes wrong; what is under way still lands. */
  isRough = true;
  readonly counts: Map<string, number> = new Map();
  readonly #store: SimStore;
  readonly #seed: number;
  readonly #isFreeAgain: (key: string) => boolean;
  readonly #onViolation: (error: unknown) => void;
  readonly #callNumbers = new Map<string, number>();
  /** Creates that are held, by key. */
  readonly #landings = new Map<string, Promise<void>>();
  readonly #madeAt = new Map<string, number>();
  #underWay = 0;

  /** `isFreeAgain`: the key was used and deleted. */
  constructor(
    store: SimStore,
    seed: number,
    isFreeAgain: (key: string) => boolean,
    onViolation: (error: unknown) => void,
  ) {
    this.#store = store;
    this.#seed = seed;
    this.#isFreeAgain = isFreeAgain;
    this.#onViolation = onViolation;
  }

  /** Requests that will still land although nobody waits for them. */
  get underWay(): number {
    return this.#underWay;
  }

  /** The store as one process sees it. */
  client(who: string): ObjectStore {
    const store = this.#store;
    return {
      uri: `served:${who}`,
      create: async (key, body) => (await this.#write(who, "create", key, body)) ?? "unknown",
      put: async (key, body) => {
        if ((await this.#write(who, "put", key, body)) === undefined) throw unavailable("put", key);
      },
      get: (key) => this.#read(who, "get", key, () => store.get(key)),
      getRange: (key, start, length) => this.#read(who, "getRange", key, () => store.getRange(key, start, length)),
      list: (prefix, options) => this.#list(who, prefix, options),
      delete: async (keys) => {
        const apply = (): CreateOutcome => {
          for (const key of keys) store.delete(key);
          return "created";
        };
        if ((await this.#send(who, "delete", keys[0] ?? "", apply)) === undefined)
          throw unavailable("delete", keys[0] ?? "");
      },
    };
  }

  #write(who: string, kind: "create" | "put", key: string, body: Body): Promise<CreateOutcome | undefined> {
    const object = this.#store.pack(key, body);
    return this.#send(who, kind, key, () => {
      let outcome: CreateOutcome = "created";
      if (kind === "create") outcome = this.#store.create(key, object);
      else this.#store.put(key, object);
      if (outcome === "created") this.#madeAt.set(key, performance.now());
      return outcome;
    });
  }

  /** A write on its way. Undefined: the caller does not know what became of it. Throws when certainly nothing did. */
  async #send(
    who: string,
    kind: CallKind,
    key: string,
    effect: () => CreateOutcome,
  ): Promise<CreateOutcome | undefined> {
    const { fault, rng } = this.#draw(who, kind);
    const apply = (): CreateOutcome => this.#apply(effect);
    if (fault === "slowDown") throw unavailable(kind, key);
    if (fault === "held" && keyInLife(key).startsWith(manifestPrefix)) {
      const landing = this.#hold(key, rng);
      this.#landings.set(key, landing);
      await landing;
      return apply();
    }
    await sleep(fault === "slow" ? rng.between(200, 800) : rng.exponential(3));
    let outcome: CreateOutcome | undefined;
    if (fault === "requestLate") this.#later(apply, rng.between(...lateMs));
    else if (fault === "responseLost" || fault === "errorAfterApply") apply();
    else if (fault !== "requestLost" && fault !== "errorBeforeApply" && fault !== "conflict") outcome = apply();
    if (fault === "duplicate") this.#later(apply, rng.between(...lateMs));
    if (fault === "duplicateAnswer") outcome = apply();
    await sleep(rng.exponential(2));
    return outcome;
  }

  async #read(
    who: string,
    kind: "get" | "getRange",
    key: string,
    find: () => Uint8Array | undefined,
  ): Promise<Uint8Array | undefined> {
    const { fault, rng } = this.#draw(who, kind);
    await this.#way(kind, key, fault, rng);
    const landing = kind === "get" ? this.#landings.get(key) : undefined;
    if (landing !== undefined && this.isRough && rng.chance(ambushRate)) {
      this.#count("ambush");
      await landing;
      await sleep(rng.exponential(60));
    }
    const found = find();
    await sleep(rng.exponential(2));
    if (found === undefined || found.length === 0) return found;
    if (fault === "truncated") return found.slice(0, Math.max(1, rng.below(found.length)));
    if (fault !== "corrupted") return found;
    const damaged = found.slice();
    const at = rng.below(damaged.length);
    damaged[at] = (damaged[at] as number) ^ (1 << rng.below(8));
    return damaged;
  }

  async #list(who: string, prefix: string, { startAfter = "", limit }: ListOptions = {}): Promise<ListPage> {
    const { fault, rng } = this.#draw(who, "list");
    await this.#way("list", prefix, fault, rng);
    const most = Math.min(limit ?? pageKeysMax, fault === "shortPage" ? 1 + rng.below(4) : pageKeysMax);
    const page = this.#store.list(prefix, startAfter, most);
    if (fault !== "staleList") return page;
    const since = performance.now() - rng.between(0, staleMs);
    const objects = page.objects.filter(({ key }) => (this.#madeAt.get(key) ?? 0) < since);
    // No store says that there is more and names nothing to go on from.
    return objects.length === 0 && page.more ? page : { objects, more: page.more };
  }

  /** The way of a read there; a lost one is only a failure to its caller. */
  async #way(kind: CallKind, key: string, fault: Fault | undefined, rng: Rng): Promise<void> {
    await sleep(fault === "slow" ? rng.between(200, 800) : rng.exponential(3));
    const isLost =
      fault === "requestLost" ||
      fault === "responseLost" ||
      fault === "errorAfterApply" ||
      fault === "errorBeforeApply" ||
      fault === "slowDown";
    if (isLost) throw unavailable(kind, key);
  }

  #draw(who: string, kind: CallKind): { readonly fault: Fault | undefined; readonly rng: Rng } {
    const number = this.#callNumbers.get(who) ?? 0;
    this.#callNumbers.set(who, number + 1);
    const rng = new Rng(this.#seed, `${who}#${number}`);
    let u = rng.next();
    if (!this.isRough) return { fault: undefined, rng };
    for (const [fault, { kinds, rate }] of Object.entries(faults) as [Fault, (typeof faults)[Fault]][]) {
      if (!(kinds as readonly CallKind[]).includes(kind)) continue;
      u -= rate;
      if (u >= 0) continue;
      this.#count(fault);
      return { fault, rng };
    }
    return { fault: undefined, rng };
  }

  /** Until a while has passed, or the name is there for a zombie to take: others had it, and it was deleted. */
  async #hold(key: string, rng: Rng): Promise<void> {
    const until = performance.now() + rng.between(...heldMs);
    while (this.isRough && performance.now() < until && !this.#isFreeAgain(key)) await sleep(20);
    this.#landings.delete(key);
  }

  #later(apply: () => unknown, delayMs: number): void {
    this.#underWay++;
    setTimeout(() => {
      this.#underWay--;
      try {
        apply();
      } catch {
        // `#apply` has told.
      }
    }, delayMs);
  }

  /** What the oracle says to a write ends the run, whoever waits for it. */
  #apply<T>(effect: () => T): T {
    try {
      return effect();
    } catch (error) {
      this.#onViolation(error);
      throw error;
    }
  }

  #count(fault: string): void {
    this.counts.set(fault, (this.counts.get(fault) ?? 0) + 1);
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function unavailable(kind: string, key: string): BatchWeaveError {
  return new BatchWeaveError("STORE_UNAVAILABLE", `The served store did not answer a ${kind} of ${key}. Try again.`, {
    key,
  });
}
