/**
 * Loaders and constructors of a pipeline whose samples go through logs. Any number of processes of either kind, anywhere, started and stopped at will: which
 * of them holds a lane decides nothing that is written.
 */
import {
  BatchWeaveError,
  createNamespace,
  isBatchWeaveError,
  Metrics,
  type Namespace,
  type NamespaceOptions,
  openNamespace,
  openStore,
  type ProducerOptions,
  systemEnv,
  withRetry,
} from "../../index.js";
import { BlockSupply } from "../exchange/block-supply.js";
import { type Exchange, exchangeAt, openSourceLog, optionsAt, type StorePlaces } from "../exchange/exchange.js";
import { SourceKeeper } from "../exchange/source-keeper.js";
import { loadRule, sourceLaneLog } from "../exchange/source-lanes.js";
import {
  FleetHints,
  type Handover,
  type HoldOptions,
  type HoldOutcome,
  holdLanes,
  type LaneLog,
} from "../fleet/index.js";
import type { SourceFigures } from "../load/source-figures.js";
import { sourceMetrics } from "../load/source-metrics.js";
import { isExternal } from "../source/external-source.js";
import type { ResolvedSource, Source } from "../source/source.js";
import { assertCreator, assertNeighbours } from "./lane-layout.js";
import type { OpenSupply, PlannedBatch } from "./lane-planner.js";
import { pipelineMark } from "./lane-state.js";
import { OpenPipeline } from "./open-pipeline.js";
import type { Pipeline } from "./pipeline.js";
import type { RunOptions, RunResult } from "./run-pipeline.js";
import { SecondLook } from "./second-look.js";
import { trainingLanes } from "./training-lanes.js";

/** What a process of a fleet offers. */
export interface FleetSettings
  extends Pick<
    HoldOptions,
    "lanesMax" | "logsMax" | "lanesAtOnce" | "shadow" | "patienceMs" | "handoversPerMinuteMax"
  > {
  /** Where the training log is, instead of where the pipeline says; its source logs go with it. */
  readonly uri?: string | undefined;
  /** Steps of the training log, instead of what the pipeline says. */
  readonly steps?: number | undefined;
  readonly producer?: Omit<ProducerOptions, "id" | "signal" | "takeover"> | undefined;
}

/** Events of a fleet's process. */
export interface FleetOptions extends RunOptions, StorePlaces {
  readonly onHandover?: ((event: Handover) => void) | undefined;
  /** Told what a constructor waits for after two seconds, and again now and then. */
  readonly onWait?: ((message: string) => void) | undefined;
  /** A block came into a source log's producer. */
  readonly onBlock?: ((source: string, pending: number) => void) | undefined;
}

/** What a loader has done. */
export interface LoadResult extends HoldOutcome {
  readonly sources: readonly SourceFigures[];
  readonly wallMs: number;
}

/** Lanes of a loader that make blocks at a time: most of them wait for threads or the store, and buffers are bounded for the process. */
const loadingAtOnce = 64;
/** A wait of so long is told. */
const toldMs = 2_000;
/** A constructor that has waited so long for a block keeps the source logs too. */
const keeperWaitMs = 3_000;
/** How often loaders look whether the training log is complete. */
const lookDelayMs = 1_000;

interface FleetPlaces {
  readonly exchange: Exchange;
  readonly training: string;
  readonly steps: number;
  readonly logs: readonly Namespace[];
  readonly hints: FleetHints;
}

/** The logs of a fleet, opened or made. */
async function openPlaces({ spec }: Pipeline, settings: FleetSettings, options: FleetOptions): Promise<FleetPlaces> {
  const { namespace, sources, steps = Number.POSITIVE_INFINITY } = spec;
  const training = settings.uri ?? namespace.uri;
  const exchange = exchangeAt(spec, training);
  if (!exchange)
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      'This pipeline exchanges samples in memory, so loaders and constructors are one process: batchweave run. Say exchange: "log" in its file to have them apart.',
    );
  const env = options.env ?? systemEnv;
  const opened = withStore(spec, options);
  const logs = await Promise.all(
    Object.entries(sources).map(([name, source]) =>
      openSourceLog(exchange, { name, settings: source.settings }, opened),
    ),
  );
  const place = `${exchange.uri}/.fleet`;
  const store = opened.storeAt?.(place) ?? withRetry(await openStore(place, opened.storeSettings ?? {}, env), env);
  return { exchange, training, steps: settings.steps ?? steps, logs, hints: new FleetHints(env, store) };
}

