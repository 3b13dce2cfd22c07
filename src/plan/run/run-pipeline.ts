/** Running a pipeline: planners on one side, producers of the log on the other. */
import {
  BatchWeaveError,
  createNamespace,
  type Env,
  type Namespace,
  type NamespaceOptions,
  type ProducerOptions,
  systemEnv,
} from "../../index.js";
import type { Fault } from "../load/fault.js";
import type { SourceFigures } from "../load/source-figures.js";
import { sourceMetrics } from "../load/source-metrics.js";
import { LaneEnds, onlyLost } from "./lane-ends.js";
import { assertCreator, layoutOf, openLanes, type RunningLane } from "./lane-layout.js";
import type { PlannedBatch } from "./lane-planner.js";
import { pipelineMark } from "./lane-state.js";
import { OpenPipeline } from "./open-pipeline.js";
import type { Pipeline } from "./pipeline.js";
import { runExchange } from "./run-fleet.js";
import type { RunReport, RunSummary } from "./run-report.js";
import { SecondLook } from "./second-look.js";
import { appendOf } from "./training-lanes.js";

/** What a process runs of a pipeline. */
export interface RunSettings {
  /** A name of this process, for people. The log's producers are lanes or parts. */
  readonly id?: string | undefined;
  /** In lanes order: the lanes this process holds. Default: all. */
  readonly lanes?: readonly number[] | undefined;
  /** In commit order: the part of the sources that this process reads, of how many. Default: all parts, as many as the pipeline says. A process that held it is fenced. */
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
  /** After each batch was accepted by the log's producer; `pending` of this run's batches are not yet known to be in the log. */
  readonly onBatch?: ((batch: PlannedBatch, pending: number) => void) | undefined;
  /** Once the namespace is open: what can be asked while the run goes on. */
  readonly onOpen?: ((run: OpenRun) => void) | undefined;
  /** When something is left out, before the batch that records it is made. */
  readonly onFault?: ((fault: Fault) => void) | undefined;
  /** Only for tests of worker threads: where their program is. */
  readonly workerUrl?: URL | undefined;
}

/** A run that goes on. */
export interface OpenRun {
  readonly ns: Namespace;
  /** What each source has cost so far, and whether it is waited for now. */
  readonly figures: () => readonly SourceFigures[];
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

/** Time that a run which was told to stop still takes for what is on its way to the log: less than two seconds, for all of it. */
const stopMsMax = 1_000;

/** Runs a pipeline until its steps are done, its sources end, or the signal aborts (what can be committed in a second then still is). */
export async function runPipeline(
  pipeline: Pipeline,
  settings: RunSettings = {},
  options: RunOptions = {},
): Promise<RunResult> {
  const env = options.env ?? systemEnv;
  const { namespace: target, exchange } = pipeline.spec;
  if (exchange !== undefined && exchange !== "direct") {
    assertWhole(settings);
    return await runExchange(pipeline, settings, options);
  }
  const steps = settings.steps ?? pipeline.spec.steps ?? Number.POSITIVE_INFINITY;
  const begun = env.monotonic();
  // Refused before anything is created.
  const layout = layoutOf(target, settings);
  await using open = await OpenPipeline.open(pipeline, env, options);
  const { grid } = target;
  const shape = layout.isLanes
    ? ({ grid, order: "lanes", lanes: layout.count } as const)
    : ({ grid, parts: layout.count } as const);
  const user = pipelineMark(open.resolved.print);
  const ns = await createNamespace(settings.uri ?? target.uri, { ...shape, user }, options);
  using _sources = sourceMetrics(ns.metrics.with({ namespace: ns.uri, role: "loader" }), () => open.figures);
  options.onOpen?.({ ns, figures: () => open.figures });
  const report = open.report();
  const result = (closed: boolean, end: number): RunResult => ({
    summary: report.summary(),
    sources: open.figures,
    wallMs: env.monotonic() - begun,
    closed,
    end,
  });
  const found = await ns.info({ signal: options.signal });
  // Complete: nothing to open, since opening is a commit too.
  if (found.closed && (found.steps.end >= steps || steps === Number.POSITIVE_INFINITY)) {
    assertCreator(ns, open.resolved, true);
    return result(true, found.steps.end);
  }
  const lanes = await openLanes(ns, open.parts, layout, settings.producer, options.signal);
  const look = new SecondLook(ns, open.parts, layout);
  const ends = new LaneEnds(
    { ns, layout, steps, producing: settings.producer },
    open.parts,
    (lane, batch) => append(lane, batch, report, options),
    options.signal,
  );
  const watching = new AbortController();
  const watched = ends.watch(lanes, env, watching.signal).catch((error: unknown) => {
    // Gaps are filled at the end too; an ended lane that another process took over is in good hands.
    if (!watching.signal.aborted && !options.signal?.aborted) onlyLost(error);
  });
  try {
    await Promise.race([
      produce(lanes, report, { steps, batchesMax: settings.batchesMax ?? Infinity }, look, options),
      watched.then(() => new Promise<never>(() => {})),
    ]);
    watching.abort();
    await watched;
    if (!options.signal?.aborted) await ends.fillOwn(lanes).catch(onlyLost);
  } catch (error) {
    watching.abort();
    // What was accepted before the failure still goes into the log; that this may fail too is not the news.
    await Promise.allSettled(lanes.map(({ producer }) => producer.close()));
    throw error;
  }
  if (options.signal?.aborted) return await stop(ns, lanes, env, result);
  await Promise.all(lanes.map((lane) => closeLane(lane)));
  await look.finish(options.signal);
  const isDone = lanes.every((lane) => lane.ended || lane.planner.nextStep >= steps);
  const { closed, end } = await ends.finish(isDone && settings.close !== false);
  return result(closed, end);
}

/** Through logs, a process takes what is needed: no option tells it which lanes. */
function assertWhole({ lanes, part, batchesMax, close }: RunSettings): void {
  const given = Object.entries({ lanes, part, batches: batchesMax, "no-close": close === false ? true : undefined });
  const [first] = given.filter(([, value]) => value !== undefined);
  if (!first) return;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `--${first[0]} goes with exchange "direct". With exchange "log", processes take lanes as they are needed: start as many of batchweave load and batchweave construct as you like.`,
    { option: first[0] },
  );
}

