/**
 * The resume point of a lane: all that decides its next batch. Source positions, what the mix owes, and nothing of what buffers hold: they are
 * rebuilt by reading again from the positions. Positions are themselves rare snapshots (the place of a window) and a number of samples to
 * replay from there. Small: a few dozen bytes per source.
 */
import { BatchWeaveError } from "../../index.js";
import type { SourcePosition } from "../source/source-cursor.js";

/** JSON of a resume point at most. */
export const lanePointBytesMax = 16_384;

/** State of a lane after a batch. */
export interface LaneState {
  /** Batches made so far. */
  readonly seq: number;
  readonly lane: number;
  readonly lanes: number;
  /** By source; undefined where nothing was taken yet. */
  readonly positions: readonly (SourcePosition | undefined)[];
  /** By source, the pieces that were used of the document at its position; 0 where none was begun. */
  readonly used: readonly number[];
  /** Credits or tokens owed, by source. */
  readonly owed: readonly number[];
  /** The step up to which `owed` was counted. */
  readonly owedAt: number;
  /** Draws that did not fit into their batch, by source: they come first in the next. */
  readonly debt: readonly number[];
}

/** As it is stored. */
interface LanePoint {
  readonly v: 1;
  readonly pipeline: number;
  readonly seq: number;
  readonly lane: readonly [number, number];
  readonly at: number;
  readonly positions: readonly (SourcePosition | 0)[];
  /** Absent in points that were written before documents were split. */
  readonly used?: readonly number[] | 0 | undefined;
  readonly owed: readonly number[] | 0;
  readonly debt: readonly number[] | 0;
}

const shorten = (list: readonly number[]): readonly number[] | 0 => (list.some((n) => n !== 0) ? list : 0);

/** The resume point of a state. */
export function encodeLaneState(state: LaneState, fingerprint: number): LanePoint {
  const point: LanePoint = {
    v: 1,
    pipeline: fingerprint,
    seq: state.seq,
    lane: [state.lane, state.lanes],
    at: state.owedAt,
    positions: state.positions.map((position) => position ?? 0),
    used: shorten(state.used),
    owed: shorten(state.owed),
    debt: shorten(state.debt),
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

/** Reads a resume point back; refuses one of another pipeline or another part of it. */
export function decodeLaneState(value: unknown, fingerprint: number, lane: number, lanes: number): LaneState {
  const point = value as Partial<LanePoint> | null;
  const refuse = (why: string): never => {
    throw new BatchWeaveError("INVALID_ARGUMENT", `This resume point cannot be continued: ${why}`, { lane, lanes });
  };
  if (point?.v !== 1 || !Array.isArray(point.positions))
    return refuse("it was not written by a pipeline of this version.");
  if (point.pipeline !== fingerprint) {
    return refuse(
      "the pipeline has changed (sources, shards, seed, grid, batch or construction), so its order of samples has too. Continue with the pipeline as it was, or write to a new namespace or fork.",
    );
  }
  if (point.lane?.[0] !== lane || point.lane[1] !== lanes)
    return refuse(`it is of part ${point.lane?.join(" of ")}, not ${lane} of ${lanes}.`);
  return {
    seq: point.seq as number,
    lane,
    lanes,
    positions: point.positions.map((position) => (position === 0 ? undefined : position)),
    used: point.used || [],
    owed: point.owed || [],
    owedAt: point.at as number,
    debt: point.debt || [],
  };
}
