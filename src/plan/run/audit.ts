/**
 * Audit of a pipeline's log: reads back the samples of every batch, walks the sources again, and compares. Lost: a sample that its lane has passed and
 * no batch holds. Repeated: one that is held more often than its source gives it, whichever producer put it there.
 */
import { type Env, type LineageSample, type Namespace, openNamespace, systemEnv } from "../../index.js";
import { BlockWalk } from "../exchange/block-walk.js";
import { exchangeAt, sourceLogUri } from "../exchange/exchange.js";
import { auditSourceLog } from "../exchange/source-audit.js";
import type { Fault } from "../load/fault.js";
import { isExternal } from "../source/external-source.js";
import { ShardPool } from "../source/shard-pool.js";
import type { ResolvedSource } from "../source/source.js";
import { SourceCursor } from "../source/source-cursor.js";
import type { BatchNotes } from "./batch-notes.js";
import { decodeLaneState, isPrintOf, type PipelinePrint } from "./lane-state.js";
import { type Pipeline, type ResolvedPipeline, resolvePipeline } from "./pipeline.js";
import { RunReport, type RunSummary } from "./run-report.js";
import { balanceSamples, countSample, type LaneMark, type LaneWalk, type SampleBalance } from "./sample-balance.js";

/** What the log holds, and how that compares with the sources. */
export interface PipelineAudit extends SampleBalance {
  /** Steps read: `[from, to)`. */
  readonly from: number;
  readonly to: number;
  readonly summary: RunSummary;
  /** Left out by policy, each recorded in lineage. */
  readonly skipped: number;
}

/**
 * Audits the log of a pipeline. Reads every source up to where its lanes stand. Through logs there are two hops: the training log against the source logs,
 * and each of those against its source.
 */
export async function auditPipeline(
  pipeline: Pipeline,
  ns: Namespace,
  options: { readonly env?: Env | undefined; readonly signal?: AbortSignal | undefined } = {},
): Promise<PipelineAudit> {
  const { env = systemEnv, signal } = options;
  const { storeSettings } = pipeline.spec;
  const direct = await resolvePipeline(pipeline, env);
  const exchange = exchangeAt(pipeline.spec, ns.uri);
  const logs = exchange
    ? await Promise.all(
        direct.sources.map((source) => openNamespace(sourceLogUri(exchange, source), { env, signal, storeSettings })),
      )
    : undefined;
  const resolved = logs
    ? await resolvePipeline(
        pipeline,
        env,
        logs.map(({ uuid }) => uuid),
      )
    : direct;
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
    for (const sample of samples) countSample(held, sample);
    const notes = user as BatchNotes;
    const placed = samples.filter(({ row }) => row !== undefined);
    skipped += samples.length - placed.length;
    // Batches that a fork shares may be of another mixture, which this schedule says nothing about.
    if (isSame) report.add({ step, notes, samples: placed, faults: notes.faults ?? ([] as Fault[]) });
  }
  await using pool = new ShardPool({ env, storeSettings });
  const { seed } = resolved;
  const walks = direct.sources.map((source, i) => ({
    name: source.name,
    walk: (lane: number): LaneWalk =>
      logs
        ? new BlockWalk(source.name, (logs[i] as Namespace).stepReader(), env, { lane, lanes })
        : new SourceCursor(source, pool, env, { seed, lane, lanes }),
  }));
  const balance = await balanceSamples(walks, walked, held, signal);
  // What others filled cannot be read here: that their log holds what they had is theirs to prove.
  const own = (logs ?? []).flatMap((log, i) => (isExternal(direct.sources[i] as ResolvedSource) ? [] : [{ log, i }]));
  const hops = await Promise.all(own.map(({ log, i }) => auditSourceLog(log, direct, i, pool, { env, signal })));
  return { from: steps.trim, to: steps.end, summary: report.summary(), skipped, ...addUp([balance, ...hops]) };
}

function addUp(balances: readonly SampleBalance[]): SampleBalance {
  const sum = (of: (balance: SampleBalance) => number): number => balances.reduce((total, one) => total + of(one), 0);
  return {
    lost: sum(({ lost }) => lost),
    repeated: sum(({ repeated }) => repeated),
    leftOut: sum(({ leftOut }) => leftOut),
    unaudited: balances.flatMap(({ unaudited }) => unaudited),
    examples: balances.flatMap(({ examples }) => examples).slice(0, 10),
  };
}

/** What the resume points of a log's batches say about its lanes. Each lane counts once, whichever process wrote for it: what came in beside that is too much. */
class LaneMarks {
  readonly byLane = new Map<number, LaneMark[]>();
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
