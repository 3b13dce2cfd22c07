/**
 * consumer: from the log to one rank's shares.
 *
 * Owns: the mesh and its rank orders, the projection of the log onto a rank (pure), reading and checking slices, following the log, prefetch.
 * May import: errors, env, flow, observe, format, store, log, cadence.
 * Promises: every rank yields the same iterations, and together they see each row once, in order; no byte is handed out unchecked;
 * memory is bounded; nothing is written to the store. Ranks that need the same rows read the same bytes.
 */
export { Consumer, type ConsumerCheckpointOptions, type ConsumerParts, openConsumer } from "./consumer.js";
export type { ConsumerObserver, PollEvent, ShareEvent, WaitEvent } from "./consumer-observer.js";
export type { ConsumerSettings } from "./consumer-settings.js";
export { type GivenMesh, type JobEnvironment, resolveMesh } from "./job-environment.js";
export { type Axis, describeMesh, type Mesh, type MeshPlace, placeRank, type RankOrder, worldSize } from "./mesh.js";
export {
  assertProjection,
  type Cell,
  type ChunkLayout,
  type IterationPlan,
  type Policy,
  type Projection,
  planIteration,
  type RowsPerRank,
  rowsOfRank,
} from "./projection.js";
export { planRanges, rangeBytesMax } from "./range-plan.js";
export { joinShare, type Share, type Slice } from "./share.js";
export { SliceReader } from "./slice-reader.js";
export type { StartFrom } from "./start-position.js";
export { type SlicePlace, StepReader } from "./step-reader.js";
