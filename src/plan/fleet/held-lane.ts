/** A lane in this process's hands: makes its batches one after another and appends them, until it is over, given up, lost, or the log is closed. */
import { setMaxListeners } from "node:events";
import {
  BatchWeaveError,
  type Env,
  isBatchWeaveError,
  type Producer,
  type StepReader,
  type Ticket,
} from "../../index.js";
import { type LaneBatch, type LaneLog, type LaneWriter, laneProducer } from "./lane-log.js";
import type { Turns } from "./turns.js";

/** A turn that takes longer no longer counts: a lane that waits for data of others must not keep those waiting that have theirs. */
const turnMsMax = 5_000;

/** How often a lane that is too far ahead asks how far this process knows the log to be: no request. */
const knownMs = 100;

/** Time for what a lane that is given up has on its way. */
const closeMsMax = 2_000;
const given = Symbol("no time left");

/** Components of a {@link HeldLane}. */
interface HeldLaneParts {
  readonly env: Env;
  readonly log: LaneLog;
  readonly lane: number;
  readonly producer: Producer;
  readonly writer: LaneWriter;
  /** Of the writer, made before the lane was ours. */
  readonly ready?: LaneBatch | undefined;
  readonly turns: Turns;
  /** Time until a step of the log is needed. */
  readonly leftMs: (step: number) => number;
  readonly onBatch: (batch: LaneBatch, isFiller: boolean) => void;
}

/** Why work on a lane came to an end. */
export type LaneFate =
  /** Given up, and its holder's absence is written down. */
  | { readonly kind: "left" }
  /** Another process holds it. */
  | { readonly kind: "lost" }
  /** The log is closed. */
  | { readonly kind: "closed" }
  /** It can be opened again at once, by this process too. */
  | { readonly kind: "broken"; readonly error: BatchWeaveError }
  | { readonly kind: "failed"; readonly error: unknown };

/** Whether a lane's last batch says that only fillers can follow. */
function saysOver(resumePoint: unknown): boolean {
  return (resumePoint as { readonly over?: unknown } | null | undefined)?.over === 1;
}

/** One held lane. */
export class HeldLane {
  readonly log: LaneLog;
  readonly lane: number;
  readonly epoch: number;
  readonly fate: Promise<LaneFate>;
  readonly #parts: HeldLaneParts;
  readonly #stop = new AbortController();
  #isEnded = false;
  #isReleased = false;
  /** Steps that others have reached: gaps below are filled once this lane has ended. */
  #reached = 0;
  #end = 0;
  #wake: (() => void) | undefined;
  /** Knows how far the log was when this process looked last, for whatever reason. */
  readonly #reader: StepReader;
  /** Since when its next batch has been made, and how long the last one took. */
  #begunMs: number | undefined;
  #tookMs = 0;
  /** Of the newest batch. */
  #ticket: Ticket | undefined;

