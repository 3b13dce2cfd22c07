/**
 * What a process has seen of a log over time, by its own clock: which lanes are free, which stand still while they are wanted, and how soon a step
 * will be needed. Nothing here decides what is written; being wrong costs a handover.
 */
import type { LaneLog } from "./lane-log.js";
import type { LaneView, LogView } from "./lane-view.js";

/** Weight of the newest interval. */
const alpha = 0.3;
/** A lane is given so many times what its batches usually take. */
const usualFactor = 3;
/** Doublings for openings that led to no batch. */
const doublingsMax = 10;
/** Where no reader is known to wait, but the log's next step is missing: so many times longer. */
const unaskedFactor = 3;
/** A lane so many batches ahead of the first missing step may stand for good reasons. */
const nearRounds = 2;
/** When a log stood still for so long, lanes that have not moved since probably died with what held it up: they are not waited for one by one. */
const stallMs = 2_000;
const suspectRounds = 8;

interface Progress {
  epoch: number | undefined;
  seq: number;
  /** When this was seen first, or when it last had a good reason to stand. */
  sinceMs: number;
  /** When this was seen first. */
  readonly movedAtMs: number;
  /** We saw it begin; else the reader that waits may know better. */
  isSeen: boolean;
  /** Its holder may have stood for another reason than its work. */
  isBlurred: boolean;
  /** Between two batches, as far as was seen. */
  usualMs: number;
}

/** Watches one log. */
export class LaneWatch {
  readonly log: LaneLog;
  readonly #patienceMs: number;
  readonly #progress = new Map<number, Progress>();
  /** Lanes that a reader waits for, and since when. */
  readonly #wanted = new Map<number, { readonly step: number; readonly sinceMs: number }>();
  #view: LogView | undefined;
  /** When the log's end moved last, and the last time that it stood still. */
  #endAtMs = 0;
  #stall: { readonly fromMs: number; readonly toMs: number } | undefined;
  /** Of readers, in steps a ms. */
  #rate = 0;
  #readAtMs: number | undefined;
  lookedAtMs: number = Number.NEGATIVE_INFINITY;

  /** `patienceMs`: what a lane is given at least. */
  constructor(log: LaneLog, patienceMs: number) {
    this.log = log;
    this.#patienceMs = patienceMs;
  }

  get view(): LogView | undefined {
    return this.#view;
  }

  get isWanted(): boolean {
    return this.#wanted.size > 0;
  }

