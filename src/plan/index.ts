/**
 * plan: from many sources to balanced batches; public as `batchweave/plan`.
 *
 * Owns: sources, loaders and their worker threads, mixing, cost models, balancing, packing, the construction of slices, pipelines in one file.
 * May import: the public names of the package (`../index.js`), like any user.
 * Promises: every batch is decided by the pipeline, its seed and its place in the log, so that a replacement continues bit for bit and N
 * producers in lanes give the log of one; no sample is lost or used twice; every fault is counted and recorded with the batch it touched.
 */

export { auditPipeline, type PipelineAudit } from "./audit.js";
export {
  arrivalAssignment,
  type BalanceLevel,
  type BalanceMethod,
  type BalanceProblem,
  type BalanceSettings,
  balanceBins,
  imbalance,
} from "./balance.js";
export type { BinCapacity } from "./bin-loads.js";
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
} from "./cost.js";
export {
  type BatchContent,
  type ConstructSettings,
  DataConstructor,
  type FieldNames,
} from "./data-constructor.js";
export { finishSlice } from "./deferred.js";
export {
  type BalanceNode,
  DGraph,
  type GraphNodes,
  type GraphPlace,
  type PlanShape,
  type RawPlanner,
} from "./dgraph.js";
export type { Fault, FaultPolicy, FaultStage } from "./fault.js";
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
} from "./image.js";
export type { IterableItem, OpenIterable } from "./iterable-shard.js";
export { type BatchNotes, LanePlanner, type PlannedBatch } from "./lane-planner.js";
export { lanePointBytesMax } from "./lane-state.js";
export {
  type BufferSummary,
  constructorDoPlan,
  type Imbalance,
  type LoadPlan,
  loaderDoPlan,
  type PlanBin,
  type PlanBucket,
  summaryBuffer,
} from "./load-plan.js";
export type { MegatronSample } from "./megatron-shard.js";
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
} from "./mix-schedule.js";
export { type ContextLayout, type PackedSequence, type PackTokens, packSequence } from "./packed-sequence.js";
export { type Packing, type PackingMethod, packSequences } from "./packing.js";
export type { ParquetSettings } from "./parquet-shard.js";
export {
  type BatchSize,
  definePipeline,
  type Pipeline,
  type PipelineNamespace,
  type PipelineSpec,
  type Strategy,
  type StrategyGraphs,
} from "./pipeline.js";
export { loadPipeline } from "./pipeline-file.js";
export { type BroadcastDim, ClientPlaceTree, type PlaceAxis, type PlaceNode } from "./place-tree.js";
export type { PreparedImage, PreparedSample } from "./prepared-sample.js";
export { permutation, SeededRandom } from "./random.js";
export { describeSources, describeSummary } from "./report-text.js";
export { OpenPipeline, type RunOptions, type RunResult, type RunSettings, runPipeline } from "./run-pipeline.js";
export type { MixtureShare, PhaseMixture, RunSummary } from "./run-report.js";
export type { SampleMeta } from "./sample-meta.js";
export {
  iterable,
  jsonl,
  megatron,
  parquet,
  type ShardedSettings,
  type Source,
  type SourceSettings,
  webdataset,
} from "./source.js";
export { type PlacementFigures, placementFigures, type SourceFigures } from "./source-figures.js";
export type { TooLong } from "./source-loader.js";
export type { TarSample } from "./tar-shard.js";
export { type TokenizerChoice, type TokenizeSettings, tokenize } from "./tokenize.js";
export {
  importModule,
  type Placement,
  placed,
  type Transform,
  type TransformContext,
  type TransformFunction,
  transform,
} from "./transform.js";
export type { TransformPoolSettings } from "./transform-pool.js";
export { type VideoSettings, videoFrames } from "./video.js";
