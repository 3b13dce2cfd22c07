/**
 * plan: from many sources to balanced batches; public as `batchweave/plan`.
 *
 * Owns: sources, loaders and their worker threads, mixing, cost models, balancing, packing, the construction of slices, pipelines in one file.
 * May import: index. Like any user, it has the public names of the package and no others.
 * Promises: every batch is decided by the pipeline, its seed and its place in the log, so that a replacement continues bit for bit and N
 * producers in lanes give the log of one; no sample is lost or used twice; every fault is counted and recorded with the batch it touched.
 */

export {
  type BatchContent,
  type ConstructSettings,
  DataConstructor,
  type FieldNames,
} from "./construct/data-constructor.js";
export { finishSlice } from "./construct/deferred.js";
export { type ContextLayout, type PackedSequence, type PackTokens, packSequence } from "./construct/packed-sequence.js";
export { type Packing, type PackingMethod, packSequences } from "./construct/packing.js";
export {
  arrivalAssignment,
  type BalanceLevel,
  type BalanceMethod,
  type BalanceProblem,
  type BalanceSettings,
  balanceBins,
  imbalance,
} from "./graph/balance.js";
export type { BinCapacity } from "./graph/bin-loads.js";
export {
  backboneCost,
  type CostColumns,
  type CostFunction,
  costColumns,
  encoderCost,
  type Model,
  type ModelShape,
  models,
  type SampleCost,
  sumCosts,
  tokenCost,
} from "./graph/cost.js";
export {
  type BalanceNode,
  DGraph,
  type GraphNodes,
  type GraphPlace,
  type PlanShape,
  type RawPlanner,
} from "./graph/dgraph.js";
export {
  type BufferSummary,
  constructorDoPlan,
  type Imbalance,
  type LoadPlan,
  loaderDoPlan,
  type PlanBin,
  type PlanBucket,
  summaryBuffer,
} from "./graph/load-plan.js";
export { type BroadcastDim, ClientPlaceTree, type PlaceAxis, type PlaceNode } from "./graph/place-tree.js";
export type { Fault, FaultPolicy, FaultStage } from "./load/fault.js";
export {
  cropImage,
  decodeImage,
  type ImageSettings,
  type PatchSettings,
  patchifyImage,
  patchifyImages,
  placeImage,
  type RawImage,
  resizeImage,
} from "./load/image.js";
export type { PreparedImage, PreparedSample } from "./load/prepared-sample.js";
export type { SampleMeta } from "./load/sample-meta.js";
export { type PlacementFigures, placementFigures, type SourceFigures } from "./load/source-figures.js";
export type { TooLong } from "./load/source-loader.js";
export { type TokenizerChoice, type TokenizeSettings, tokenize } from "./load/tokenize.js";
export {
  importModule,
  type Placement,
  placed,
  type Transform,
  type TransformContext,
  type TransformFunction,
  transform,
} from "./load/transform.js";
export type { TransformPoolSettings } from "./load/transform-pool.js";
export { type VideoSettings, videoFrames } from "./load/video.js";
export {
  callbackMix,
  type MixContext,
  type MixGranularity,
  type MixSchedule,
  type MixSettings,
  type MixStage,
  stagedMix,
  staticMix,
  type Weights,
  warmUpMix,
} from "./mix/mix-schedule.js";
export { permutation, SeededRandom } from "./mix/random.js";
export { auditPipeline, type PipelineAudit } from "./run/audit.js";
export { type BatchNotes, LanePlanner, type PlannedBatch } from "./run/lane-planner.js";
export { lanePointBytesMax } from "./run/lane-state.js";
export {
  type BatchSize,
  definePipeline,
  type Pipeline,
  type PipelineNamespace,
  type PipelineSpec,
  type Strategy,
  type StrategyGraphs,
} from "./run/pipeline.js";
export { loadPipeline } from "./run/pipeline-file.js";
export { describeSources, describeSummary } from "./run/report-text.js";
export { OpenPipeline, type RunOptions, type RunResult, type RunSettings, runPipeline } from "./run/run-pipeline.js";
export type { MixtureShare, PhaseMixture, RunSummary } from "./run/run-report.js";
export type { IterableItem, OpenIterable } from "./source/iterable-shard.js";
export type { MegatronSample } from "./source/megatron-shard.js";
export type { ParquetSettings } from "./source/parquet-shard.js";
export {
  iterable,
  jsonl,
  megatron,
  parquet,
  type ShardedSettings,
  type Source,
  type SourceSettings,
  webdataset,
} from "./source/source.js";
export type { TarSample } from "./source/tar-shard.js";
