/**
 * Audit of a pipeline's log: reads back what was written, walks the sources again, and compares. Lost: a sample that its lane has passed and no
 * batch holds. Repeated: one that is held more often than its source gave it.
 */
import { type Env, isBatchWeaveError, type LineageSample, type Namespace, systemEnv } from "../../index.js";
import type { Fault } from "../load/fault.js";
import { ShardPool } from "../source/shard-pool.js";
import type { ResolvedSource } from "../source/source.js";
import { SourceCursor } from "../source/source-cursor.js";
import type { BatchNotes } from "./lane-planner.js";
import { decodeLaneState, type LaneState } from "./lane-state.js";
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
  /** Sources that cannot be read again as they were: nothing can be said about their samples. */
  readonly unaudited: readonly { readonly source: string; readonly reason: string }[];
  /** Some lost or repeated samples by name. */
  readonly examples: readonly string[];
}

const examplesMax = 10;

/** Audits the whole log of a pipeline. The log must not have been trimmed. Reads every source up to where its lanes stand. */
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
  const states = new Map<string, LaneState>();
  const { steps } = await ns.info({ signal });
  let skipped = 0;
  for (let step = steps.trim; step < steps.end; step++) {
    const { user, resumePoint, producer } = await ns.inspect(step, { signal });
    const samples = (await ns.samples(step, { signal })) ?? [];
    states.set(producer, stateOf(resumePoint, resolved));
    for (const sample of samples) count(held, sample);
    const notes = user as BatchNotes;
    const placed = samples.filter(({ row }) => row !== undefined);
    skipped += samples.length - placed.length;
    report.add({ step, notes, samples: placed, faults: notes.faults ?? ([] as Fault[]) });
  }
  const balance = await compare(resolved, [...states.values()], held, env, signal);
  return { from: steps.trim, to: steps.end, summary: report.summary(), skipped, ...balance };
}

function count(counts: Map<string, number>, { source, id }: Pick<LineageSample, "source" | "id">): void {
  const key = `${source} ${id}`;
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

function stateOf(resumePoint: unknown, { fingerprint }: ResolvedPipeline): LaneState {
  const [lane = 0, lanes = 1] = (resumePoint as { lane?: readonly number[] } | null)?.lane ?? [];
  return decodeLaneState(resumePoint, fingerprint, lane, lanes);
}

async function compare(
  { sources, seed }: ResolvedPipeline,
  states: readonly LaneState[],
  held: Map<string, number>,
  env: Env,
  signal: AbortSignal | undefined,
): Promise<Pick<PipelineAudit, "lost" | "repeated" | "examples" | "unaudited">> {
  const given = new Map<string, number>();
  const begun = new Map<string, number[]>();
  const unaudited = new Map<string, string>();
  await using pool = new ShardPool({ env });
  for (const { lane, lanes, positions, used } of states) {
    for (const [i, source] of sources.entries()) {
      const until = JSON.stringify(positions[i]);
      if (until === undefined || unaudited.has(source.name)) continue;
      const cursor = new SourceCursor(source, pool, env, { seed, lane, lanes });
      const reason = await walk(source, cursor, until, { given, held }, signal);
      if (reason !== undefined) unaudited.set(source.name, reason);
      else if (used[i]) await countBegun(begun, source.name, cursor, used[i], signal);
    }
  }
  for (const name of unaudited.keys())
    for (const counts of [given, held, begun])
      for (const key of [...counts.keys()]) if (key.startsWith(`${name} `)) counts.delete(key);
  const pieces = balancePieces(given, held, begun);
  let [lost, repeated] = [pieces.lost.length, pieces.repeated.length];
  const examples = [...pieces.lost, ...pieces.repeated].slice(0, examplesMax);
  for (const key of new Set([...given.keys(), ...held.keys()])) {
    const difference = (held.get(key) ?? 0) - (given.get(key) ?? 0);
    if (difference < 0) lost -= difference;
    else repeated += difference;
    if (difference !== 0 && examples.length < examplesMax) examples.push(key);
  }
  return { lost, repeated, examples, unaudited: [...unaudited].map(([source, reason]) => ({ source, reason })) };
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

/** Counts what a source gives up to a position. The reason, when it does not give what it gave: a shard is gone or damaged since. */
async function walk(
  source: ResolvedSource,
  cursor: SourceCursor,
  until: string,
  { given, held }: { readonly given: Map<string, number>; readonly held: ReadonlyMap<string, number> },
  signal: AbortSignal | undefined,
): Promise<string | undefined> {
  let met: string | undefined;
  try {
    while (JSON.stringify(cursor.position) !== until) {
      const item = await cursor.next(signal);
      // It ended before the position that its lane had come to.
      if (!item) return met;
      const { id, fault } = item;
      if (fault && fault.stage !== "sample") {
        if (!held.has(`${source.name} ${id}`)) return fault.reason;
        met = fault.reason;
      }
      count(given, { source: source.name, id });
    }
    return undefined;
  } catch (error) {
    signal?.throwIfAborted();
    if (isBatchWeaveError(error)) return error.message;
    throw error;
  }
}
