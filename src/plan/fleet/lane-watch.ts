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
/** When a log stood still for so long, or a lane too long, lanes that have not moved since probably died with it: they are not waited for one by one. */
const stallMs = 2_000;
const suspectRounds = 8;

interface Progress {
  epoch: number | undefined;
  seq: number;
  /** When this was seen first, or when it last had a good reason to stand. */
  sinceMs: number;
  /** When this was seen first, or was last as far ahead as it may be. */
  movedAtMs: number;
  /** We saw it begin; else the reader that waits may know better. */
  isSeen: boolean;
  /** Its holder may have stood for another reason than its work; and it still did so when it was seen last. */
  isBlurred: boolean;
  isExcused: boolean;
  /** Between two batches, as far as was seen. */
  usualMs: number;
}

/** When a lane, or a log, stood still although it was wanted. */
export interface Stall {
  readonly fromMs: number;
  readonly toMs: number;
}

/** A lane that stands although its batch is wanted. */
interface Standing {
  readonly lane: LaneView;
  readonly standsMs: number;
  /** How long its holder may. */
  readonly patienceMs: number;
}

/** Watches one log. */
export class LaneWatch {
  readonly log: LaneLog;
  readonly #patienceMs: number;
  readonly #isShadow: boolean;
  readonly #progress = new Map<number, Progress>();
  /** Lanes that a reader waits for, and since when. */
  readonly #wanted = new Map<number, { readonly step: number; readonly sinceMs: number }>();
  #view: LogView | undefined;
  /** When a lane's batch came last, as far as was seen. */
  #batchAtMs = 0;
  /** When the log's end moved last, and the last time that it stood still. */
  #endAtMs = 0;
  #stall: Stall | undefined;
  /** Of readers, in steps a ms. */
  #rate = 0;
  #readAtMs: number | undefined;
  lookedAtMs: number = Number.NEGATIVE_INFINITY;
  /** What a batch of this log takes here, where this process holds lanes of it: another holder is given as much. */
  workMs = 0;

  /** `patienceMs`: what a lane is given at least; from when it moved (`isShadow`), or from when that was seen. */
  constructor(log: LaneLog, patienceMs: number, isShadow: boolean) {
    this.log = log;
    this.#patienceMs = patienceMs;
    this.#isShadow = isShadow;
  }

  get view(): LogView | undefined {
    return this.#view;
  }

  get isWanted(): boolean {
    return this.#wanted.size > 0;
  }

