/** Running a pipeline: planners on one side, producers of the log on the other. */
import {
  BatchWeaveError,
  createNamespace,
  type Env,
  type Namespace,
  type NamespaceOptions,
  type Producer,
  type ProducerOptions,
  safetensorsType,
  systemEnv,
} from "../../index.js";
import type { Fault } from "../load/fault.js";
import { FigureCounter, type SourceFigures } from "../load/source-figures.js";
import { TransformPool } from "../load/transform-pool.js";
import { ShardPool } from "../source/shard-pool.js";
import { type LaneParts, LanePlanner, type PlannedBatch } from "./lane-planner.js";
import { type Pipeline, type ResolvedPipeline, resolvePipeline } from "./pipeline.js";
import { RunReport, type RunSummary } from "./run-report.js";

/** What a process runs of a pipeline. */
export interface RunSettings {
  /** In commit order: the producer's stable id. Default "p0". In lanes order lanes have ids of their own. */
  readonly id?: string | undefined;
  /** In lanes order: the lanes this process holds. Default: all. */
  readonly lanes?: readonly number[] | undefined;
  /** In commit order: this producer's part of the sources, so that several never read the same sample. Default 0 of 1. */
  readonly part?: { readonly index: number; readonly count: number } | undefined;
  /** Steps of the whole log, instead of what the pipeline says. */
  readonly steps?: number | undefined;
  /** Batches of this process at most. */
  readonly batchesMax?: number | undefined;
  /** Where to write, instead of where the pipeline says. */
  readonly uri?: string | undefined;
  /** Close the log when it is complete. Default true. */
  readonly close?: boolean | undefined;
  readonly producer?: Omit<ProducerOptions, "id" | "signal"> | undefined;
}

/** Components and events of a run. */
export interface RunOptions extends NamespaceOptions {
  /** After each batch was accepted by the log's producer. */
  readonly onBatch?: ((batch: PlannedBatch, committed: Promise<unknown>) => void) | undefined;
  /** When something is left out, before the batch that records it is made. */
  readonly onFault?: ((fault: Fault) => void) | undefined;
  /** Only for tests of worker threads: where their program is. */
  readonly workerUrl?: URL | undefined;
}

/** What a run has done. */
export interface RunResult {
  readonly summary: RunSummary;
  readonly sources: readonly SourceFigures[];
  readonly wallMs: number;
  /** The log is complete and closed. */
  readonly closed: boolean;
  readonly end: number;
}

/** A pipeline that is being planned, with everything its lanes share. Dispose it. */
export class OpenPipeline implements AsyncDisposable {
  readonly resolved: ResolvedPipeline;
  readonly #parts: LaneParts;

  private constructor(resolved: ResolvedPipeline, parts: LaneParts) {
    this.resolved = resolved;
    this.#parts = parts;
  }

  static async open(
    pipeline: Pipeline,
    env: Env,
    { workerUrl, onFault }: Pick<RunOptions, "workerUrl" | "onFault"> = {},
  ): Promise<OpenPipeline> {
    const resolved = await resolvePipeline(pipeline, env);
    const { spec, sources } = resolved;
    const shards = new ShardPool({ env, storeSettings: spec.storeSettings }, spec.buffers);
    const pool = new TransformPool(env, spec.workers, workerUrl);
    const counters = sources.map((source) => new FigureCounter(source, onFault));
    return new OpenPipeline(resolved, { pipeline: resolved, shards, pool, env, counters });
  }

