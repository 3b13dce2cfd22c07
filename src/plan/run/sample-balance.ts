/**
 * Whether a log holds what its sources gave: lost, repeated, left out. Walks what each lane was given up to where it stands, and compares with what the log
 * holds, by the names of samples.
 */
import { isBatchWeaveError, type LineageSample } from "../../index.js";
import type { SupplyPlace } from "../load/sample-supply.js";
import { balancePieces } from "./piece-audit.js";

/** Where a lane stood after one of its batches. */
export interface LaneMark {
  /** By source; undefined where nothing was taken yet, or the source is not the pipeline's any more. */
  readonly positions: readonly (SupplyPlace | undefined)[];
  /** By source: pieces that were used of the document that comes next. */
  readonly used: readonly number[];
  /** Batches of the lane before this one are not in the log: left out of a fork, or trimmed. */
  readonly isAfterGap: boolean;
}

/** What a lane is given of a source, from the beginning: one item after another. */
export interface LaneWalk {
  readonly position: SupplyPlace;
  next(signal?: AbortSignal | undefined): Promise<
    | {
        readonly id: string;
        readonly fault?: { readonly stage: string; readonly reason: string } | undefined;
        readonly after: SupplyPlace;
      }
    | undefined
  >;
}

/** How what is held compares with what was given. */
export interface SampleBalance {
  readonly lost: number;
  readonly repeated: number;
  /** Samples of batches that are not in the log, although their lane went on behind them: steps that a fork left out, or that were trimmed. */
  readonly leftOut: number;
  /** Sources that cannot be read again as they were: nothing can be said about their samples. */
  readonly unaudited: readonly { readonly source: string; readonly reason: string }[];
  /** Some lost or repeated samples by name. */
  readonly examples: readonly string[];
}

const examplesMax = 10;

/** Counts a sample by its name. */
export function countSample(counts: Map<string, number>, { source, id }: Pick<LineageSample, "source" | "id">): void {
  const key = `${source} ${id}`;
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

/** Counts of samples: given for sure, given in batches that the log does not hold, and held by the log. */
interface Counts {
  readonly given: Map<string, number>;
  readonly maybe: Map<string, number>;
  readonly held: Map<string, number>;
}

/** Compares what lanes were given with what is held. `changed`: sources that cannot be audited, and why. */
export async function balanceSamples(
  sources: readonly { readonly name: string; walk(lane: number): LaneWalk }[],
  {
    byLane,
    changed,
  }: { readonly byLane: ReadonlyMap<number, readonly LaneMark[]>; readonly changed: ReadonlyMap<string, string> },
  held: Map<string, number>,
  signal: AbortSignal | undefined,
): Promise<SampleBalance> {
  const counts: Counts = { given: new Map(), maybe: new Map(), held };
  const begun = new Map<string, number[]>();
  const unaudited = new Map(changed);
  for (const [lane, marks] of byLane) {
    for (const [i, source] of sources.entries()) {
      if (unaudited.has(source.name)) continue;
      const walked = source.walk(lane);
      const stops = marks.map(({ positions, isAfterGap }) => ({ at: JSON.stringify(positions[i]), isAfterGap }));
      const reason = await walk(source.name, walked, stops, counts, signal);
      const used = marks.at(-1)?.used[i] ?? 0;
      if (reason !== undefined) unaudited.set(source.name, reason);
      else if (used > 0) await countBegun(begun, source.name, walked, used, signal);
    }
  }
  for (const name of unaudited.keys())
    for (const some of [counts.given, counts.maybe, counts.held, begun])
      for (const key of [...some.keys()]) if (key.startsWith(`${name} `)) some.delete(key);
  const pieces = balancePieces(counts.given, held, begun, counts.maybe);
  let [lost, repeated, leftOut] = [pieces.lost.length, pieces.repeated.length, 0];
  const examples = [...pieces.lost, ...pieces.repeated].slice(0, examplesMax);
  for (const key of new Set([...counts.given.keys(), ...counts.maybe.keys(), ...held.keys()])) {
    const difference = (held.get(key) ?? 0) - (counts.given.get(key) ?? 0);
    const maybe = counts.maybe.get(key) ?? 0;
    lost += Math.max(0, -difference);
    repeated += Math.max(0, difference - maybe);
    leftOut += Math.max(0, maybe - Math.max(0, difference));
    if ((difference < 0 || difference > maybe) && examples.length < examplesMax) examples.push(key);
  }
  const reasons = [...unaudited].map(([source, reason]) => ({ source, reason }));
  return { lost, repeated, leftOut, examples, unaudited: reasons };
}

/** A document of which a lane has used some pieces is the next one from its position on. */
async function countBegun(
  begun: Map<string, number[]>,
  source: string,
  walked: LaneWalk,
  used: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  const item = await walked.next(signal);
  const key = `${source} ${item?.id}`;
  begun.set(key, [...(begun.get(key) ?? []), used]);
}

/**
 * Counts what a source gives up to the last of a lane's marks; between two of them that have a gap, the log need not hold it. The reason, when it does
 * not give what it gave: a shard is gone or damaged since.
 */
async function walk(
  source: string,
  walked: LaneWalk,
  stops: readonly { readonly at: string | undefined; readonly isAfterGap: boolean }[],
  { given, maybe, held }: Counts,
  signal: AbortSignal | undefined,
): Promise<string | undefined> {
  let met: string | undefined;
  // Marks at which the lane had not taken anything of this source, or nothing since the mark before, are passed at once.
  let [next, here] = [0, JSON.stringify(walked.position)];
  const pass = (): boolean => {
    for (; next < stops.length; next++) if (stops[next]?.at !== undefined && stops[next]?.at !== here) return true;
    return false;
  };
  try {
    while (pass()) {
      // A gap counts until the source moves, so that what was left out is told from what was not.
      const isLoose = stops.slice(lastPassed(stops, next, here), next + 1).some(({ isAfterGap }) => isAfterGap);
      for (;;) {
        const item = await walked.next(signal);
        // It ended before the position that its lane had come to.
        if (!item) return met;
        const { id, fault } = item;
        if (fault && fault.stage !== "sample") {
          if (!held.has(`${source} ${id}`)) return fault.reason;
          met = fault.reason;
        }
        countSample(isLoose ? maybe : given, { source, id });
        here = JSON.stringify(item.after);
        if (here === stops[next]?.at) break;
      }
    }
    return undefined;
  } catch (error) {
    signal?.throwIfAborted();
    if (isBatchWeaveError(error)) return error.message;
    throw error;
  }
}

/** The first mark after the last one that stood where the walk stands now. */
function lastPassed(
  stops: readonly { readonly at: string | undefined }[],
  next: number,
  here: string | undefined,
): number {
  for (let i = next - 1; i >= 0; i--) if (stops[i]?.at === here) return i + 1;
  return 0;
}