/** A lane that has ended may have been taken over by the process that filled its gaps. */
async function closeLane({ producer, ended }: RunningLane): Promise<void> {
  await producer.close().catch((error: unknown) => {
    if (!ended) throw error;
    onlyLost(error);
  });
}

/** Told to stop: a batch that cannot come into the log (its lane is too far ahead of one that is missing) is made again by the process that goes on. */
async function stop(
  ns: Namespace,
  lanes: readonly RunningLane[],
  env: Env,
  result: (closed: boolean, end: number) => RunResult,
): Promise<RunResult> {
  const [late, done] = [new AbortController(), new AbortController()];
  const over = env.sleep(stopMsMax, done.signal).then(
    () => late.abort(new Error("no time left")),
    () => {},
  );
  const closing = Promise.allSettled(lanes.map(({ producer }) => producer.close({ signal: late.signal })));
  await Promise.race([closing, over]);
  done.abort();
  const { steps, closed } = await ns.info();
  return result(closed, steps.end);
}

async function produce(
  lanes: readonly RunningLane[],
  report: RunReport,
  limits: { readonly steps: number; readonly batchesMax: number },
  look: SecondLook,
  options: RunOptions,
): Promise<void> {
  const begun = new Map(lanes.map(({ lane, producer }) => [lane, producer.nextSeq]));
  for (let made = 0; made < limits.batchesMax && !options.signal?.aborted; made++) {
    const open = lanes.filter((lane) => !lane.ended && lane.planner.nextStep < limits.steps);
    if (open.length === 0) return;
    // The lane that all others wait for comes first.
    const lane = open.reduce((a, b) => (b.planner.nextStep < a.planner.nextStep ? b : a));
    try {
      if (made > 0) await look.take(lane.lane, begun.get(lane.lane) as number, options.signal);
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
  await producer.append(batch.body, {
    ...appendOf(batch),
    signal: options.signal,
  });
  report.add({ step: batch.step, notes: batch.notes, samples: batch.plans.backbone.samples, faults: batch.faults });
  // Not its ticket: asking for that makes the producer look after every commit, which is too dear for a display.
  options.onBatch?.(batch, producer.pendingBatches);
}