function withStore({ storeSettings }: Pipeline["spec"], options: FleetOptions): NamespaceOptions & StorePlaces {
  return { storeSettings, ...options };
}

/** Loads: reads the sources and writes their logs, until all have ended, the training log is complete, or the signal aborts. */
export async function runLoaders(
  pipeline: Pipeline,
  settings: FleetSettings = {},
  options: FleetOptions = {},
): Promise<LoadResult> {
  const env = options.env ?? systemEnv;
  const begun = env.monotonic();
  const places = await openPlaces(pipeline, settings, options);
  await using open = await OpenPipeline.open(pipeline, env, options);
  const lanes = places.logs.flatMap((ns, i) =>
    isExternal(open.resolved.sources[i] as ResolvedSource)
      ? []
      : [sourceLaneLog(ns, open.resolved, i, places.exchange, (part, from) => open.parts.supply(i, part, from))],
  );
  await assertComplete(lanes, options.signal);
  const done = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, done.signal]) : done.signal;
  const metrics = options.metrics ?? new Metrics();
  const { training } = places;
  const figures = (): readonly SourceFigures[] => open.figures.map(asCosts);
  using _sources = sourceMetrics(metrics.with({ namespace: training, role: "loader" }), figures);
  const opened = (ns: Namespace): void => options.onOpen?.({ ns, figures });
  const watching = watchTraining(training, optionsAt(withStore(pipeline.spec, options), training), done, opened);
  try {
    const outcome = await holdLanes(env, lanes, {
      ...settings,
      lanesAtOnce: settings.lanesAtOnce ?? loadingAtOnce,
      hints: places.hints,
      onBatch: ({ log, pending }) => options.onBlock?.(log.name, pending),
      onHandover: options.onHandover,
      signal,
    });
    return {
      ...outcome,
      isOver: outcome.isOver || done.signal.aborted,
      sources: open.figures,
      wallMs: env.monotonic() - begun,
    };
  } finally {
    done.abort();
    await watching;
  }
}

/** A log that is complete is not loaded again; it must be that of this pipeline, or constructors would go on with samples of another. */
async function assertComplete(logs: readonly LaneLog[], signal: AbortSignal | undefined): Promise<void> {
  await Promise.all(
    logs.map(async (log) => {
      if (!(await log.ns.info({ signal })).closed) return;
      const state = await log.ns.producerState("lane-0", { signal });
      if (state) await (await log.open(0, state, signal)).close();
    }),
  );
}

/** A block of a source's log must have been made as this pipeline's file says. Which shards it was made of, only loaders can tell. */
async function assertRule(
  log: Namespace,
  block: number,
  source: { readonly name: string; readonly settings: Source["settings"] },
  { spec }: Pipeline,
  exchange: Exchange,
): Promise<void> {
  const { resumePoint } = await log.inspect(block);
  const { rule } = (resumePoint ?? {}) as { readonly rule?: number };
  if (rule === undefined || rule === loadRule(source, spec, exchange)) return;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `The log of source ${source.name} was loaded with another file than this one: seed, epochs, shuffle, lanes, size of blocks, seqLength, vocabSize, tooLong or transforms differ. Continue with the file as it was, or let the exchange begin elsewhere (exchange.uri).`,
    { source: source.name, uri: log.uri },
  );
}

/** Aborts when the training log is closed: no constructor needs another block. */
async function watchTraining(
  uri: string,
  options: NamespaceOptions,
  done: AbortController,
  opened: (ns: Namespace) => void,
): Promise<void> {
  const env = options.env ?? systemEnv;
  let ns: Namespace | undefined;
  while (!done.signal.aborted) {
    try {
      if (!ns) {
        ns = await openNamespace(uri, { ...options, signal: done.signal });
        opened(ns);
      }
      if ((await ns.info({ signal: done.signal })).closed) done.abort(new Error("the training log is complete"));
    } catch (error) {
      if (done.signal.aborted) return;
      // Not made yet, or the store is away: loading goes on meanwhile.
      if (!isBatchWeaveError(error)) throw error;
    }
    await env.sleep(lookDelayMs * (0.75 + env.random() / 2), done.signal).catch(() => {});
  }
}

