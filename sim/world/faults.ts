/**
 * What goes wrong, how often, and which instances of it are switched off.
 *
 * Every instance has an id that depends only on who was hit and at which of its calls, so that `--minimize` can leave out single
 * ones and the rest stay, as far as the run allows, what they were.
 */
import { type CallKind, callKinds } from "./call-kind.js";
import { keyInLife } from "./life-key.js";
import { Rng } from "./random.js";
import { traceCodes } from "./trace.js";
import type { SimProcess, World } from "./world.js";

const writes = ["create", "put", "delete"] as const;

/** What can go wrong with a single store call. */
export type CallFault =
  | "requestLost"
  | "responseLost"
  | "requestLate"
  | "slow"
  | "duplicate"
  | "duplicateAnswer"
  | "errorAfterApply"
  | "errorBeforeApply"
  | "conflict"
  | "slowDown"
  | "refused"
  | "shortPage"
  | "truncated"
  | "corrupted"
  | "partialDelete"
  | "crashBeforeSend"
  | "crashAfterApply"
  | "crashBeforeAnswer"
  | "stall"
  | "staleList"
  | "damagedGet"
  | "full"
  | "ambush";

/** Every fault of a store call, and the calls it can hit. */
export const callFaults: Readonly<Record<CallFault, readonly CallKind[]>> = {
  /** The request never arrives; the caller times out. */
  requestLost: callKinds,
  /** Applied, and the answer never arrives. */
  responseLost: callKinds,
  /** Arrives minutes later, long after the caller gave up. */
  requestLate: writes,
  /** Takes seconds. */
  slow: callKinds,
  /** Applied a second time, soon or minutes later; the caller hears of the first. */
  duplicate: writes,
  /** Applied twice in a row; the caller hears of the second, so a conditional create that won says 412. */
  duplicateAnswer: writes,
  /** 500 although it was applied. */
  errorAfterApply: callKinds,
  /** 500, and nothing was applied. */
  errorBeforeApply: callKinds,
  /** 409 or 429: no verdict, nothing applied. */
  conflict: ["create"],
  /** 503 SlowDown, nothing applied. */
  slowDown: callKinds,
  /** No connection: certainly not sent. */
  refused: callKinds,
  /** A LIST page with fewer keys than there are, and `more`. */
  shortPage: ["list"],
  /** A range read that ends early. */
  truncated: ["getRange"],
  /** A range read with one bit flipped. */
  corrupted: ["getRange"],
  /** Some keys of a bulk delete are gone, then an error. */
  partialDelete: ["delete"],
  /** The process dies with the request unsent. */
  crashBeforeSend: callKinds,
  /** The process dies at the moment its request is applied. */
  crashAfterApply: writes,
  /** The process dies when the answer is there and not yet read. */
  crashBeforeAnswer: callKinds,
  /** The process is suspended with the request unsent, and sends it when it wakes: a zombie. */
  stall: callKinds,
  /** A LIST page as it would have been some time ago. */
  staleList: ["list"],
  /** A whole object with one bit flipped, or cut off. */
  damagedGet: ["get"],
  /** No room: certainly nothing was written, and there is no use in trying again at once. */
  full: ["create", "put"],
  /**
   * A reader is suspended with its request unsent because a writer stalls on its way to creating that very object; it wakes soon after
   * the writer. If the name was reclaimed meanwhile, it reads the zombie. Never drawn by itself: `ambushRate`.
   */
  ambush: ["get"],
};

/** A stretch of time in which one fault is common. */
export interface Storm {
  readonly fault: CallFault;
  /** Only these calls; all that the fault can hit unless told. */
  readonly kinds?: readonly CallKind[] | undefined;
  /** Only keys that start with this. */
  readonly prefix?: string | undefined;
  readonly meanGapMs: number;
  readonly durationMs: readonly [number, number];
  /** Share of calls hit while it lasts. */
  readonly probability: number;
}

