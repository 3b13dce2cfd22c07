/**
 * Audit of a pipeline's log: reads back the samples of every batch, walks the sources again, and compares. Lost: a sample that its lane has passed and
 * no batch holds. Repeated: one that is held more often than its source gives it, whoever put it there.
 */
import { type Env, isBatchWeaveError, type LineageSample, type Namespace, systemEnv } from "../../index.js";
import type { Fault } from "../load/fault.js";
import { ShardPool } from "../source/shard-pool.js";
import type { ResolvedSource } from "../source/source.js";
import { SourceCursor } from "../source/source-cursor.js";
import type { BatchNotes } from "./batch-notes.js";
import { decodeLaneState, isPrintOf, type LaneState, type PipelinePrint } from "./lane-state.js";
import { balancePieces } from "./piece-audit.js";
import { type Pipeline, type ResolvedPipeline, resolvePipeline } from "./pipeline.js";
import { RunReport, type RunSummary } from "./run-report.js";

/** What the log holds, and how that compares with the sources. */
export interface PipelineAudit {
  /** Steps read: `[from, to)`. */
  readonly from: number;
  readonly to: number;
  readonly summary: RunSummary;
  readonly lost: number;
  readonly repeated: number;
  /** Left out by policy, each recorded in lineage. */
  readonly skipped: number;
  /** Samples of batches that are not in the log, although their lane went on behind them: steps that a fork left out, or that were trimmed. */
  readonly leftOut: number;
  /** Sources that cannot be read again as they were: nothing can be said about their samples. */
  readonly unaudited: readonly { readonly source: string; readonly reason: string }[];
  /** Some lost or repeated samples by name. */
  readonly examples: readonly string[];
}

const examplesMax = 10;

/** Where a lane stood after one of its batches. */
interface Mark {
  /** By source; undefined where nothing was taken yet, or the source is not the pipeline's any more. */
  readonly positions: LaneState["positions"];
  readonly used: LaneState["used"];
  /** Batches of the lane before this one are not in the log: left out of a fork, or trimmed. */
  readonly isAfterGap: boolean;
}

/** Audits the log of a pipeline. Reads every source up to where its lanes stand. */
export async function auditPipeline(
  pipeline: Pipeline,
  ns: Namespace,
  options: { readonly env?: Env | undefined; readonly signal?: AbortSignal | undefined } = {},
): Promise<PipelineAudit> {
  const { env = systemEnv, signal } = options;
  const resolved = await resolvePipeline(pipeline, env);
  const names = resolved.sources.map(({ name }) => name);
  const report = new RunReport(names, resolved.mix, "samples" in resolved.batch ? "samples" : "tokens");
  const held = new Map<string, number>();
  const lanes = ns.order.kind === "lanes" ? ns.order.lanes : ns.parts;
  const walked = new LaneMarks(resolved, lanes);
  const { steps } = await ns.info({ signal });
  let skipped = 0;
  for (let step = steps.trim; step < steps.end; step++) {
    const { user, resumePoint } = await ns.inspect(step, { signal });
    const samples = (await ns.samples(step, { signal })) ?? [];
    const isSame = walked.add(resumePoint, samples);
    for (const sample of samples) count(held, sample);
    const notes = user as BatchNotes;
    const placed = samples.filter(({ row }) => row !== undefined);
    skipped += samples.length - placed.length;
    // Batches that a fork shares may be of another mixture, which this schedule says nothing about.
    if (isSame) report.add({ step, notes, samples: placed, faults: notes.faults ?? ([] as Fault[]) });
  }
  const balance = await compare(resolved, lanes, walked, held, env, signal);
  return { from: steps.trim, to: steps.end, summary: report.summary(), skipped, ...balance };
}