/** Constructs: plans batches from the sources' logs and writes the training log, until it is complete or the signal aborts. */
export async function runConstructors(
  pipeline: Pipeline,
  settings: FleetSettings = {},
  options: FleetOptions = {},
): Promise<RunResult & Pick<HoldOutcome, "handovers">> {
  const env = options.env ?? systemEnv;
  const begun = env.monotonic();
  const { logs, training, exchange, hints, steps } = await openPlaces(pipeline, settings, options);
  const readers = logs.map((ns) => ns.stepReader());
  const names = Object.keys(pipeline.spec.sources);
  const waits = new Map<string, number>();
  const checks: Promise<void>[] = [];
  const { construct } = pipeline.spec;
  const supply: OpenSupply = (i, part, from) => {
    const source = names[i] as string;
    const key = `${part.lane} ${source}`;
    const { settings } = pipeline.spec.sources[source] as Source;
    return new BlockSupply(
      {
        source,
        reader: readers[i] as (typeof readers)[number],
        env,
        counter: open.parts.counters[i],
        tokensMax: construct.seqLength,
        vocabSize: construct.vocabSize,
        check: (block) => {
          checks[i] ??= assertRule(logs[i] as Namespace, block, { name: source, settings }, pipeline, exchange);
          // A store that failed once is asked again.
          checks[i]?.catch(() => delete checks[i]);
          return checks[i] as Promise<void>;
        },
        onWanted: (block) => {
          const since = waits.get(key) ?? env.monotonic();
          waits.set(key, since);
          const waitedMs = env.monotonic() - since;
          if (waitedMs >= toldMs && options.onWait)
            void whoLoads(hints, source, pipeline.spec.sources[source] as Source).then((who) =>
              options.onWait?.(
                `waiting for block ${block} of source ${source} for ${Math.round(waitedMs / 1_000)} s: ${who}`,
              ),
            );
          void hints.want(source, block);
        },
        onGot: () => {
          waits.delete(key);
          void hints.got(source);
        },
      },
      part,
      from,
    );
  };
  await using open = await OpenPipeline.open(pipeline, env, {
    ...options,
    logs: { uuids: logs.map(({ uuid }) => uuid), supply },
  });
  const { lanes } = open.resolved;
  const { grid } = pipeline.spec.namespace;
  const opened = optionsAt(withStore(pipeline.spec, options), training);
  const user = pipelineMark(open.resolved.print);
  const ns = await createNamespace(training, { grid, order: "lanes", lanes, user }, opened);
  using _sources = sourceMetrics(ns.metrics.with({ namespace: ns.uri, role: "constructor" }), () => open.figures);
  options.onOpen?.({ ns, figures: () => open.figures });
  const report = open.report();
  const found = await ns.info({ signal: options.signal });
  const held = new Set<number>();
  const keeping = new AbortController();
  // The holder of lane 0 may be dead, and that lane not wanted: a process that waits for long keeps too.
  const isKeeper = (): boolean => {
    const longAgo = env.monotonic() - keeperWaitMs;
    return held.has(0) || [...waits.values()].some((since) => since < longAgo);
  };
  const wanted = (signal: AbortSignal): ReturnType<FleetHints["read"]> => hints.read({ signal });
  const keeper = new SourceKeeper({
    training: ns,
    logs,
    pipeline: open.resolved,
    exchange,
    env,
    wanted,
    isWaiting: () => open.parts.counters.some(({ isWaitedFor }) => isWaitedFor),
    onTrouble: options.onWait,
  });
  const kept = keeper.run(isKeeper, keeping.signal);
  kept.catch(() => {});
  try {
    const layout = { isLanes: true, count: lanes, held: [] };
    await assertNeighbours(ns, open.parts, layout, options.signal);
    assertCreator(ns, open.resolved);
    const look = new SecondLook(ns, open.parts, layout);
    const outcome = found.closed
      ? undefined
      : await holdLanes(env, [trainingLanes(ns, open.parts, steps, look)], {
          ...settings,
          onHandover: (event) => {
            if (event.kind === "taken" || event.kind === "taken-over") held.add(event.lane);
            else held.delete(event.lane);
            options.onHandover?.(event);
          },
          onBatch: ({ batch, pending }) => {
            const planned = batch.note as PlannedBatch;
            const { step, notes, faults, plans } = planned;
            report.add({ step, notes, samples: plans.backbone.samples, faults });
            options.onBatch?.(planned, pending);
          },
          signal: options.signal,
        });
    if (outcome && outcome.batches > 0) await look.finish(undefined);
    const { closed, steps: range } = await ns.info();
    if (closed) {
      keeping.abort();
      await kept;
      await keeper.finish(options.signal);
    }
    return {
      summary: report.summary(),
      sources: open.figures,
      wallMs: env.monotonic() - begun,
      closed,
      end: range.end,
      handovers: outcome?.handovers ?? { taken: 0, "taken-over": 0, "given-up": 0, lost: 0, broken: 0 },
    };
  } finally {
    keeping.abort();
    await kept.catch(() => {});
  }
}

