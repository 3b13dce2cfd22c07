/**
 * The resume point of a lane: all that decides its next batch. Source positions, what the mix owes, and nothing of what buffers hold: they are
 * rebuilt by reading again from the positions. Positions are themselves rare snapshots (the place of a window) and a number of samples to
 * replay from there. Small: a few dozen bytes per source.
 */
import { BatchWeaveError } from "../../index.js";
import type { SupplyPlace } from "../load/sample-supply.js";

/** JSON of a resume point at most. */
export const lanePointBytesMax = 16_384;

/** What a resume point is good for: by which rules batches are made, and the order of each source's samples. */
export interface PipelinePrint {
  /** Of grid, lanes, batch, construction and mixture. */
  readonly shape: number;
  /** Of each source, in the pipeline's order. */
  readonly sources: readonly number[];
  /** For messages. */
  readonly names: readonly string[];
  /** The same pipeline before the last stages were added to its schedule: good for lanes that have not come to step `until`. */
  readonly earlier?: readonly { readonly shape: number; readonly until: number }[] | undefined;
}

/** State of a lane after a batch. */
export interface LaneState {
  /** Batches in this log, as its producer counts them. */
  readonly seq: number;
  /** Batches made so far, in this log and those it was forked from: a number that is missing was left out of the fork. */
  readonly age: number;
  /** The first own step of the log. */
  readonly first: number;
  /** The step of seq 0 of lane 0, were it there: `base + seq * lanes + lane` is the next one. */
  readonly base: number;
  readonly lane: number;
  readonly lanes: number;
  /** By source; undefined where nothing was taken yet. */
  readonly positions: readonly (SupplyPlace | undefined)[];
  /** By source, the pieces that were used of the document at its position; 0 where none was begun. */
  readonly used: readonly number[];
  /** Credits or tokens owed, by source. */
  readonly owed: readonly number[];
  /** The step up to which `owed` was counted. */
  readonly owedAt: number;
  /** Draws that did not fit into their batch, by source: they come first in the next. */
  readonly debt: readonly number[];
  /** The sources have no sample left for this lane. */
  readonly isOver: boolean;
}

/** As it is stored. */
interface LanePoint {
  readonly v: 2;
  readonly pipeline: number;
  /** Five characters of base 36 for each source. */
  readonly sources: string;
  readonly seq: number;
  readonly age: number;
  readonly first: number;
  readonly base: number;
  readonly lane: readonly [number, number];
  readonly at: number;
  readonly positions: readonly (SupplyPlace | 0)[];
  readonly used: readonly number[] | 0;
  readonly owed: readonly number[] | 0;
  readonly debt: readonly number[] | 0;
  readonly over?: 1;
}

const printChars = 5;
const printsMax = 36 ** printChars;
const shorten = (list: readonly number[]): readonly number[] | 0 => (list.some((n) => n !== 0) ? list : 0);
const printText = (prints: readonly number[]): string =>
  prints.map((print) => (print % printsMax).toString(36).padStart(printChars, "0")).join("");
const printList = (text: string): readonly string[] => text.match(new RegExp(`.{${printChars}}`, "g")) ?? [];

/** The resume point of a state. */
export function encodeLaneState(state: LaneState, print: PipelinePrint): LanePoint {
  const point: LanePoint = {
    v: 2,
    pipeline: print.shape,
    sources: printText(print.sources),
    seq: state.seq,
    age: state.age,
    first: state.first,
    base: state.base,
    lane: [state.lane, state.lanes],
    at: state.owedAt,
    positions: state.positions.map((position) => position ?? 0),
    used: shorten(state.used),
    owed: shorten(state.owed),
    debt: shorten(state.debt),
    ...(state.isOver ? { over: 1 } : {}),
  };
  const bytes = Buffer.byteLength(JSON.stringify(point));
  // More sources than fit are allowed: the store takes a megabyte. The promise of 16 KiB is for a few hundred.
  if (bytes > lanePointBytesMax && state.positions.length <= 300) {
    throw new BatchWeaveError(
      "LIMIT",
      `The resume point of a lane takes ${bytes} bytes, and ${lanePointBytesMax} must do for ${state.positions.length} sources. A snapshot of an iterable source is too large: keep a position in it, not data.`,
      { bytes, bytesMax: lanePointBytesMax },
    );
  }
  return point;
}

/** Whether something is the resume point of a lane, of this version or an earlier one. */
export function isLanePoint(value: unknown): boolean {
  const point = value as Partial<LanePoint> | null | undefined;
  return typeof point?.v === "number" && Array.isArray(point.positions) && Array.isArray(point.lane);
}

/** Whether all of a list are in another, in the same order: which source comes first decides between two that are due alike. */
function isWithin(some: readonly string[], all: readonly string[]): boolean {
  const kept = all.filter((source) => some.includes(source));
  return kept.length === some.length && kept.every((source, i) => source === some[i]);
}

/** Whether the very pipeline wrote a resume point, or the same before it was added to. */
export function isPrintOf(value: unknown, print: PipelinePrint): boolean {
  const point = value as Partial<LanePoint> | null;
  if (point?.pipeline === print.shape && point.sources === printText(print.sources)) return true;
  const wanted = printList(printText(print.sources));
  return (
    isWithin(printList(point?.sources ?? ""), wanted) &&
    print.earlier?.some(({ shape }) => shape === point?.pipeline) === true
  );
}