function count(counts: Map<string, number>, { source, id }: Pick<LineageSample, "source" | "id">): void {
  const key = `${source} ${id}`;
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

/** What the resume points of a log's batches say about its lanes. Each lane counts once, whoever wrote for it: what came in beside that is too much. */
class LaneMarks {
  readonly byLane = new Map<number, Mark[]>();
  /** Sources whose samples are in the log and which are not, or not as they were, the pipeline's. */
  readonly changed = new Map<string, string>();
  readonly #print: PipelinePrint;
  readonly #missing: ReadonlyMap<string, string>;
  readonly #lanes: number;
  readonly #ages = new Map<number, number>();

  constructor({ print, sources }: ResolvedPipeline, lanes: number) {
    this.#print = print;
    this.#missing = new Map(sources.flatMap(({ name, missing: [file] }) => (file ? [[name, file]] : [])));
    this.#lanes = lanes;
  }

  /** Notes a batch; whether the pipeline as it is made it. */
  add(resumePoint: unknown, samples: readonly LineageSample[]): boolean {
    const [lane = 0, lanes = 1] = (resumePoint as { lane?: readonly number[] } | null)?.lane ?? [];
    const state = decodeLaneState(resumePoint, this.#print, { lane, lanes, isFork: true });
    const isSame = isPrintOf(resumePoint, this.#print);
    const positions = new Map(this.#print.names.map((name, i) => [name, state.positions[i]]));
    for (const { source } of samples) {
      if (positions.get(source) !== undefined || this.changed.has(source)) continue;
      const missing = this.#missing.get(source);
      const changed = missing === undefined ? "it has changed since" : `${missing} is not there`;
      this.changed.set(source, positions.has(source) ? changed : "it is not among the pipeline's sources any more");
    }
    const age = this.#ages.get(lane) ?? 0;
    // Another way of dividing the sources, or a second writer of the same part: nothing of it was to be given.
    if (lanes !== this.#lanes || state.age <= age) return isSame;
    this.#ages.set(lane, state.age);
    const marks = this.byLane.get(lane) ?? [];
    this.byLane.set(lane, marks);
    const { positions: at, used } = state;
    marks.push({ positions: at, used, isAfterGap: state.age !== age + 1 });
    return isSame;
  }
}

/** Counts of samples: given for sure, given in batches that the log does not hold, and held by the log. */
interface Counts {
  readonly given: Map<string, number>;
  readonly maybe: Map<string, number>;
  readonly held: Map<string, number>;
}

async function compare(
  { sources, seed, spec }: ResolvedPipeline,
  lanes: number,
  { byLane, changed }: LaneMarks,
  held: Map<string, number>,
  env: Env,
  signal: AbortSignal | undefined,
): Promise<Pick<PipelineAudit, "lost" | "repeated" | "leftOut" | "examples" | "unaudited">> {
  const counts: Counts = { given: new Map(), maybe: new Map(), held };
  const begun = new Map<string, number[]>();
  const unaudited = new Map(changed);
  await using pool = new ShardPool({ env, storeSettings: spec.storeSettings });
  for (const [lane, marks] of byLane) {
    for (const [i, source] of sources.entries()) {
      if (unaudited.has(source.name)) continue;
      const cursor = new SourceCursor(source, pool, env, { seed, lane, lanes });
      const stops = marks.map(({ positions, isAfterGap }) => ({ at: JSON.stringify(positions[i]), isAfterGap }));
      const reason = await walk(source, cursor, stops, counts, signal);
      const used = marks.at(-1)?.used[i] ?? 0;
      if (reason !== undefined) unaudited.set(source.name, reason);
      else if (used > 0) await countBegun(begun, source.name, cursor, used, signal);
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
  cursor: SourceCursor,
  used: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  const item = await cursor.next(signal);
  const key = `${source} ${item?.id}`;
  begun.set(key, [...(begun.get(key) ?? []), used]);
}

/**
 * Counts what a source gives up to the last of a lane's marks; between two of them that have a gap, the log need not hold it. The reason, when it does
 * not give what it gave: a shard is gone or damaged since.
 */
async function walk(
  source: ResolvedSource,
  cursor: SourceCursor,
  stops: readonly { readonly at: string | undefined; readonly isAfterGap: boolean }[],
  { given, maybe, held }: Counts,
  signal: AbortSignal | undefined,
): Promise<string | undefined> {
  let met: string | undefined;
  // Marks at which the lane had not taken anything of this source, or nothing since the mark before, are passed at once.
  let [next, here] = [0, JSON.stringify(cursor.position)];
  const pass = (): boolean => {
    for (; next < stops.length; next++) if (stops[next]?.at !== undefined && stops[next]?.at !== here) return true;
    return false;
  };
  try {
    while (pass()) {
      // A gap counts until the source moves, so that what was left out is told from what was not.
      const isLoose = stops.slice(lastPassed(stops, next, here), next + 1).some(({ isAfterGap }) => isAfterGap);
      for (;;) {
        const item = await cursor.next(signal);
        // It ended before the position that its lane had come to.
        if (!item) return met;
        const { id, fault } = item;
        if (fault && fault.stage !== "sample") {
          if (!held.has(`${source.name} ${id}`)) return fault.reason;
          met = fault.reason;
        }
        count(isLoose ? maybe : given, { source: source.name, id });
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