/** What is known of those who should make a block that is waited for. */
async function whoLoads(hints: FleetHints, name: string, source: Source): Promise<string> {
  if (isExternal(source) && !source.python) return "a program of its own fills that log; is it running?";
  const command = source.python ? `python3 -m batchweave load ${source.python.file}` : "batchweave load";
  const found = await hints.loaders(source.python ? name : undefined);
  if (!found) return `is a loader running (${command})?`;
  if (found.processes === 0) return `no loader has told of itself in the last minutes; start one (${command})`;
  const { processes, lanes, toldAgoMs } = found;
  return `loaders are there (${processes} with ${lanes} lanes, heard of ${Math.round(toldAgoMs / 1_000)} s ago): the block is slow to make, or its loader has just died`;
}

/** What a loader knows of a source: its cost. Its lanes always wait for the next sample; whether a batch does, constructors know. */
function asCosts(figures: SourceFigures): SourceFigures {
  return { ...figures, waitMs: 0, waitingMs: 0 };
}

/** One account of a process that does both. */
function merged(one: readonly SourceFigures[], other: readonly SourceFigures[]): readonly SourceFigures[] {
  return one.map((a, i) => {
    const b = other[i] ?? a;
    const costs = a.samples >= b.samples ? a : b;
    return { ...costs, waitMs: Math.max(a.waitMs, b.waitMs), waitingMs: Math.max(a.waitingMs, b.waitingMs) };
  });
}

/** Both in one process. */
export async function runExchange(
  pipeline: Pipeline,
  settings: FleetSettings,
  options: FleetOptions,
): Promise<RunResult> {
  const failed = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, failed.signal]) : failed.signal;
  // Told once, when both are open.
  const opened: { ns: Namespace; figures: () => readonly SourceFigures[] }[] = [];
  const onOpen: FleetOptions["onOpen"] = (one) => {
    const [other] = opened;
    opened.push(one);
    if (other) options.onOpen?.({ ns: one.ns, figures: () => merged(one.figures(), other.figures()) });
  };
  const both = { ...options, signal, onOpen };
  const orFail = async <T>(work: Promise<T>): Promise<T> => {
    try {
      return await work;
    } catch (error) {
      failed.abort(error);
      throw error;
    }
  };
  const [built, loaded] = await Promise.allSettled([
    orFail(runConstructors(pipeline, settings, both)),
    orFail(runLoaders(pipeline, settings, both)),
  ]);
  // Whichever failed first is the reason; the other only heard of it.
  if (failed.signal.aborted && !options.signal?.aborted) throw failed.signal.reason;
  if (built.status === "rejected") throw built.reason;
  if (loaded.status === "rejected") throw loaded.reason;
  return { ...built.value, sources: loaded.value.sources };
}
