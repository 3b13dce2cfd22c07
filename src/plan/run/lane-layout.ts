/**
 * How the sources of a log are divided, and where each lane goes on. Lanes order: lane k is the producer `lane-<k>`. Commit order: part k is
 * `part-<k>`, and how many parts there are is fixed with the namespace. So a process that takes a lane or a part fences its holder, and
 * no process can divide the sources in another way: no sample comes in twice.
 */
import { BatchWeaveError, type Namespace, type Producer, type ProducerOptions } from "../../index.js";
import { type LaneParts, LanePlanner, type LaneStart } from "./lane-planner.js";
import { decodeLaneState, isLanePoint, isPrintOf, pipelineMark } from "./lane-state.js";
import type { PipelineNamespace } from "./pipeline.js";

/** Steps that are searched for where lanes stood when a fork was made, at most. */
const searchedStepsMax = 4_096;
/** Lanes whose last batches are looked at before a process begins. */
const neighboursMax = 64;

/** Lanes or parts. */
export interface LaneLayout {
  readonly isLanes: boolean;
  /** All of them. */
  readonly count: number;
  /** Those of this process. */
  readonly held: readonly number[];
}

/** What a process holds of how many lanes or parts. */
export function layoutOf(
  { order = "lanes", lanes = 4, parts = 1 }: PipelineNamespace,
  wanted: {
    readonly lanes?: readonly number[] | undefined;
    readonly part?: { readonly index: number; readonly count: number } | undefined;
  },
): LaneLayout {
  const isLanes = order === "lanes";
  const { part } = wanted;
  const count = isLanes ? lanes : (part?.count ?? parts);
  const all = (): number[] => Array.from({ length: count }, (_, k) => k);
  const held = [...new Set(isLanes ? (wanted.lanes ?? all()) : part ? [part.index] : all())];
  const bad = held.filter((k) => !(Number.isSafeInteger(k) && k >= 0 && k < count));
  if (bad.length === 0 && held.length > 0) return { isLanes, count, held };
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    isLanes
      ? `Lanes go from 0 to ${count - 1}; ${bad.length > 0 ? bad.join(", ") : "an empty list"} cannot be held.`
      : `A part is an index and how many parts there are, the index below the number, such as 0/2, not ${part?.index}/${count}.`,
    { lanes: held },
  );
}

/** The producer of a lane or part. */
export function laneId({ isLanes }: Pick<LaneLayout, "isLanes">, lane: number): string {
  return `${isLanes ? "lane" : "part"}-${lane}`;
}

/** A lane that this process writes. */
export interface RunningLane {
  readonly lane: number;
  readonly producer: Producer;
  readonly planner: LanePlanner;
  /** Its sources have nothing left. */
  ended: boolean;
}

/** Opens the producers of lanes, each with a planner that goes on where the lane stands: in this log, or in the one it was forked from. */
export async function openLanes(
  ns: Namespace,
  parts: LaneParts,
  layout: LaneLayout,
  producing: Omit<ProducerOptions, "id" | "signal"> | undefined,
  signal: AbortSignal | undefined,
): Promise<RunningLane[]> {
  await assertNeighbours(ns, parts, layout, signal);
  assertCreator(ns, parts.pipeline);
  const inherited = await inheritedPoints(ns, layout, signal);
  const opened = await Promise.allSettled(
    layout.held.map(async (lane): Promise<RunningLane> => {
      const producer = await ns.producer({ ...producing, id: laneId(layout, lane), signal });
      try {
        return { lane, producer, planner: plannerOf(ns, parts, layout, lane, producer, inherited), ended: false };
      } catch (error) {
        await producer.close();
        throw error;
      }
    }),
  );
  const failed = opened.find((one) => one.status === "rejected");
  const lanes = opened.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  if (!failed) return lanes;
  await Promise.allSettled(lanes.map(({ producer }) => producer.close()));
  throw failed.reason;
}

function plannerOf(
  ns: Namespace,
  parts: LaneParts,
  layout: LaneLayout,
  lane: number,
  producer: Pick<Producer, "id" | "nextSeq" | "resumePoint">,
  inherited: ReadonlyMap<string, unknown>,
): LanePlanner {
  const planner = new LanePlanner(
    parts,
    { lane, lanes: layout.count },
    startOf(ns, layout, lane, { seq: producer.nextSeq, resumePoint: producer.resumePoint }, inherited),
  );
  if (planner.nextSeq === producer.nextSeq) return planner;
  throw new BatchWeaveError(
    "SEQUENCE_CONFLICT",
    `Producer ${producer.id} has ${producer.nextSeq} batches in the log and its resume point says ${planner.nextSeq}: something other than this pipeline wrote with its id. Use another namespace.`,
    { producer: producer.id, log: producer.nextSeq, resumePoint: planner.nextSeq },
  );
}