/** What a pipeline says of itself in the namespace that it creates: one create decides which of two that start together writes the log. */
export function pipelineMark(print: PipelinePrint): { readonly pipeline: Pick<LanePoint, "pipeline" | "sources"> } {
  return { pipeline: { pipeline: print.shape, sources: printText(print.sources) } };
}

/** Whether a source is in order what it was for the pipeline that wrote a resume point. */
export function isSourceOf(value: unknown, print: PipelinePrint, source: string): boolean {
  const { sources } = value as Partial<LanePoint>;
  const [own] = printList(printText([print.sources[print.names.indexOf(source)] as number]));
  return typeof sources === "string" && printList(sources).includes(own as string);
}

/**
 * Reads a resume point back; refuses one of another pipeline or another part of it. With `isFork` the pipeline may have changed since: sources that
 * are still there as they were go on where they stood, others begin anew.
 */
export function decodeLaneState(
  value: unknown,
  print: PipelinePrint,
  { lane, lanes, isFork = false }: { readonly lane: number; readonly lanes: number; readonly isFork?: boolean },
): LaneState {
  const point = value as Partial<LanePoint> | null;
  const refuse = (why: string): never => {
    throw new BatchWeaveError("INVALID_ARGUMENT", `This resume point cannot be continued: ${why}`, { lane, lanes });
  };
  if (isLanePoint(value) && (point?.v as number) === 1)
    return refuse(
      "an earlier version wrote it, which dealt single samples to lanes; now each lane has its own part of the shards. Finish this log with that version, or begin a new namespace.",
    );
  if (point?.v !== 2 || !Array.isArray(point.positions))
    return refuse("it was not written by a pipeline of this version.");
  if (point.lane?.[0] !== lane || point.lane[1] !== lanes)
    return refuse(`it is of part ${point.lane?.join(" of ")}, not ${lane} of ${lanes}.`);
  const [written, wanted] = [printList(point.sources as string), printList(printText(print.sources))];
  if (!isFork) {
    const wayOut =
      "Continue with it as it was, or fork the log (batchweave fork) and continue there, or write to a new namespace.";
    const grown = print.earlier?.find(({ shape }) => shape === point.pipeline);
    const isHere = isWithin(written, wanted);
    if (grown && isHere) {
      // Stages were added at the end, and sources for them, which have no share before: nothing of what was decided so far would be decided otherwise.
      const next = nextStepOf({ base: point.base as number, seq: point.seq as number, lane, lanes });
      if (next > grown.until)
        return refuse(
          `the schedule has a stage more from step ${grown.until} on, and this lane is at step ${next} already. Let the stage begin at a step that no lane has come to, or fork the log (batchweave fork) and continue there.`,
        );
    }
    const isGrown = grown !== undefined && isHere;
    const changed = isGrown ? [] : print.names.filter((_, i) => wanted[i] !== written[i]);
    if (!isGrown && written.length !== wanted.length && isHere) {
      const added = print.names.filter((_, i) => !written.includes(wanted[i] as string)).slice(0, 5);
      return refuse(
        `the pipeline has changed: it had ${written.length} sources, not ${wanted.length}; ${added.join(", ")} ${added.length === 1 ? "is" : "are"} new. Add a stage to the end of a stagedMix that gives new sources a share from a step on that no lane has come to (and none before), or fork the log (batchweave fork) and continue there.`,
      );
    }
    if (!isGrown && written.length !== wanted.length)
      return refuse(`the pipeline has changed: it had ${written.length} sources, not ${wanted.length}. ${wayOut}`);
    if (changed.length > 0)
      return refuse(
        `the pipeline has changed: source ${changed.slice(0, 5).join(", ")} is not what it was (shards, their sizes or contents, seed, epochs or windows), so its order of samples is not either. Data that is new goes into a source of its own. ${wayOut}`,
      );
    if (!isGrown && point.pipeline !== print.shape)
      return refuse(`the pipeline has changed (grid, lanes, batch, construction or mixture). ${wayOut}`);
  }
  // By their prints: sources may have come, and in a fork gone and changed places.
  const at = wanted.map((source, i) => (written[i] === source ? i : written.indexOf(source)));
  const pick = <T>(list: readonly T[] | 0 | undefined, otherwise: T): T[] =>
    at.map((i) => (i === -1 ? otherwise : (list || [])[i]) ?? otherwise);
  return {
    seq: point.seq as number,
    age: point.age as number,
    first: point.first as number,
    base: point.base as number,
    lane,
    lanes,
    positions: pick<SupplyPlace | 0>(point.positions, 0).map((position) => (position === 0 ? undefined : position)),
    used: point.used ? pick(point.used, 0) : [],
    owed: point.owed ? pick(point.owed, 0) : [],
    owedAt: point.at as number,
    debt: point.debt ? pick(point.debt, 0) : [],
    isOver: point.over === 1 && at.every((i) => i !== -1),
  };
}

/** The step of a lane's next batch. */
export function nextStepOf({ base, seq, lane, lanes }: Pick<LaneState, "base" | "seq" | "lane" | "lanes">): number {
  return base + seq * lanes + lane;
}