  /** A planner of lane (or part) `lane` of `lanes`, from a resume point or from the beginning. */
  planner(lane: number, lanes: number, resumePoint?: unknown): LanePlanner {
    return new LanePlanner(this.#parts, { lane, lanes }, resumePoint);
  }

  /** What each source has cost so far. */
  get figures(): SourceFigures[] {
    return this.#parts.counters.map((counter) => counter.snapshot());
  }

  /** A new report of the kind this pipeline needs. */
  report(): RunReport {
    const { sources, mix, batch } = this.resolved;
    return new RunReport(
      sources.map(({ name }) => name),
      mix,
      "samples" in batch ? "samples" : "tokens",
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#parts.pool[Symbol.asyncDispose]();
    await this.#parts.shards[Symbol.asyncDispose]();
  }
}

interface RunningLane {
  readonly producer: Producer;
  readonly planner: LanePlanner;
  ended: boolean;
}

const wholePart = { index: 0, count: 1 };

/** Runs a pipeline until its steps are done, its sources end, or the signal aborts (what was accepted is then still committed). */
export async function runPipeline(
  pipeline: Pipeline,
  settings: RunSettings = {},
  options: RunOptions = {},
): Promise<RunResult> {
  const env = options.env ?? systemEnv;
  const { namespace: target } = pipeline.spec;
  const steps = settings.steps ?? pipeline.spec.steps ?? Number.POSITIVE_INFINITY;
  const begun = env.monotonic();
  await using open = await OpenPipeline.open(pipeline, env, options);
  const order = target.order ?? "lanes";
  const { grid } = target;
  const shape = order === "lanes" ? { grid, order, lanes: open.resolved.lanes } : { grid };
  // Refused before anything is created.
  heldBy(open.resolved, order === "lanes", settings.lanes, settings.part ?? wholePart);
  const ns = await createNamespace(settings.uri ?? target.uri, shape, options);
  const report = open.report();
  const found = await ns.info({ signal: options.signal });
  // Complete: nothing to open, since opening is a commit too.
  if (found.closed && found.steps.end >= steps) {
    const wallMs = env.monotonic() - begun;
    return { summary: report.summary(), sources: open.figures, wallMs, closed: true, end: found.steps.end };
  }
  const lanes = await openLanes(ns, open, settings, options.signal);
  try {
    await produce(lanes, report, { steps, batchesMax: settings.batchesMax ?? Infinity }, options);
    if (!options.signal?.aborted && order === "lanes") await evenOut(lanes, open.resolved.lanes, report, options);
  } catch (error) {
    // What was accepted before the failure still goes into the log; that this may fail too is not the news.
    await Promise.allSettled(lanes.map(({ producer }) => producer.close()));
    throw error;
  }
  await Promise.all(lanes.map(({ producer }) => producer.close()));
  const isDone = lanes.every((lane) => lane.ended || lane.planner.nextStep >= steps);
  // Told to stop, it still says how far the log has come.
  const signal = options.signal?.aborted ? undefined : options.signal;
  const { closed, end } = await finish(ns, settings, isDone, order === "lanes" ? steps : Infinity, lanes, signal);
  return { summary: report.summary(), sources: open.figures, wallMs: env.monotonic() - begun, closed, end };
}

async function openLanes(
  ns: Namespace,
  open: OpenPipeline,
  { id = "p0", lanes, part = wholePart, producer: producing }: RunSettings,
  signal: AbortSignal | undefined,
): Promise<RunningLane[]> {
  const isLanes = ns.order.kind === "lanes";
  const { held, of } = heldBy(open.resolved, isLanes, lanes, part);
  return await Promise.all(
    held.map(async (k) => {
      const producer = await ns.producer({ ...producing, id: isLanes ? `lane-${k}` : id, signal });
      const planner = open.planner(k, of, producer.resumePoint);
      if (planner.nextSeq !== producer.nextSeq) {
        throw new BatchWeaveError(
          "SEQUENCE_CONFLICT",
          `Producer ${producer.id} has ${producer.nextSeq} batches in the log and its resume point says ${planner.nextSeq}: something other than this pipeline wrote with its id. Use another id or namespace.`,
          { producer: producer.id, log: producer.nextSeq, resumePoint: planner.nextSeq },
        );
      }
      return { producer, planner, ended: false };
    }),
  );
}

/** What a process holds of how many lanes or parts. */
function heldBy(
  { lanes: count }: ResolvedPipeline,
  isLanes: boolean,
  lanes: RunSettings["lanes"],
  part: NonNullable<RunSettings["part"]>,
): { readonly held: readonly number[]; readonly of: number } {
  const held = isLanes ? [...new Set(lanes ?? Array.from({ length: count }, (_, k) => k))] : [part.index];
  const of = isLanes ? count : part.count;
  const bad = held.filter((k) => !(Number.isSafeInteger(k) && k >= 0 && k < of));
  if (bad.length === 0 && held.length > 0) return { held, of };
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    isLanes
      ? `Lanes go from 0 to ${of - 1}; ${bad.length > 0 ? bad.join(", ") : "an empty list"} cannot be held.`
      : `A part is an index and how many parts there are, the index below the number, such as 0/2, not ${part.index}/${of}.`,
    { lanes: held },
  );
}

async function produce(
  lanes: readonly RunningLane[],
  report: RunReport,
  limits: { readonly steps: number; readonly batchesMax: number },
  options: RunOptions,
): Promise<void> {
  for (let made = 0; made < limits.batchesMax && !options.signal?.aborted; made++) {
    const open = lanes.filter((lane) => !lane.ended && lane.planner.nextStep < limits.steps);
    if (open.length === 0) return;
    // The lane that everybody else waits for comes first.
    const lane = open.reduce((a, b) => (b.planner.nextStep < a.planner.nextStep ? b : a));
    try {
      const batch = await lane.planner.next({ signal: options.signal });
      if (!batch) lane.ended = true;
      else await append(lane, batch, report, options);
    } catch (error) {
      if (options.signal?.aborted) return;
      throw error;
    }
  }
}

async function append(
  { producer }: RunningLane,
  batch: PlannedBatch,
  report: RunReport,
  options: RunOptions,
): Promise<void> {
  const ticket = await producer.append(batch.slices, {
    resumePoint: batch.resumePoint,
    lineage: batch.lineage,
    contentType: safetensorsType,
    user: batch.notes,
    signal: options.signal,
  });
  report.add({ step: batch.step, notes: batch.notes, samples: batch.plans.backbone.samples, faults: batch.faults });
  options.onBatch?.(batch, ticket.committed);
}

/** Finite sources end earlier in some lanes than in others: empty batches fill the gaps, so that every batch can be reached. */
async function evenOut(
  lanes: readonly RunningLane[],
  count: number,
  report: RunReport,
  options: RunOptions,
): Promise<void> {
  if (lanes.length !== count || !lanes.every((lane) => lane.ended)) return;
  const end = Math.max(...lanes.map(({ planner }) => (planner.nextSeq === 0 ? 0 : planner.nextStep - count + 1)));
  for (const lane of lanes) {
    while (lane.planner.nextStep < end) {
      const batch = await lane.planner.next({ isFiller: true, signal: options.signal });
      if (batch) await append(lane, batch, report, options);
    }
  }
}

/** Closes the log when it is complete: after the last of the steps, or when a process that holds everything came to the end of its sources. */
async function finish(
  ns: Namespace,
  settings: RunSettings,
  isDone: boolean,
  steps: number,
  lanes: readonly RunningLane[],
  signal: AbortSignal | undefined,
): Promise<{ closed: boolean; end: number }> {
  const { steps: range, closed } = await ns.info({ signal });
  const holdsAll = ns.order.kind === "lanes" ? lanes.length === ns.order.lanes : (settings.part?.count ?? 1) === 1;
  const isComplete = isDone && (range.end >= steps || holdsAll);
  if (closed || !isComplete || settings.close === false) return { closed, end: range.end };
  return { closed: true, end: (await ns.close({ signal })).end };
}