/** How much goes wrong. Plain data. */
export interface FaultProfile {
  /** Probability per call; a number counts for every kind of call that the fault can hit. */
  readonly calls?:
    | { readonly [fault in CallFault]?: number | { readonly [kind in CallKind]?: number } | undefined }
    | undefined;
  readonly storms?: readonly Storm[] | undefined;
  /** At most this many instances of a kind in a run. */
  readonly budgets?: Readonly<Record<string, number>> | undefined;
  /** How late a late request lands. */
  readonly lateMs?: readonly [number, number] | undefined;
  /** How old a stale listing is; a tenth of a second to three unless told. The store must remember that long. */
  readonly staleMs?: readonly [number, number] | undefined;
  /** Share of reads of an object whose creation stalls that are ambushed. */
  readonly ambushRate?: number | undefined;
  /** How long a stalled process is gone. */
  readonly stallMs?: readonly [number, number] | undefined;
}

/** Which instances may happen at all, by id. Everything may unless told. */
export interface FaultFilter {
  /** These must not. */
  readonly suppressed?: ReadonlySet<string> | undefined;
  /** Only these may: how a minimized failure is replayed. */
  readonly only?: ReadonlySet<string> | undefined;
}

/** One fault that happened. */
export interface FaultInstance {
  /** Names it for a {@link FaultFilter}. */
  readonly id: string;
  /** Place in the order of the run. */
  readonly ordinal: number;
  readonly kind: string;
  readonly timeMs: number;
}

interface Row {
  readonly faults: readonly CallFault[];
  /** Running sum of probabilities; the last is the chance of any fault. */
  readonly upTo: readonly number[];
  readonly total: number;
}

/** Decides about every instance, and counts those that happened. */
export class FaultInjector {
  /** False once the run heals: nothing new goes wrong, what is under way still lands. */
  enabled = true;
  /** The name that a process which stalls with this request will try to create when it wakes up. A cast knows better. */
  leadsTo: (process: SimProcess, kind: CallKind, key: string) => string | undefined = (_, kind, key) =>
    kind === "create" ? key : undefined;
  /** Every instance that happened, in order. */
  readonly instances: FaultInstance[] = [];
  readonly #world: World;
  readonly #profile: FaultProfile;
  readonly #filter: FaultFilter;
  readonly #rows: Readonly<Record<CallKind, Row>>;
  readonly #counts = new Map<string, number>();
  /** When the process that will create this key wakes up. */
  readonly #stalled = new Map<string, number>();
  readonly #storms = new Set<{ readonly storm: Storm; readonly kinds: readonly CallKind[]; readonly rng: Rng }>();

  constructor(world: World, profile: FaultProfile = {}, filter: FaultFilter = {}) {
    this.#world = world;
    this.#profile = profile;
    this.#filter = filter;
    this.#rows = Object.fromEntries(callKinds.map((kind) => [kind, tableRow(profile, kind)])) as Record<CallKind, Row>;
    for (const [i, storm] of (profile.storms ?? []).entries()) this.#brew(storm, i);
  }

  /** How many instances of each kind happened. */
  get counts(): ReadonlyMap<string, number> {
    return this.#counts;
  }

