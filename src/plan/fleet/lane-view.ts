/** What one look at a log shows of its lanes. Pure. */
import type { NamespaceInfo } from "../../index.js";
import { type LaneLog, laneProducer } from "./lane-log.js";

/** One lane. */
export interface LaneView {
  readonly lane: number;
  /** Of its holder; 0: never held; undefined: so long silent that the manifest no longer says. */
  readonly epoch: number | undefined;
  readonly seq: number;
  /** Never opened, or closed by its holder. */
  readonly isFree: boolean;
  /** Openings since its last batch. */
  readonly openings: number;
  /** Of its next batch. */
  readonly nextStep: number;
}

/** One log. */
export interface LogView {
  readonly closed: boolean;
  readonly end: number;
  readonly lanes: readonly LaneView[];
  /** The first step that no lane has written, nor any above it. */
  readonly reached: number;
  /** The step up to which readers have come: the newest checkpoint of the slowest group, or the trim. */
  readonly readTo: number;
  /** Producers wait for a checkpoint: that a lane stands still says nothing about its holder. */
  readonly isHeldBack: boolean;
  /** Readers are known, and nearer to its end than to where producers would wait for them. */
  readonly isReadClosely: boolean;
  /** When its newest version was made, by its maker's clock. */
  readonly madeAtMs: number;
}

/** The lanes of a log, as its newest manifest has them. */
export function viewOf({ ns, lanes, steps }: LaneLog, info: NamespaceInfo): LogView {
  const { end, trim } = info.steps;
  const found = new Map(info.producers.map((producer) => [producer.id, producer]));
  const views = Array.from({ length: lanes }, (_, lane): LaneView => {
    const producer = found.get(laneProducer(lane));
    const seq = producer?.seq ?? 0;
    const nextStep = ns.firstOwnStep + seq * lanes + lane;
    if (producer) {
      const { epoch, hasLeft, openings } = producer;
      return { lane, epoch, seq, isFree: hasLeft, openings, nextStep };
    }
    return { lane, epoch: info.silentTables > 0 ? undefined : 0, seq, isFree: true, openings: 0, nextStep };
  });
  const written = views.flatMap(({ seq, nextStep }) => (seq > 0 ? [nextStep - lanes + 1] : []));
  const readers = readersAt(info);
  const readTo = readers ?? trim;
  const lag = info.maxLag ?? Number.POSITIVE_INFINITY;
  return {
    closed: info.closed,
    end,
    lanes: views,
    reached: Math.min(steps, Math.max(end, ...written)),
    readTo,
    isHeldBack: end - readTo >= lag,
    isReadClosely: readers !== undefined && end - readTo < lag / 2,
    madeAtMs: info.lastCommit.timeMs,
  };
}

/** Of the newest checkpoints of all groups the lowest; undefined without any. */
function readersAt({ checkpoints }: NamespaceInfo): number | undefined {
  const newest = new Map<string, number>();
  for (const { group, step } of checkpoints) newest.set(group, Math.max(step, newest.get(group) ?? 0));
  return newest.size === 0 ? undefined : Math.min(...newest.values());
}
