/**
 * The end of a log, by the process that comes last. A lane that has ended says so in the resume point of its last batch, so every process can see from the log alone
 * which lanes have ended; its holder, or the process that takes it over, fills its gaps. When all have ended and none has a gap, the log is closed.
 */
import { type Env, isBatchWeaveError } from "../../index.js";
import type { HeldLane } from "./held-lane.js";
import { type LaneLog, laneProducer } from "./lane-log.js";
import type { LaneView, LogView } from "./lane-view.js";

/** What a lane answered holds for so long, while it stands. */
const believedMs = 10_000;

/** A lane's sources have so long for their answer: what they wait for may never come. */
const askedMsMax = 2_000;
const tooLong = Symbol("no answer in time");

interface Answers {
  /** Batches in all lanes when the log was looked at last: one that grows has not ended. */
  batches: number;
  readonly over: Map<number, number>;
  /** A lane that had not ended. */
  going?: { readonly lane: number; readonly seq: number; readonly atMs: number } | undefined;
}

/** Sees to the ends of logs. */
export class LogEnds {
  readonly #env: Env;
  readonly #answers = new Map<LaneLog, Answers>();
  /** Since when lanes without a batch have stood. */
  readonly #emptySinceMs = new Map<string, number>();

  constructor(env: Env) {
    this.#env = env;
  }

  /** Closes a log all of whose lanes have ended. True: it is closed. Asks others' lanes, one by one, once the log stands still. */
  async finish(log: LaneLog, view: LogView, own: ReadonlyMap<number, HeldLane>, signal: AbortSignal): Promise<boolean> {
    const batches = view.lanes.reduce((sum, { seq }) => sum + seq, 0);
    const answers = this.#answers.get(log) ?? { batches: -1, over: new Map() };
    this.#answers.set(log, answers);
    const isStill = answers.batches === batches;
    answers.batches = batches;
    const isFilled = view.lanes.every(({ nextStep }) => nextStep >= view.reached);
    const isOurs = [...own.values()].every((held) => held.isEnded && held.nextStep === view.lanes[held.lane]?.nextStep);
    if (!isStill || !isFilled || !isOurs || !(await this.#haveEnded(log, view, own, answers, signal))) return false;
    try {
      await log.ns.endLog({ signal });
      return true;
    } catch (error) {
      // Another process wrote meanwhile, above a step that is missing now.
      if (!isBatchWeaveError(error, "INVALID_ARGUMENT")) throw error;
      return false;
    }
  }

  async #haveEnded(
    log: LaneLog,
    view: LogView,
    own: ReadonlyMap<number, HeldLane>,
    answers: Answers,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { going } = answers;
    const nowMs = this.#env.monotonic();
    if (going && view.lanes[going.lane]?.seq === going.seq && nowMs < going.atMs + believedMs) return false;
    answers.going = undefined;
    for (const lane of view.lanes) {
      if (own.has(lane.lane) || answers.over.get(lane.lane) === lane.seq) continue;
      if (!(await this.#hasEnded(log, lane, signal))) {
        answers.going = { lane: lane.lane, seq: lane.seq, atMs: nowMs };
        return false;
      }
      answers.over.set(lane.lane, lane.seq);
    }
    return true;
  }

  /** A lane that wrote says so itself; one that never did has its sources asked, unless they keep us waiting. */
  async #hasEnded(log: LaneLog, { lane, nextStep }: LaneView, signal: AbortSignal): Promise<boolean> {
    if (nextStep >= log.steps) return true;
    const at = (await log.ns.producerState(laneProducer(lane), { signal })) ?? { seq: 0, resumePoint: undefined };
    if (at.seq > 0) return (at.resumePoint as { readonly over?: unknown } | null)?.over === 1;
    // Its holder may just have begun, and reads the very bytes that an answer takes.
    const nowMs = this.#env.monotonic();
    const name = `${log.name}/${lane}`;
    const sinceMs = this.#emptySinceMs.get(name) ?? nowMs;
    this.#emptySinceMs.set(name, sinceMs);
    if (nowMs < sinceMs + believedMs) return false;
    const [late, done] = [new AbortController(), new AbortController()];
    this.#env.sleep(askedMsMax, AbortSignal.any([signal, done.signal])).then(
      () => late.abort(tooLong),
      () => {},
    );
    const writer = await log.open(lane, at, signal);
    try {
      return await writer.isOver(AbortSignal.any([signal, late.signal]));
    } catch (error) {
      if (error !== tooLong) throw error;
      return false;
    } finally {
      done.abort();
      await writer.close();
    }
  }
}
