/** A pipeline in one file: what its author writes, and the same checked and resolved. */
import { BatchWeaveError, type Env, type Grid, isBatchWeaveError, type Mesh, type StoreSettings } from "../../index.js";
import { type ConstructSettings, DataConstructor } from "../construct/data-constructor.js";
import type { PackingMethod } from "../construct/packing.js";
import { type Exchange, type ExchangeSettings, exchangeOf } from "../exchange/exchange.js";
import type { BinCapacity } from "../graph/bin-loads.js";
import { DGraph } from "../graph/dgraph.js";
import { ClientPlaceTree } from "../graph/place-tree.js";
import type { TooLong } from "../load/source-loader.js";
import type { TransformPoolSettings } from "../load/transform-pool.js";
import { type MixSchedule, mixPosition, staticMix } from "../mix/mix-schedule.js";
import { hash32 } from "../mix/random.js";
import { phaseStart } from "../size/mix-demand.js";
import { assertLogged, externalSource, isExternal } from "../source/external-source.js";
import { poolBytesDefault, type ShardPoolSettings } from "../source/shard-pool.js";
import { loggedSource, type ResolvedSource, resolveSource, type Source, windowBytesDefault } from "../source/source.js";
import type { PipelinePrint } from "./lane-state.js";
import { checkShape } from "./spec-check.js";

/** Graphs of a batch: the backbone's, and another for an encoder that is balanced on its own. */
interface StrategyGraphs {
  readonly backbone: DGraph;
  readonly encoder?: DGraph | undefined;
}

/** Describes what happens to samples, from a graph over the pipeline's mesh and capacities. Called once; the graph is carried out for each batch. */
export type Strategy<Name extends string = string> = (graph: DGraph<Name>) => DGraph | StrategyGraphs;

/** How many samples a batch takes. */
type BatchSize =
  /** Exactly so many draws a step; the mix is in samples, and exact. */
  | { readonly samples: number }
  /** As many as fit; the mix is in tokens. `lookahead`: samples that may be found too long before the batch is closed. Default 8. */
  | { readonly fill: "tokens"; readonly lookahead?: number | undefined };

/** Where a pipeline writes. */
export interface PipelineNamespace {
  readonly uri: string;
  readonly grid: Grid;
  /** Default "lanes": the log is then the same in every run, whatever crashed. */
  readonly order?: "commit" | "lanes" | undefined;
  /** Default 4. */
  readonly lanes?: number | undefined;
  /** In commit order: into how many parts the sources are divided, each with a producer of its own. Default 1, or as `run --part` says. */
  readonly parts?: number | undefined;
}

/** What `definePipeline` takes. */
export interface PipelineSpec<Name extends string = string> {
  readonly namespace: PipelineNamespace;
  readonly sources: Readonly<Record<Name, Source>>;
  readonly strategy: Strategy<NoInfer<Name>>;
  readonly construct: ConstructSettings & {
    /** Activation bytes of a packed sequence at most, as the graph's cost function counts them. */
    readonly memoryMax?: number | undefined;
    /** How arriving samples are packed; balancing starts from that. Default "best-fit". */
    readonly packing?: PackingMethod | undefined;
    /** What is done with samples that are longer than a sequence. Default "split". */
    readonly tooLong?: TooLong | undefined;
    /** The share of a source's tokens that "truncate" and "skip" may drop; more stops the pipeline. Default 0.1. */
    readonly droppedShareMax?: number | undefined;
  };
  /** Default `{ fill: "tokens" }`. */
  readonly batch?: BatchSize | undefined;
  /** Steps of the whole log; after them it is closed. Default: until the sources end. */
  readonly steps?: number | undefined;
  /** `batchweave run` without --id, --lanes, --part, --batches or --namespace rehearses in a temporary folder, as with --rehearse: for examples. */
  readonly rehearsal?: boolean | undefined;
  /** The trainer's mesh. Default: dp and cp as the grid has rows and chunks. */
  readonly mesh?: Mesh | undefined;
  /** Default 0. */
  readonly seed?: number | string | undefined;
  /** What a mix callback is told, such as the loss so far. */
  readonly metrics?:
    | ((step: number) => Readonly<Record<string, number>> | Promise<Readonly<Record<string, number>>>)
    | undefined;
  readonly workers?: TransformPoolSettings | undefined;
  /** Read-ahead: `samplesMax` of each lane and source (default 64), `bytesMax` of the whole process (default 256 MiB; one sample of each lane and source is always allowed). */
  readonly buffers?:
    | (ShardPoolSettings & { readonly samplesMax?: number | undefined; readonly bytesMax?: number | undefined })
    | undefined;
  readonly storeSettings?: StoreSettings | undefined;
  /**
   * How samples come from loaders to constructors. "direct": in memory, within each process. "log": through a durable log for each source, so that loaders and
   * constructors are processes of their own, any number of each, and every byte of a source is read once. Default "direct".
   */
  readonly exchange?: "direct" | "log" | ExchangeSettings | undefined;
}