  constructor(parts: HeldLaneParts) {
    this.#parts = parts;
    this.log = parts.log;
    this.lane = parts.lane;
    this.epoch = parts.producer.epoch;
    this.#reader = parts.log.ns.stepReader();
    setMaxListeners(0, this.#stop.signal);
    // In a fork, what a lane said in the first log says nothing about this one.
    this.#isEnded = parts.producer.nextSeq > 0 && saysOver(parts.producer.resumePoint);
    this.fate = this.#run();
  }

  /** Its sources have nothing left; it only fills gaps. */
  get isEnded(): boolean {
    return this.#isEnded;
  }

  get nextStep(): number {
    return this.#parts.writer.nextStep;
  }

  /** Batches that are not known to be in the log. */
  get pendingBatches(): number {
    return this.#parts.producer.pendingBatches;
  }

  /** How long a batch of it takes, as far as is known. */
  get workMs(): number {
    return Math.max(this.#tookMs, this.#parts.env.monotonic() - (this.#begunMs ?? Number.POSITIVE_INFINITY));
  }

  /** Others have written up to here; the log ends at `end`, below what waits for a missing step. */
  reach(step: number, end: number): void {
    this.#reached = Math.max(this.#reached, step);
    this.#end = Math.max(this.#end, end);
    this.#wake?.();
  }

  /** Whether what it would make now could only wait for others. */
  get #isAhead(): boolean {
    const { aheadMax = Number.POSITIVE_INFINITY } = this.log;
    return this.nextStep >= Math.max(this.#end, this.#reader.end) + aheadMax;
  }

  /** Other lanes of this process may bring the log on long before its next look. */
  async #untilNear(): Promise<void> {
    while (this.#isAhead && !this.#isReleased) await this.#parts.env.sleep(knownMs, this.#stop.signal);
  }

  /** What was accepted is wanted in the log now: the carrier may be dead, which a producer without a waiting caller notices late. */
  hurry(): void {
    this.#ticket?.committed.catch(() => {});
  }

  /** Gives it up after the batch under way. */
  release(): void {
    this.#isReleased = true;
    this.#wake?.();
  }

  /** Stops at once: what is under way is dropped, what was accepted still goes into the log until `signal` aborts. */
  async leave(signal: AbortSignal): Promise<void> {
    this.#isReleased = true;
    this.#stop.abort(new Error("the lane is given up"));
    await this.#parts.producer.close({ signal }).catch(() => {});
    await this.fate;
  }

  /** Another process holds it, or the log is closed: nothing can be written any more. */
  drop(why: "FENCED" | "CLOSED"): void {
    const what = why === "FENCED" ? "held by another process" : "of a closed log";
    this.#stop.abort(new BatchWeaveError(why, `Lane ${this.lane} of ${this.log.name} is ${what}.`));
  }

  async #run(): Promise<LaneFate> {
    const { writer } = this.#parts;
    try {
      if (this.#parts.ready) await this.#append(this.#parts.ready, false);
      while (!this.#isReleased) {
        this.#assertProducer();
        if (this.#isEnded) await this.#fill();
        else if (this.#isAhead) await this.#untilNear();
        else if (!(await this.#work())) this.#isEnded = true;
      }
      await this.#close();
      return { kind: "left" };
    } catch (error) {
      return this.#fateOf(error);
    } finally {
      await writer.close().catch(() => {});
    }
  }

  /** A lane that has nothing to append hears of a failed upload from nowhere else. */
  #assertProducer(): void {
    const { failure } = this.#parts.producer;
    if (failure !== undefined) throw failure;
  }

  /** What cannot come into the log soon, because its lane is ahead of one that is missing, is made again by the process that goes on. */
  async #close(): Promise<void> {
    if (this.#stop.signal.aborted) return;
    const [late, done] = [new AbortController(), new AbortController()];
    const tooLate = (): void => late.abort(given);
    this.#stop.signal.addEventListener("abort", tooLate, { once: true });
    this.#parts.env.sleep(closeMsMax, done.signal).then(tooLate, () => {});
    try {
      await this.#parts.producer.close({ signal: late.signal });
    } catch (error) {
      if (error !== given) throw error;
    } finally {
      done.abort();
    }
  }

  async #fateOf(error: unknown): Promise<LaneFate> {
    // Ends what the producer still does. It fails with the same, or has nothing left.
    if (this.#stop.signal.aborted && this.#isReleased) return { kind: "left" };
    await this.#parts.producer.close({ signal: AbortSignal.abort() }).catch(() => {});
    if (isBatchWeaveError(error, "FENCED")) return { kind: "lost" };
    if (isBatchWeaveError(error, "CLOSED")) return { kind: "closed" };
    // A process that stood still for long may find gone what its lane's next holder has long used: then the lane is lost, and nothing else.
    if (isBatchWeaveError(error, "RECLAIMED") || isBatchWeaveError(error, "MISSING_OBJECT")) {
      const { closed = false, producers = [] } = (await this.log.ns.info().catch(() => undefined)) ?? {};
      if (closed) return { kind: "closed" };
      if (producers.some(({ id, epoch }) => id === laneProducer(this.lane) && epoch > this.epoch))
        return { kind: "lost" };
    }
    if (isBatchWeaveError(error) && error.remedy === "retry") return { kind: "broken", error };
    return { kind: "failed", error };
  }

  /** False: the lane has ended. */
  async #work(): Promise<boolean> {
    const { writer, log, turns, leftMs } = this.#parts;
    const { signal } = this.#stop;
    if (writer.nextStep >= log.steps) return false;
    const done = await turns.take(() => leftMs(writer.nextStep), signal);
    const limit = new AbortController();
    this.#parts.env.sleep(turnMsMax, limit.signal).then(done, () => {});
    let batch: LaneBatch | undefined;
    this.#begunMs = this.#parts.env.monotonic();
    try {
      batch = await writer.next({ signal });
    } finally {
      limit.abort();
      done();
      this.#tookMs = this.#parts.env.monotonic() - this.#begunMs;
      this.#begunMs = undefined;
    }
    if (!batch) return false;
    await this.#append(batch, false);
    return true;
  }

  async #fill(): Promise<void> {
    const { writer } = this.#parts;
    const { signal } = this.#stop;
    while (writer.nextStep < this.#reached && !this.#isReleased) {
      const batch = await writer.next({ isFiller: true, signal });
      if (!batch) break;
      await this.#append(batch, true);
    }
    if (!this.#isReleased) await this.#woken();
  }

  /** Waits for a look, or until it is given up. */
  async #woken(): Promise<void> {
    const { signal } = this.#stop;
    await new Promise<void>((resolve, reject) => {
      const stop = (): void => reject(signal.reason);
      if (signal.aborted) return stop();
      signal.addEventListener("abort", stop, { once: true });
      this.#wake = () => {
        signal.removeEventListener("abort", stop);
        resolve();
      };
    });
    this.#wake = undefined;
  }

  async #append(batch: LaneBatch, isFiller: boolean): Promise<void> {
    const isFirst = this.#ticket === undefined;
    this.#ticket = await this.#parts.producer.append(batch.slices, { ...batch.append, signal: this.#stop.signal });
    // Asked again, an ended lane might leave other traces in its fillers than one that another process goes on with.
    this.#isEnded ||= saysOver(batch.append.resumePoint);
    this.#parts.onBatch(batch, isFiller);
    // A reader may have waited for this lane for long, and the carrier may be gone with its last holder.
    if (isFirst) this.hurry();
  }
}
