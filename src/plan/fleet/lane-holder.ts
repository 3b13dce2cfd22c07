/**
 * Who holds which lane. Processes are equal and have no number: each looks at the logs, takes lanes that are free, takes over lanes that stand still
 * while they are wanted, fills what ended lanes leave open, and closes a log when all its lanes have ended. A lane is held by its producer's epoch, so
 * two who want the same one cannot both write: being wrong costs time, never data.
 */
import { setMaxListeners } from "node:events";
import { type Env, isBatchWeaveError, type Producer, type ProducerOptions } from "../../index.js";
import type { FleetHints } from "./fleet-hints.js";
import { HeldLane, type LaneFate } from "./held-lane.js";
import { type LaneBatch, type LaneLog, laneProducer } from "./lane-log.js";
import { type LaneView, viewOf } from "./lane-view.js";
import { LaneWatch, type Stall } from "./lane-watch.js";
import { LogEnds } from "./log-ends.js";
import { Rounds } from "./rounds.js";
import { Shadows } from "./shadows.js";
import { Turns } from "./turns.js";

/** Settings and events of {@link holdLanes}. */
export interface HoldOptions {
  /** Lanes that this process holds at most, those that have ended aside. Default: any number. */
  readonly lanesMax?: number | undefined;
  /** Logs of which it holds lanes at most: each has open files and buffers. Default: any number. */
  readonly logsMax?: number | undefined;
  /** Lanes whose batches are made at a time. Default 4. */
  readonly lanesAtOnce?: number | undefined;
  /** Waits little more than half as long before it takes a lane over, and has its next batch ready by then. */
  readonly shadow?: boolean | undefined;
  /** What a lane that stands still while it is wanted is given at least. Default 3,000. */
  readonly patienceMs?: number | undefined;
  /** Between two rounds of looks. Default 1,000. */
  readonly lookDelayMs?: number | undefined;
  /** Lanes taken over or given up a minute at most: each costs a commit and work that was begun. Default 60. */
  readonly handoversPerMinuteMax?: number | undefined;
  readonly producer?: Omit<ProducerOptions, "id" | "signal" | "takeover"> | undefined;
  /** What others wait for, and how many lanes they hold. */
  readonly hints?: FleetHints | undefined;
  /** After a batch was accepted; `pending` of its lane are not yet known to be in the log. */
  readonly onBatch?: ((made: MadeBatch) => void) | undefined;
  readonly onHandover?: ((event: Handover) => void) | undefined;
  /** Gives everything up: lanes are closed, so that others go on at once. */
  readonly signal?: AbortSignal | undefined;
}

/** A batch of a lane. */
interface MadeBatch {
  readonly log: LaneLog;
  readonly lane: number;
  readonly batch: LaneBatch;
  readonly isFiller: boolean;
  readonly pending: number;
}

/** A lane that came or went. */
export interface Handover {
  /** Free and taken; taken over from a holder that stood still; given up; lost to another process; broken: given back by a failure that passes. */
  readonly kind: "taken" | "taken-over" | "given-up" | "lost" | "broken";
  readonly log: LaneLog;
  readonly lane: number;
  readonly epoch: number;
  /** Why it is broken. */
  readonly reason?: string | undefined;
}

/** What a process did for its logs. */
export interface HoldOutcome {
  /** All logs are closed. False: the signal aborted. */
  readonly isOver: boolean;
  readonly batches: number;
  readonly fillers: number;
  readonly handovers: Readonly<Record<Handover["kind"], number>>;
}

/** Time that a process which was told to stop takes for what is on its way. */
const stopMsMax = 1_000;
/** Lanes opened in one round at most; the first round takes one, so that processes which start together share. */
const claimsMax = 64;
/** An own batch that is wanted and not in the log for so long is asked for. */
const hurryMs = 500;
const dueMarginMs = 10;
/** Of the patience, a shadow's; and the part after which it makes the next batch. */
const shadowShare = 0.55;
const preparedShare = 0.25;
/** A shadow that has not made a batch by then takes its lane all the same. */
const slowFactor = 8;
/** A log without a batch for so long has no carrier, or an idle one. */
const quietMs = 1_000;
/** Lanes taken over in one round at most. */
const takeoversMax = 8;
/** A lane that this process gave up is left to others for so long. */
const shyMs = 10_000;
const minuteMs = 60_000;