/** A pipeline as its file exports it. */
export interface Pipeline {
  readonly kind: "batchweave-pipeline";
  readonly spec: PipelineSpec;
}

/** Declares a pipeline; a file that `batchweave run` takes has one as its default export. */
export function definePipeline<Name extends string>(given: PipelineSpec<Name>): Pipeline {
  const spec = given as PipelineSpec;
  checkSpec(spec);
  const names = Object.keys(spec.sources);
  const refuse = (why: string): never => {
    throw new BatchWeaveError("INVALID_ARGUMENT", why);
  };
  if (names.length === 0 || names.length > 65_535) refuse(`A pipeline has 1 to 65,535 sources, not ${names.length}.`);
  for (const [name, { settings }] of Object.entries(spec.sources)) {
    const order = ["loader", "constructor", "consumer"];
    const places = (settings.transforms ?? []).map(({ at }) => order.indexOf(at));
    if (places.some((place, i) => i > 0 && place < (places[i - 1] as number)))
      refuse(
        `Source ${name} has a transform in an earlier place than the one before it: the order is loader, constructor, consumer.`,
      );
  }
  return { kind: "batchweave-pipeline", spec };
}

/** Everything that can be seen to be wrong before a source is opened. */
function checkSpec(spec: PipelineSpec): void {
  checkShape("pipeline", "", spec);
  const { namespace, construct, batch, workers, buffers, sources, exchange } = spec;
  checkShape("namespace", "namespace", namespace);
  checkShape("grid", "namespace.grid", namespace.grid);
  checkShape("construct", "construct", construct);
  if (batch) checkShape("batch", "batch", batch);
  if (workers) checkShape("workers", "workers", workers);
  if (buffers) checkShape("buffers", "buffers", buffers);
  if (typeof exchange === "object") checkShape("exchange", "exchange", exchange);
  if (exchange !== undefined && exchange !== "direct" && namespace.order === "commit")
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      'exchange "log" needs lanes order: a block goes to one lane, and in commit order there are none. Leave out namespace.order.',
    );
  for (const [name, source] of Object.entries(sources)) {
    if (typeof source?.format?.open !== "function")
      throw new BatchWeaveError(
        "INVALID_ARGUMENT",
        `sources.${name} is no source. Make it with jsonl, parquet, webdataset, megatron, iterable, python or external.`,
      );
    assertLogged(name, source, exchange !== undefined && exchange !== "direct");
    checkShape("source", `sources.${name}`, source.settings);
    for (const [i, one] of (source.settings.transforms ?? []).entries())
      checkShape("transform", `sources.${name}.transforms[${i}]`, one);
  }
}

/** A pipeline whose shards are known and whose graphs are built. */
export interface ResolvedPipeline {
  readonly spec: PipelineSpec;
  readonly sources: readonly ResolvedSource[];
  readonly seed: number | string;
  readonly lanes: number;
  readonly tree: ClientPlaceTree;
  readonly graphs: StrategyGraphs;
  readonly mix: MixSchedule;
  readonly batch: BatchSize;
  readonly capacity: BinCapacity;
  readonly construct: DataConstructor;
  /** Of everything that decides batches besides code: a resume point is good only for the same. */
  readonly print: PipelinePrint;
  /** Every source ends one day. */
  readonly hasEnd: boolean;
  /** Undefined: samples are exchanged in memory. */
  readonly exchange: Exchange | undefined;
}

/** The user's strategy, and whether what it returned is a graph. */
function askStrategy(strategy: Strategy, graph: DGraph): StrategyGraphs {
  let result: unknown;
  try {
    result = strategy(graph);
  } catch (error) {
    if (isBatchWeaveError(error)) throw error;
    const message = `The strategy threw: ${error instanceof Error ? error.message : String(error)}. Mend it in the pipeline's file.`;
    throw new BatchWeaveError("INVALID_ARGUMENT", message, {}, error);
  }
  if (result instanceof DGraph) return { backbone: result };
  const { backbone, encoder } = (result ?? {}) as Partial<StrategyGraphs>;
  if (backbone instanceof DGraph && (encoder === undefined || encoder instanceof DGraph))
    return result as StrategyGraphs;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `The strategy returned ${result === null ? "null" : typeof result}, not a graph. Return the graph it was given, such as (graph) => graph.balance("greedy"), or { backbone, encoder }.`,
  );
}