/** Where a lane goes on, from what its producer says or, where a fork left producers behind, from the batches it shares. */
export function startOf(
  ns: Namespace,
  layout: LaneLayout,
  lane: number,
  { seq, resumePoint }: { readonly seq: number; readonly resumePoint: unknown },
  inherited: ReadonlyMap<string, unknown>,
): LaneStart {
  const log = { seq, first: ns.firstOwnStep, isLanes: layout.isLanes };
  const isFresh = seq === 0 && (resumePoint === undefined || resumePoint === null);
  return { log, resumePoint: isFresh ? inherited.get(laneId(layout, lane)) : resumePoint };
}

/**
 * In a fork whose producers start afresh: the resume points of the last shared batch of each lane, so that a pipeline goes on behind what is shared
 * instead of with its first sample. Empty elsewhere, and where other writers made what is shared.
 */
export async function inheritedPoints(
  ns: Namespace,
  layout: LaneLayout,
  signal: AbortSignal | undefined,
): Promise<Map<string, unknown>> {
  const found = new Map<string, unknown>();
  const first = ns.firstOwnStep;
  if (first === 0) return found;
  const states = await Promise.all(layout.held.map((lane) => ns.producerState(laneId(layout, lane), { signal })));
  const wanted = new Set(
    layout.held.filter((_, i) => !states[i]?.seq && !states[i]?.resumePoint).map((lane) => laneId(layout, lane)),
  );
  if (wanted.size === 0) return found;
  const { steps, producers } = await ns.info({ signal });
  // Nothing that is shared is left, and no producer was inherited: a pipeline may have written it, and would take its first samples again.
  let isPipelines = steps.trim >= first && producers.every(({ seq }) => seq === 0);
  const bottom = Math.max(steps.trim, first - searchedStepsMax);
  for (let step = first - 1; step >= bottom && wanted.size > 0; step--) {
    const { producer, resumePoint } = await ns.inspect(step, { signal });
    if (!isLanePoint(resumePoint)) continue;
    isPipelines = true;
    if (wanted.delete(producer)) found.set(producer, resumePoint);
  }
  if (wanted.size === 0 || !isPipelines || bottom === 0) return found;
  throw new BatchWeaveError(
    "RECLAIMED",
    `Where ${[...wanted].join(", ")} stood when ${ns.uri} was forked cannot be found in the steps it shares (from ${bottom} on). Fork again with --producers inherit.`,
    { lanes: [...wanted], from: bottom },
  );
}

/** Whether a namespace says which pipeline created it. */
export function isMarked({ user }: Pick<Namespace, "user">): boolean {
  return ((user ?? {}) as { readonly pipeline?: unknown }).pipeline !== undefined;
}

/**
 * Refuses a log that another pipeline created, also while nothing is in it: that one may be writing its first batches. Of a log that is complete only the
 * rules are compared: its shards may be gone.
 */
export function assertCreator(ns: Namespace, { print }: LaneParts["pipeline"], isComplete = false): void {
  const { pipeline: mark } = (ns.user ?? {}) as Partial<ReturnType<typeof pipelineMark>>;
  const { sources } = pipelineMark(print).pipeline;
  if (mark === undefined || isPrintOf(isComplete ? { ...mark, sources } : mark, print)) return;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `${ns.uri} was begun by another pipeline, or by this one before it was changed (grid, lanes, batch, construction, mixture or sources). Continue with it as it was, fork the log (batchweave fork) and continue there, or write to a new namespace; one that holds nothing can be deleted (batchweave delete).`,
    { uri: ns.uri },
  );
}

/**
 * Other lanes must be those of the same pipeline: two processes that see other shards would take samples twice. What was written before the
 * fork may be another's. Said before any producer is fenced.
 */
export async function assertNeighbours(
  ns: Namespace,
  { pipeline }: LaneParts,
  layout: LaneLayout,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { isLanes, count } = layout;
  const lanes = Array.from({ length: Math.min(count, neighboursMax) }, (_, k) => k);
  await Promise.all(
    lanes.map(async (lane) => {
      const { seq = 0, resumePoint } = (await ns.producerState(laneId(layout, lane), { signal })) ?? {};
      const { first } = (resumePoint ?? {}) as { readonly first?: number };
      if (seq === 0 || !isLanePoint(resumePoint) || (first !== undefined && first !== ns.firstOwnStep)) return;
      decodeLaneState(resumePoint, pipeline.print, { lane, lanes: count });
    }),
  );
  if (isLanes) return;
  const { steps } = await ns.info({ signal });
  // Nothing of this log is there to look at: none was written yet, or all of it was read and reclaimed.
  if (steps.end <= Math.max(ns.firstOwnStep, steps.trim)) return;
  const { producer, resumePoint } = await ns.inspect(steps.end - 1, { signal });
  if (isLanePoint(resumePoint) && !/^part-\d+$/.test(producer))
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `${ns.uri} was written by the producer ${producer} of an earlier version, which divided the sources in another way. Finish this log with that version, or begin a new namespace.`,
      { producer },
    );
}