  /** How late a late request lands. */
  lateMs(rng: Rng): number {
    return rng.between(...(this.#profile.lateMs ?? ([30_000, 600_000] as const)));
  }

  /** How old a stale listing is. */
  staleMs(rng: Rng): number {
    return rng.between(...(this.#profile.staleMs ?? ([100, 3000] as const)));
  }

  /** Suspends a process that is about to send a request. */
  stall(process: SimProcess, kind: CallKind, key: string, callIndex: number): void {
    const rng = this.detail(process, callIndex);
    const durationMs = rng.between(...(this.#profile.stallMs ?? ([20_000, 400_000] as const)));
    this.#world.pause(process, durationMs);
    const name = this.leadsTo(process, kind, key);
    if (name !== undefined && this.#profile.ambushRate) this.#stalled.set(name, this.#world.nowMs + durationMs);
  }

  /** Suspends a reader until shortly after the writer whose object it asks for has woken up. */
  ambush(process: SimProcess, key: string, callIndex: number): void {
    const wakesMs = this.#stalled.get(key) ?? this.#world.nowMs;
    this.#world.pause(process, wakesMs - this.#world.nowMs + this.detail(process, callIndex).exponential(800));
  }

  /** What happens to call number `callIndex` of a process. Always one draw from `rng`, whatever comes of it. */
  forCall(process: SimProcess, kind: CallKind, key: string, callIndex: number, rng: Rng): CallFault | undefined {
    const row = this.#rows[kind];
    const u = rng.next();
    if (!this.enabled) return undefined;
    if (u < row.total) {
      let i = 0;
      while (u >= (row.upTo[i] as number)) i++;
      const fault = row.faults[i] as CallFault;
      return this.allow(fault, `${process.label}#${callIndex}:${fault}`) ? fault : undefined;
    }
    for (const { storm, kinds, rng: stormRng } of this.#storms) {
      if (!kinds.includes(kind) || !keyInLife(key).startsWith(storm.prefix ?? "")) continue;
      if (!stormRng.chance(storm.probability)) continue;
      return this.allow(storm.fault, `${process.label}#${callIndex}:${storm.fault}`) ? storm.fault : undefined;
    }
    if (kind !== "get" || this.#stalled.size === 0) return undefined;
    const wakesMs = this.#stalled.get(key) ?? 0;
    if (wakesMs <= this.#world.nowMs || !this.detail(process, callIndex).chance(this.#profile.ambushRate ?? 0))
      return undefined;
    return this.allow("ambush", `${process.label}#${callIndex}:ambush`) ? "ambush" : undefined;
  }

  /** Chance for the details of one call's fault: its own, so that nothing else shifts. */
  detail(process: SimProcess, callIndex: number): Rng {
    return new Rng(this.#world.seed, `fault/${process.label}#${callIndex}`);
  }

  /** Whether this instance may happen; if so it counts as having happened. */
  allow(kind: string, id: string): boolean {
    if (!this.enabled || this.#filter.suppressed?.has(id) || this.#filter.only?.has(id) === false) return false;
    const count = this.#counts.get(kind) ?? 0;
    if (count >= (this.#profile.budgets?.[kind] ?? Number.POSITIVE_INFINITY)) return false;
    this.#counts.set(kind, count + 1);
    const { trace, nowMs } = this.#world;
    this.instances.push({ id, ordinal: this.instances.length, kind, timeMs: nowMs });
    trace.hashEvent(nowMs, traceCodes.fault, this.instances.length);
    if (trace.complete) trace.describe(nowMs, "faults", kind, id, "");
    return true;
  }

  /**
   * Lets something go wrong again and again at random times: crashes, pauses, clock jumps, a second holder, a rollback.
   * `strike` chooses the victim and returns the blow, or undefined when there is nobody to hit, which does not count.
   */
  recurring(kind: string, meanGapMs: number, strike: (rng: Rng) => (() => void) | undefined): void {
    const gaps = this.#world.rng(`recurring/${kind}`);
    let n = 0;
    const next = (): void => {
      this.#world.after(gaps.exponential(meanGapMs), () => {
        if (!this.enabled) return;
        const id = `${kind}@${n++}`;
        const hit = strike(new Rng(this.#world.seed, `fault/${id}`));
        if (hit !== undefined && this.allow(kind, id)) hit();
        next();
      });
    };
    next();
  }

  #brew(storm: Storm, index: number): void {
    const name = `storm:${storm.fault}`;
    const kinds = storm.kinds ?? callFaults[storm.fault];
    this.recurring(index === 0 ? name : `${name}/${index}`, storm.meanGapMs, (rng) => () => {
      const active = { storm, kinds, rng };
      this.#storms.add(active);
      this.#world.after(rng.between(...storm.durationMs), () => this.#storms.delete(active));
    });
  }
}

function tableRow(profile: FaultProfile, kind: CallKind): Row {
  const faults: CallFault[] = [];
  const upTo: number[] = [];
  let total = 0;
  for (const fault of Object.keys(callFaults) as CallFault[]) {
    if (!callFaults[fault].includes(kind)) continue;
    const wanted = profile.calls?.[fault];
    const probability = typeof wanted === "number" ? wanted : (wanted?.[kind] ?? 0);
    if (probability <= 0) continue;
    total += probability;
    faults.push(fault);
    upTo.push(total);
  }
  if (total > 1) throw new RangeError(`the faults of ${kind} add up to ${total}, more than every call`);
  return { faults, upTo, total };
}