/** A window of every source and lane fits into what a process keeps of windows, unless they are very many. Decided by the pipeline alone, as windows decide the order. */
function windowBytesOf(windows: number): number {
  return Math.max(65_536, Math.min(windowBytesDefault, Math.floor(poolBytesDefault / windows)));
}

/** By phase: when it begins and what it gives to whom. A callback decides for itself, and what it decided is stored with the batch. A share of 0 is none, so that a source may be added with it. */
function sharesOf(mix: MixSchedule): readonly unknown[] {
  if (mix.kind === "callback") return [];
  return mix.phases.map((_, phase) => {
    const step = phaseStart(mix, phase) ?? 0;
    const weights = mix.weightsAt({ step, position: mixPosition(mix, step), metrics: {} });
    const given = Object.entries(weights).filter(([, weight]) => weight > 0);
    const sum = given.reduce((total, [, weight]) => total + weight, 0);
    return [step, given.map(([name, weight]) => `${name} ${(weight / sum).toFixed(9)}`).sort()];
  });
}

/** The schedule as it was before its last stages were added. */
function earlierShapes(mix: MixSchedule, shapeOf: (phases: readonly string[]) => number): PipelinePrint["earlier"] {
  return mix.phases.slice(1).map((_, i) => ({
    shape: shapeOf(mix.phases.slice(0, i + 1)),
    until: phaseStart(mix, i + 1) ?? Number.POSITIVE_INFINITY,
  }));
}

/** Finds shards and builds graphs. With `logs`, the uuids of the sources' logs, samples come from there and no shard is looked for. */
export async function resolvePipeline(
  { spec }: Pipeline,
  env: Env,
  logs?: readonly string[] | undefined,
): Promise<ResolvedPipeline> {
  const { namespace, construct, batch = { fill: "tokens" }, seed = 0 } = spec;
  const { grid } = namespace;
  const lanes = namespace.order === "commit" ? 1 : (namespace.lanes ?? 4);
  const access = { env, storeSettings: spec.storeSettings };
  const entries = Object.entries(spec.sources);
  const windowBytes = windowBytesOf(entries.length * Math.max(lanes, namespace.parts ?? 1));
  const sources = await Promise.all(
    entries.map(async ([name, source], i) =>
      logs
        ? loggedSource(name, source, logs[i] as string)
        : isExternal(source)
          ? externalSource(name, source)
          : await resolveSource(name, source, seed, access, windowBytes),
    ),
  );
  const tree = new ClientPlaceTree(spec.mesh ?? { dp: grid.rows, cp: grid.chunks });
  const capacity = { tokens: construct.seqLength, memory: construct.memoryMax };
  const { microbatches = 1, sequences = 1 } = construct;
  const graphs = askStrategy(spec.strategy, new DGraph({ tree, microbatches, sequences, capacity }));
  const weights = Object.fromEntries(sources.map(({ name, settings }) => [name, settings.weight ?? 1]));
  const mix = graphs.backbone.nodes.mix ?? staticMix(weights);
  const built = new DataConstructor(grid, tree, construct);
  // A limit decides no batch; what is done with long samples does, said or not.
  const made = { ...construct, tooLong: construct.tooLong ?? "split", droppedShareMax: undefined };
  const shares = sharesOf(mix);
  const shapeOf = (phases: readonly string[]): number =>
    hash32(JSON.stringify([grid, lanes, batch, made, mix.kind, mix.by, phases, shares.slice(0, phases.length)]));
  const names = sources.map(({ name }) => name);
  const print: PipelinePrint = {
    shape: shapeOf(mix.phases),
    sources: sources.map(({ fingerprint }) => fingerprint),
    names,
    earlier: mix.kind === "staged" ? earlierShapes(mix, shapeOf) : [],
  };
  const hasEnd = sources.every(({ settings }) => Number.isFinite(settings.epochs ?? Number.POSITIVE_INFINITY));
  const exchange = exchangeOf(spec.exchange, { uri: namespace.uri, lanes });
  return { spec, sources, seed, lanes, tree, graphs, mix, batch, capacity, construct: built, print, hasEnd, exchange };
}
