/** What fleets hold: logs whose lanes move between processes, and the writers that make the batches of one lane. */
import type { AppendOptions, Namespace } from "../../index.js";

/** A log whose lanes processes hold: a source log, or the training log. */
export interface LaneLog {
  /** The source's name, or "training"; for people and hints. */
  readonly name: string;
  /** Lanes order: producers `lane-0` to `lane-<lanes - 1>`. */
  readonly ns: Namespace;
  readonly lanes: number;
  /** Of the whole log at most; Infinity: until its lanes end. */
  readonly steps: number;
  /** Steps that a lane may be ahead of the log's end, where others hold it up. Default: any number. */
  readonly aheadMax?: number | undefined;
  /** Where a lane goes on. Cheap: reads nothing before `next()`. `at`: what the lane's producer says. */
  open(
    lane: number,
    at: { readonly seq: number; readonly resumePoint: unknown },
    signal?: AbortSignal | undefined,
  ): Promise<LaneWriter>;
}

/** Makes the batches of one lane; each is a function of what is in the log and the pipeline, whichever process makes it. */
export interface LaneWriter {
  readonly nextSeq: number;
  readonly nextStep: number;
  /** Whether only fillers can follow. Asked of lanes that have no batch yet. */
  isOver(signal?: AbortSignal | undefined): Promise<boolean>;
  /** Undefined: the lane has ended. With `isFiller` the batch may be empty: it fills the gap of a lane that ended before others. */
  next(options?: {
    readonly isFiller?: boolean | undefined;
    readonly signal?: AbortSignal | undefined;
  }): Promise<LaneBatch | undefined>;
  /** Lets go of what it read ahead. */
  close(): Promise<void>;
}

/** A batch that is ready to be appended. The resume point of a lane's last batch says so to every process: it has `over: 1`. */
export interface LaneBatch {
  /** All of them; or, of a batch too large for that, one after another. */
  readonly slices: readonly Uint8Array[] | AsyncIterable<Uint8Array>;
  readonly append: Omit<AppendOptions, "signal">;
  /** For the observer that is told of it. */
  readonly note?: unknown;
}

/** The producer of a lane. */
export function laneProducer(lane: number): string {
  return `lane-${lane}`;
}
