/**
 * plan: from many sources to balanced batches; public as `batchweave/plan`.
 *
 * Owns: sources, loaders and their worker threads, lanes that move between processes, mixing, cost models, balancing, packing, the construction of slices, pipelines in one file.
 * May import: index. Like any user, it has the public names of the package and no others.
 * Promises: every batch is decided by the pipeline, its seed and its place in the log, so that a replacement continues bit for bit and N
 * producers in lanes give the log of one; no sample is lost or used twice; every fault is counted and recorded with the batch it touched.
 */

export { finishSlice } from "./construct/deferred.js";
export { type PackingMethod, packSequences } from "./construct/packing.js";
export { type ExchangeSettings, sourceLogsUri } from "./exchange/exchange.js";
export { arrivalAssignment, balanceBins, imbalance } from "./graph/balance.js";
export {
  backboneCost,
  type CostFunction,
  costColumns,
  encoderCost,
  type Model,
  models,
  type SampleCost,
  sumCosts,
  tokenCost,
} from "./graph/cost.js";
export type { DGraph, RawPlanner } from "./graph/dgraph.js";
export { constructorDoPlan, type LoadPlan, loaderDoPlan, summaryBuffer } from "./graph/load-plan.js";
export { ClientPlaceTree } from "./graph/place-tree.js";
export type { Fault } from "./load/fault.js";
export {
  cropImage,
  decodeImage,
  patchifyImage,
  patchifyImages,
  placeImage,
  type RawImage,
  resizeImage,
} from "./load/image.js";
export type { PreparedImage, PreparedSample } from "./load/prepared-sample.js";
export type { SampleMeta } from "./load/sample-meta.js";
export { placementFigures, type SourceFigures } from "./load/source-figures.js";
export { openTokenizer, type Tokenizer, type TokenizerChoice, tokenize } from "./load/tokenize.js";
export {
  type Placement,
  placed,
  type Transform,
  type TransformContext,
  type TransformFunction,
  transform,
} from "./load/transform.js";
export { videoFrames } from "./load/video.js";
export {
  callbackMix,
  type MixContext,
  type MixSchedule,
  stagedMix,
  staticMix,
  type Weights,
  warmUpMix,
} from "./mix/mix-schedule.js";
export { SeededRandom } from "./mix/random.js";
export { type TrainerReportSettings, trainerReports } from "./mix/trainer-reports.js";
export { type ReplayOptions, type ReplayResult, type ReplaySettings, replayPipeline } from "./replay/replay.js";
export type { ReplayedBatch } from "./replay/replay-batch.js";
export { auditPipeline, type PipelineAudit } from "./run/audit.js";
export type { BatchNotes } from "./run/batch-notes.js";
export type { PlannedBatch } from "./run/lane-planner.js";
export { OpenPipeline } from "./run/open-pipeline.js";
export { definePipeline, type Pipeline, type PipelineSpec, type Strategy } from "./run/pipeline.js";
export { loadPipeline } from "./run/pipeline-file.js";
export { describeSources, describeSummary } from "./run/report-text.js";
export {
  type FleetOptions,
  type FleetSettings,
  type LoadResult,
  runConstructors,
  runLoaders,
} from "./run/run-fleet.js";
export { type OpenRun, type RunOptions, type RunResult, type RunSettings, runPipeline } from "./run/run-pipeline.js";
export type { RunSummary } from "./run/run-report.js";
export { decideFleet, type FleetAdvice, type FleetLook, looksMax, type ScaleSettings } from "./size/autoscaler.js";
export type { ConstructProfile } from "./size/construct-profile.js";
export { type CostCluster, clusterCosts } from "./size/cost-cluster.js";
export { lookAtFleet, openFleetLogs } from "./size/fleet-look.js";
export {
  type FleetCosts,
  type FleetPlan,
  planFleet,
  type SizeNeeds,
  type SourcePlan,
  type StepLimit,
} from "./size/fleet-plan.js";
export { type MeasureSettings, measureFleet, sizeFleet } from "./size/fleet-size.js";
export { type DemandPhase, demandPhases } from "./size/mix-demand.js";
export { readFleetPlan, withFleetPlan } from "./size/plan-file.js";
export { describeFleet } from "./size/size-text.js";
export type { SourceProfile } from "./size/source-profile.js";
export { external, isExternal, python } from "./source/external-source.js";
export type { IterableItem, OpenIterable } from "./source/iterable-shard.js";
export type { MegatronSample } from "./source/megatron-shard.js";
export { iterable, jsonl, megatron, parquet, type Source, type SourceSettings, webdataset } from "./source/source.js";
export type { TarSample } from "./source/tar-shard.js";