  /** A look, begun at `nowMs`; the newest version was made `ageMs` before that, by its maker's clock. */
  observe(view: LogView, nowMs: number, ageMs: number): void {
    // What is new came between two looks. Its maker's clock tells when; a wrong one cannot tell more than that.
    const cameMs = this.#view ? Math.min(nowMs, Math.max(this.lookedAtMs, nowMs - ageMs)) : nowMs;
    const movedMs = this.#isShadow ? cameMs : nowMs;
    this.lookedAtMs = nowMs;
    this.#learnRate(view, nowMs);
    const isMoved = this.#view?.end !== view.end;
    if (!isMoved && nowMs - this.#endAtMs >= stallMs) this.#stall = { fromMs: this.#endAtMs, toMs: nowMs };
    if (isMoved || view.isHeldBack) this.#endAtMs = isMoved ? movedMs : nowMs;
    this.#view = view;
    const { aheadMax = Number.POSITIVE_INFINITY } = this.log;
    for (const lane of view.lanes) {
      const { epoch, seq } = lane;
      const known = this.#progress.get(lane.lane);
      // Back-pressure, or lanes that are missing before it: its next batch takes as long as others let it.
      const isBlurred = view.isHeldBack || lane.nextStep >= view.end + nearRounds * this.log.lanes;
      if (known?.epoch === epoch && known?.seq === seq) {
        if (isBlurred) {
          known.isBlurred = true;
          known.isSeen = true;
        }
        // Its time begins when what excused it was over.
        if (isBlurred || known.isExcused) known.sinceMs = isBlurred ? nowMs : cameMs;
        known.isExcused = isBlurred;
        if (lane.nextStep >= view.end + aheadMax) known.movedAtMs = nowMs;
        continue;
      }
      if (known?.seq !== seq) this.#batchAtMs = cameMs;
      const usualMs = known && seq > known.seq ? usualOf(known, seq, nowMs) : (known?.usualMs ?? 0);
      this.#progress.set(lane.lane, {
        epoch,
        seq,
        movedAtMs: movedMs,
        sinceMs: isBlurred ? nowMs : movedMs,
        isSeen: known !== undefined,
        isBlurred,
        isExcused: isBlurred,
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

  /** For how long no batch of any lane has come: a producer that carries others' would have. */
  quietMs(nowMs: number): number {
    return nowMs - this.#batchAtMs;
  }

  /** The first of the lanes that has stood for `share` of its patience. Others that have not moved since probably stopped with it. */
  late(lanes: readonly LaneView[], nowMs: number, share: number): Stall | undefined {
    const late = this.standing(lanes, nowMs).find(({ standsMs, patienceMs }) => standsMs >= share * patienceMs);
    if (late) this.#stall = { fromMs: nowMs - late.standsMs, toMs: nowMs };
    return late && this.#stall;
  }

  /** Those of the lanes that stand although they are wanted. `death`: the last time that a lane of any log was late. */
  standing(lanes: readonly LaneView[], nowMs: number, death?: Stall | undefined): Standing[] {
    return lanes.flatMap((lane) => this.#standingOf(lane, nowMs, death) ?? []);
  }

  #standingOf(lane: LaneView, nowMs: number, death: Stall | undefined): Standing | undefined {
    const view = this.#view;
    const known = this.#progress.get(lane.lane);
    if (!view || !known || view.isHeldBack) return undefined;
    const wanted = this.#wanted.get(lane.lane);
    const isHinted = wanted !== undefined && wanted.step >= lane.nextStep;
    const isSuspect = hasStoppedWith(this.#stall, known, nowMs);
    const { lanes, aheadMax = Number.POSITIVE_INFINITY } = this.log;
    const nextMax = view.end + (isSuspect ? Math.min(suspectRounds * lanes, aheadMax) : lanes);
    if (!isHinted && lane.nextStep >= Math.min(this.log.steps, nextMax)) return undefined;
    // Whoever waits for the log's end waits for its next round too: its steps come in their order. And a process that died held lanes of
    // other logs, which readers who are close behind will wait for next.
    const isNext = this.#isEndWanted || (view.isReadClosely && hasStoppedWith(death, known, nowMs));
    const isWaitedFor = isHinted || lane.nextStep < view.reached || isNext;
    // The reader that waits has watched for longer than we have, perhaps.
    const seenMs = isSuspect ? known.movedAtMs : known.sinceMs;
    const sinceMs = wanted && !known.isSeen ? Math.min(seenMs, wanted.sinceMs) : seenMs;
    // More, the longer its batches take, and twice as much for every opening that led to none: no holder is robbed for ever for being slow.
    const usualMs = Math.max(known.usualMs, this.workMs);
    const ownMs = Math.max(this.#patienceMs, usualFactor * usualMs) * 2 ** Math.min(lane.openings, doublingsMax);
    return { lane, standsMs: nowMs - sinceMs, patienceMs: ownMs * (isWaitedFor ? 1 : unaskedFactor) };
  }

  get #isEndWanted(): boolean {
    const end = this.#view?.end ?? 0;
    for (const { step } of this.#wanted.values()) if (step >= end) return true;
    return false;
  }
}

/** A lane that did not move while another, or its log, stood still, nor since: its holder probably went with the one that held things up. */
function hasStoppedWith(stall: Stall | undefined, { movedAtMs }: Progress, nowMs: number): boolean {
  return stall !== undefined && nowMs - stall.toMs < 5 * stallMs && movedAtMs <= stall.fromMs + stallMs / 2;
}

function usualOf(known: Progress, seq: number, nowMs: number): number {
  if (known.isBlurred) return known.usualMs;
  const eachMs = (nowMs - known.sinceMs) / (seq - known.seq);
  return known.usualMs === 0 ? eachMs : known.usualMs + alpha * (eachMs - known.usualMs);
}