  /** A look, begun at `nowMs`. */
  observe(view: LogView, nowMs: number): void {
    this.lookedAtMs = nowMs;
    this.#learnRate(view, nowMs);
    const isMoved = this.#view?.end !== view.end;
    if (!isMoved && nowMs - this.#endAtMs >= stallMs) this.#stall = { fromMs: this.#endAtMs, toMs: nowMs };
    if (isMoved) this.#endAtMs = nowMs;
    this.#view = view;
    for (const lane of view.lanes) {
      const { epoch, seq } = lane;
      const known = this.#progress.get(lane.lane);
      // Back-pressure, or lanes that are missing before it: its next batch takes as long as others let it.
      const isBlurred = view.isHeldBack || lane.nextStep >= view.end + nearRounds * this.log.lanes;
      if (known?.epoch === epoch && known?.seq === seq) {
        if (!isBlurred) continue;
        known.isBlurred = true;
        known.isSeen = true;
        known.sinceMs = nowMs;
        continue;
      }
      const usualMs = known && seq > known.seq ? usualOf(known, seq, nowMs) : (known?.usualMs ?? 0);
      this.#progress.set(lane.lane, {
        epoch,
        seq,
        movedAtMs: nowMs,
        sinceMs: nowMs,
        isSeen: known !== undefined,
        isBlurred,
        usualMs,
      });
      const wanted = this.#wanted.get(lane.lane);
      if (wanted && wanted.step < lane.nextStep) this.#wanted.delete(lane.lane);
    }
  }

  #learnRate({ readTo }: LogView, nowMs: number): void {
    const before = this.#view?.readTo;
    if (before === undefined || this.#readAtMs === undefined) this.#readAtMs = nowMs;
    else if (readTo !== before) {
      const rate = Math.max(0, readTo - before) / Math.max(1, nowMs - this.#readAtMs);
      this.#rate = this.#rate === 0 ? rate : this.#rate + alpha * (rate - this.#rate);
      this.#readAtMs = nowMs;
    }
  }

  /** A reader has waited for a step since `sinceMs`. */
  want(step: number, sinceMs: number): void {
    const { ns, lanes } = this.log;
    const lane = (step - ns.firstOwnStep) % lanes;
    const view = this.#view?.lanes[lane];
    if (lane < 0 || (view && view.nextStep > step)) return;
    const known = this.#wanted.get(lane);
    this.#wanted.set(lane, { step, sinceMs: Math.min(sinceMs, known?.sinceMs ?? sinceMs) });
  }

  /** Time until a step is needed, as readers have gone so far; below 0 when a reader waits for it. */
  leftMs(step: number): number {
    const view = this.#view;
    if (!view) return 0;
    const wanted = this.#wanted.get((step - this.log.ns.firstOwnStep) % this.log.lanes);
    if (wanted && wanted.step >= step) return wanted.step - step - 1e9;
    // One step a second, where no reader has read anything yet: the order within a log is what counts.
    return (step - view.readTo) / (this.#rate > 0 ? this.#rate : 0.001);
  }

  /** The same for a lane's next batch, not told from those of other lanes that no reader waits for either. */
  roundLeftMs({ lane, nextStep }: LaneView): number {
    const leftMs = this.leftMs(nextStep);
    return leftMs < 0 ? leftMs : Math.min(leftMs, this.leftMs(nextStep - lane));
  }

  /** How long a lane has stood although its batch is wanted, and how long its holder may; undefined: it is not wanted. */
  standing(lane: LaneView, nowMs: number): { readonly standsMs: number; readonly patienceMs: number } | undefined {
    const view = this.#view;
    const known = this.#progress.get(lane.lane);
    if (!view || !known || view.isHeldBack) return undefined;
    const wanted = this.#wanted.get(lane.lane);
    const isHinted = wanted !== undefined && wanted.step >= lane.nextStep;
    const isSuspect = this.#isSuspect(known, nowMs);
    const nextMax = view.end + (isSuspect ? suspectRounds : 1) * this.log.lanes;
    if (!isHinted && lane.nextStep >= Math.min(this.log.steps, nextMax)) return undefined;
    const isWaitedFor = isHinted || lane.nextStep < view.reached;
    // The reader that waits has watched for longer than we have, perhaps.
    const seenMs = isSuspect ? known.movedAtMs : known.sinceMs;
    const sinceMs = wanted && !known.isSeen ? Math.min(seenMs, wanted.sinceMs) : seenMs;
    // More, the longer its batches take, and twice as much for every opening that led to none: no holder is robbed for ever for being slow.
    const ownMs = Math.max(this.#patienceMs, usualFactor * known.usualMs) * 2 ** Math.min(lane.openings, doublingsMax);
    return { standsMs: nowMs - sinceMs, patienceMs: ownMs * (isWaitedFor ? 1 : unaskedFactor) };
  }

  /** A lane that did not move while the log stood still, nor since: its holder probably went with the one that held the log up. */
  #isSuspect({ movedAtMs }: Progress, nowMs: number): boolean {
    const stall = this.#stall;
    return stall !== undefined && nowMs - stall.toMs < 5 * stallMs && movedAtMs <= stall.fromMs + stallMs / 2;
  }
}

function usualOf(known: Progress, seq: number, nowMs: number): number {
  if (known.isBlurred) return known.usualMs;
  const eachMs = (nowMs - known.sinceMs) / (seq - known.seq);
  return known.usualMs === 0 ? eachMs : known.usualMs + alpha * (eachMs - known.usualMs);
}
