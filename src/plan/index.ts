/**
 * plan: from many sources to balanced batches; public as `batchweave/plan`.
 *
 * Owns: sources, loaders and their worker threads, mixing, cost models, balancing, packing, the construction of slices, pipelines in one file.
 * May import: the public names of the package (`../index.js`), like any user.
 * Promises: every batch is decided by the pipeline, its seed and its place in the log, so that a replacement continues bit for bit and N
 * producers in lanes give the log of one; no sample is lost or used twice; every fault is counted and recorded with the batch it touched.
 */
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
  type BalanceNode,
  DGraph,
  type GraphNodes,
  type GraphPlace,
  type PlanShape,
  type RawPlanner,
} from "./dgraph.js";
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
export { type Packing, type PackingMethod, packSequences } from "./packing.js";
export { type BroadcastDim, ClientPlaceTree, type PlaceAxis, type PlaceNode } from "./place-tree.js";
export type { SampleMeta } from "./sample-meta.js";