/** Works on lanes of the logs until all are closed, or the signal aborts. */
export async function holdLanes(env: Env, logs: readonly LaneLog[], options: HoldOptions = {}): Promise<HoldOutcome> {
  return await new LaneHolder(env, logs, options).run();
}

class LaneHolder {
  readonly #env: Env;
  readonly #options: HoldOptions;
  readonly #watches: Map<LaneLog, LaneWatch>;
  readonly #held = new Map<LaneLog, Map<number, HeldLane>>();
  readonly #turns: Turns;
  readonly #ends: LogEnds;
  readonly #shadows: Shadows;
  readonly #rounds: Rounds;
  readonly #stop = new AbortController();
  /** Lanes that were given up, and until when they are left to others. */
  readonly #shy = new Map<string, number>();
  /** Epochs of lanes that failed in our hands: no other process holds them. */
  readonly #broken = new Map<string, number>();
  readonly #counts = {
    batches: 0,
    fillers: 0,
    handovers: { taken: 0, "taken-over": 0, "given-up": 0, lost: 0, broken: 0 },
  };
  #failure: { readonly error: unknown } | undefined;
  #claims = 1;
  /** Handovers that may still be made now; refilled as time passes. */
  #credit: number;
  #creditAtMs: number;
  #gaveUpAtMs = Number.NEGATIVE_INFINITY;
  /** The last time that a lane was late. */
  #death: Stall | undefined;
  /** When a lane that is wanted will have stood for too long. */
  #dueAtMs = Number.POSITIVE_INFINITY;
  /** Since when this process has held more than its share. */
  #aboveSinceMs: number | undefined;

  constructor(env: Env, logs: readonly LaneLog[], options: HoldOptions) {
    this.#env = env;
    this.#options = options;
    const { patienceMs = 3_000, lookDelayMs = 1_000, lanesAtOnce = 4, shadow = false } = options;
    this.#watches = new Map(logs.map((log) => [log, new LaneWatch(log, patienceMs, shadow)]));
    // All calls and lanes under way listen to it.
    setMaxListeners(0, this.#stop.signal);
    this.#turns = new Turns(lanesAtOnce);
    this.#ends = new LogEnds(env);
    this.#shadows = new Shadows(this.#stop.signal);
    this.#rounds = new Rounds(env, lookDelayMs, shadow);
    this.#credit = this.#handoversMax;
    this.#creditAtMs = env.monotonic();
  }

  get #handoversMax(): number {
    return this.#options.handoversPerMinuteMax ?? 60;
  }

  async run(): Promise<HoldOutcome> {
    const { signal } = this.#options;
    const stop = (): void => this.#stop.abort(signal?.reason);
    signal?.addEventListener("abort", stop, { once: true });
    try {
      if (signal?.aborted) stop();
      while (this.#watches.size > 0 && !this.#stop.signal.aborted) {
        const begunMs = this.#env.monotonic();
        await this.#round();
        if (this.#failure) throw this.#failure.error;
        if (this.#watches.size === 0) break;
        const nowMs = this.#env.monotonic();
        // The next round takes about as long: the lane is to be seen in it, and not just before.
        const dueMs = this.#dueAtMs - nowMs - (nowMs - begunMs) / 2 + dueMarginMs;
        await this.#env.sleep(this.#rounds.pauseMs(dueMs), this.#stop.signal);
      }
    } catch (error) {
      if (this.#failure || !signal?.aborted) {
        await this.#leave();
        throw error;
      }
    } finally {
      signal?.removeEventListener("abort", stop);
    }
    await this.#leave();
    return { isOver: this.#watches.size === 0, ...this.#counts };
  }

  /** Closes what is held: first all but one of a log, whose leaving is only announced, then the one that writes it down for all. */
  async #leave(): Promise<void> {
    this.#stop.abort(new Error("lanes are given up"));
    const [late, done] = [new AbortController(), new AbortController()];
    const over = this.#env.sleep(stopMsMax, done.signal).then(
      () => late.abort(new Error("no time left")),
      () => {},
    );
    const leaving = [...this.#held.values()].map(async (lanes) => {
      const [last, ...others] = [...lanes.values()].reverse();
      await Promise.all(others.map((lane) => lane.leave(late.signal)));
      await last?.leave(late.signal);
    });
    await Promise.all([...leaving, this.#shadows.clear()]);
    done.abort();
    await over;
    await this.#options.hints?.leave();
  }

  async #round(): Promise<void> {
    const { signal } = this.#stop;
    const hinted = await this.#readHints();
    const watches = [...this.#watches.values()];
    const looks = this.#rounds.choose(watches, (watch) => ({
      isHeld: this.#lanesOf(watch).size > 0,
      isUrgent: hinted.has(watch) || watch.isWanted || [...this.#lanesOf(watch).values()].some((l) => l.isEnded),
    }));
    await Promise.all(looks.map((watch) => this.#look(watch, signal)));
    const open = looks.filter((watch) => this.#watches.has(watch.log));
    const tried = (await this.#claim(open)) + (await this.#takeOver(open));
    this.#giveUp();
    this.#rounds.learn({ isActive: tried > 0, isWanted: hinted.size > 0, lanes: this.#working });
  }

  /** Hints may be wrong, late, or lost: a failure to read them is none. */
  async #readHints(): Promise<Set<LaneWatch>> {
    const { hints } = this.#options;
    const found = new Set<LaneWatch>();
    if (!hints) return found;
    const wanted = await hints.read({ lanes: this.#working, signal: this.#stop.signal });
    const byName = new Map([...this.#watches.values()].map((watch) => [watch.log.name, watch]));
    for (const { source, block, sinceMs } of wanted) {
      const watch = byName.get(source);
      if (!watch) continue;
      watch.want(block, sinceMs);
      found.add(watch);
    }
    return found;
  }

  #lanesOf({ log }: LaneWatch): Map<number, HeldLane> {
    return this.#held.get(log) ?? new Map();
  }

  /** Lanes that have something to make. */
  get #working(): number {
    let count = 0;
    for (const lanes of this.#held.values()) for (const lane of lanes.values()) if (!lane.isEnded) count++;
    return count;
  }

  async #look(watch: LaneWatch, signal: AbortSignal): Promise<void> {
    const { log } = watch;
    const begunMs = this.#env.monotonic();
    const begunAtMs = this.#env.now();
    const view = viewOf(log, await log.ns.info({ signal }));
    watch.observe(view, begunMs, begunAtMs - view.madeAtMs);
    const own = this.#lanesOf(watch);
    for (const held of own.values()) {
      const seen = view.lanes[held.lane] as LaneView;
      const { epoch = 0 } = seen;
      if (view.closed) held.drop("CLOSED");
      else if (epoch > held.epoch) held.drop("FENCED");
      else held.reach(view.reached, view.end);
      if (held.pendingBatches > 0 && (watch.standing([seen], begunMs)[0]?.standsMs ?? 0) >= hurryMs) held.hurry();
    }
    const isOver = view.closed || (await this.#ends.finish(log, view, own, signal));
    if (!isOver) return;
    for (const held of own.values()) held.drop("CLOSED");
    this.#watches.delete(log);
  }

  /** Those there is room for, in their order. */
  #fitting<T extends { readonly watch: LaneWatch }>(wanted: readonly T[], max: number): T[] {
    const { lanesMax = Number.POSITIVE_INFINITY, logsMax = Number.POSITIVE_INFINITY } = this.#options;
    const logs = new Set([...this.#held].filter(([, lanes]) => lanes.size > 0).map(([log]) => log));
    const room = Math.min(max, Math.max(0, lanesMax - this.#working));
    const fitting: T[] = [];
    for (const one of wanted) {
      const { log } = one.watch;
      if (fitting.length >= room) break;
      if (!logs.has(log) && logs.size >= logsMax) continue;
      logs.add(log);
      fitting.push(one);
    }
    return fitting;
  }

  /** Takes free lanes, a quarter at most: twice as many as the last time, unless another process wanted the same. Gives how many it tried. */
  async #claim(watches: readonly LaneWatch[]): Promise<number> {
    const free = watches.flatMap((watch) =>
      this.#candidates(watch, ({ isFree, epoch }, name) => {
        if (this.#broken.has(name)) return this.#broken.get(name) === epoch;
        return isFree && !this.#isShy(name);
      }),
    );
    // Needed first; among equals by chance, so that two processes begin with different ones.
    const order = free
      .map((one) => ({ ...one, leftMs: one.watch.roundLeftMs(one.view), draw: this.#env.random() }))
      .sort((a, b) => a.leftMs - b.leftMs || a.draw - b.draw);
    const chosen = this.#fitting(order, Math.min(this.#claims, Math.ceil(free.length / 4)));
    const opened = await Promise.all(chosen.map(({ watch, view }) => this.#open(watch, view, "taken")));
    if (opened.length > 0) this.#claims = opened.includes(false) ? 1 : Math.min(claimsMax, 2 * this.#claims);
    return opened.length;
  }

  #candidates(
    watch: LaneWatch,
    filter: (lane: LaneView, name: string) => boolean,
  ): { readonly watch: LaneWatch; readonly view: LaneView }[] {
    const own = this.#lanesOf(watch);
    return (watch.view?.lanes ?? [])
      .filter((view) => !own.has(view.lane) && filter(view, nameOf(watch.log, view.lane)))
      .map((view) => ({ watch, view }));
  }

  #isShy(name: string): boolean {
    const untilMs = this.#shy.get(name);
    if (untilMs === undefined) return false;
    if (this.#env.monotonic() < untilMs) return true;
    this.#shy.delete(name);
    return false;
  }

  /** Takes over lanes that stand still although they are wanted: the least busy process comes first. Gives how many it tried. */
  async #takeOver(watches: readonly LaneWatch[]): Promise<number> {
    const nowMs = this.#env.monotonic();
    const { shadow = false } = this.#options;
    const late: { readonly watch: LaneWatch; readonly view: LaneView }[] = [];
    const near = new Set<string>();
    this.#dueAtMs = Number.POSITIVE_INFINITY;
    // Who has more to do than it can waits a little longer than who has not.
    const share = shadow ? shadowShare : this.#turns.isFull ? 1.5 : 1;
    const others = watches.map((watch) => ({
      watch,
      lanes: this.#candidates(watch, ({ isFree }) => !isFree).map(({ view }) => view),
    }));
    for (const { watch } of others)
      watch.workMs = Math.max(0, ...[...this.#lanesOf(watch).values()].map(({ workMs }) => workMs));
    for (const { watch, lanes } of others) {
      const missed = lanes.filter((view) => !this.#shadows.isMaking(watch.log, view));
      this.#death = watch.late(missed, nowMs, share) ?? this.#death;
    }
    for (const { watch, lanes } of others) {
      for (const { lane: view, standsMs, patienceMs } of watch.standing(lanes, nowMs, this.#death)) {
        const leftMs = share * patienceMs - standsMs;
        // A holder that began sooner is not late before the same batch is made here, within reason.
        const isSlow = this.#shadows.isMaking(watch.log, view) && standsMs < slowFactor * patienceMs;
        if (leftMs > 0) this.#dueAtMs = Math.min(this.#dueAtMs, nowMs + leftMs);
        else if (!isSlow) late.push({ watch, view });
        if (shadow && standsMs >= preparedShare * patienceMs) {
          near.add(nameOf(watch.log, view.lane));
          this.#shadows.prepare(watch.log, view);
        }
      }
    }
    this.#shadows.keep(near);
    late.sort((a, b) => a.watch.leftMs(a.view.nextStep) - b.watch.leftMs(b.view.nextStep));
    const chosen = this.#fitting(late, Math.min(this.#handoversLeft(), takeoversMax));
    this.#credit -= chosen.length;
    await Promise.all(
      [...new Set(chosen.map(({ watch }) => watch))].map(async (watch) => {
        const [first, ...others] = chosen.filter((one) => one.watch === watch).map(({ view }) => view);
        // Openings of one log get into each other's way: what is needed first goes first. Where no batch comes any more, the carrier went, too.
        if (first) await this.#open(watch, first, "taken-over", watch.quietMs(nowMs) >= quietMs);
        await Promise.all(others.map((view) => this.#open(watch, view, "taken-over")));
      }),
    );
    return chosen.length;
  }

  #handoversLeft(): number {
    const nowMs = this.#env.monotonic();
    const max = this.#handoversMax;
    this.#credit = Math.min(max, this.#credit + ((nowMs - this.#creditAtMs) * max) / minuteMs);
    this.#creditAtMs = nowMs;
    return Math.floor(this.#credit);
  }

  /** Opens a lane's producer, if it is still held as it was seen. False: another process was faster. */
  async #open(
    watch: LaneWatch,
    view: LaneView,
    kind: "taken" | "taken-over",
    carries: boolean = false,
  ): Promise<boolean> {
    const { log } = watch;
    const { cadence = { kind: "cooperative", carries } } = this.#options.producer ?? {};
    const { lane, epoch } = view;
    const { signal } = this.#stop;
    let producer: Producer;
    try {
      const takeover = epoch === undefined ? true : { epoch };
      const id = laneProducer(lane);
      producer = await log.ns.producer({ ...this.#options.producer, id, cadence, takeover, signal });
    } catch (error) {
      if (isBatchWeaveError(error, "FENCED") || isBatchWeaveError(error, "CLOSED")) return false;
      if (isBatchWeaveError(error) && error.remedy === "retry") return false;
      throw error;
    }
    this.#broken.delete(nameOf(log, lane));
    const shadow = await this.#shadows.take(log, lane, producer.nextSeq);
    const at = { seq: producer.nextSeq, resumePoint: producer.resumePoint };
    try {
      const writer = shadow?.writer ?? (await log.open(lane, at, signal));
      this.#hold(
        watch,
        new HeldLane({
          env: this.#env,
          log,
          lane,
          producer,
          writer,
          ready: shadow?.batch,
          turns: this.#turns,
          leftMs: (step) => watch.leftMs(step),
          onBatch: (batch, isFiller) => this.#onBatch(log, lane, batch, isFiller),
        }),
      );
    } catch (error) {
      await producer.close().catch(() => {});
      throw error;
    }
    this.#tell({ kind, log, lane, epoch: producer.epoch });
    return true;
  }

  #hold(watch: LaneWatch, held: HeldLane): void {
    const { log, lane } = held;
    const lanes = this.#held.get(log) ?? new Map<number, HeldLane>();
    this.#held.set(log, lanes.set(lane, held));
    if (watch.view) held.reach(watch.view.reached, watch.view.end);
    held.fate.then((fate) => this.#onFate(held, fate));
  }

  #onFate({ log, lane, epoch }: HeldLane, fate: LaneFate): void {
    this.#held.get(log)?.delete(lane);
    const kind = { left: "given-up", lost: "lost", broken: "broken", closed: undefined, failed: undefined } as const;
    if (fate.kind === "broken") this.#broken.set(nameOf(log, lane), epoch);
    if (fate.kind === "failed") {
      this.#failure ??= { error: fate.error };
      this.#stop.abort(fate.error);
    }
    const told = kind[fate.kind];
    const reason = fate.kind === "broken" ? fate.error.message : undefined;
    if (told) this.#tell({ kind: told, log, lane, epoch, reason });
  }

  #onBatch(log: LaneLog, lane: number, batch: LaneBatch, isFiller: boolean): void {
    if (isFiller) this.#counts.fillers++;
    else this.#counts.batches++;
    const pending = this.#held.get(log)?.get(lane)?.pendingBatches ?? 0;
    this.#options.onBatch?.({ log, lane, batch, isFiller, pending });
  }

  #tell(event: Handover): void {
    this.#counts.handovers[event.kind]++;
    this.#options.onHandover?.(event);
  }

  /** Who holds clearly more than others gives one up, the one that is needed last. */
  #giveUp(): void {
    const nowMs = this.#env.monotonic();
    const { hints } = this.#options;
    if (!hints?.isAboveShare(this.#working)) {
      this.#aboveSinceMs = undefined;
      return;
    }
    // Those who have just started hold nothing yet, and take what is free by themselves.
    this.#aboveSinceMs ??= nowMs;
    if (nowMs < Math.max(this.#gaveUpAtMs, this.#aboveSinceMs) + shyMs || this.#handoversLeft() < 1) return;
    const lanes = [...this.#held.values()].flatMap((held) => [...held.values()]).filter((lane) => !lane.isEnded);
    const leftMs = (held: HeldLane): number => this.#watches.get(held.log)?.leftMs(held.nextStep) ?? 0;
    const last = lanes.reduce<HeldLane | undefined>((a, b) => (a && leftMs(a) >= leftMs(b) ? a : b), undefined);
    if (!last) return;
    this.#credit--;
    this.#gaveUpAtMs = nowMs;
    this.#shy.set(nameOf(last.log, last.lane), nowMs + shyMs);
    last.release();
  }
}

function nameOf(log: LaneLog, lane: number): string {
  return `${log.name}/${lane}`;
}
