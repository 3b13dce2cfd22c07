/**
 * batchweave: a training data plane on plain object storage.
 *
 * Owns: every public name, one by one; and, in the files beside this one, what needs several rooms at once.
 * May import: errors, env, observe, format, store, log, cadence, producer, consumer, lifecycle.
 * Promises: these names change only with the version of the package (test/public-api.test.ts holds the list); nothing else is public.
 */
export type { CadenceSettings } from "./cadence/index.js";
export {
  type Axis,
  type Cell,
  type ChunkLayout,
  Consumer,
  type ConsumerCheckpointOptions,
  type ConsumerSettings,
  describeMesh,
  type GivenMesh,
  type JobEnvironment,
  type Mesh,
  type MeshPlace,
  type Policy,
  placeRank,
  type RankOrder,
  type RowsPerRank,
  type Share,
  type Slice,
  type StartFrom,
  worldSize,
} from "./consumer/index.js";
export { type Env, systemEnv } from "./env/index.js";
export {
  BatchWeaveError,
  type ErrorCode,
  type ErrorDetails,
  errorCodes,
  isBatchWeaveError,
  type Remedy,
} from "./errors.js";
export {
  availableEncodings,
  type Cursor,
  type Dtype,
  decodeSafetensors,
  encodeSafetensors,
  type Grid,
  type LineageSample,
  makeCursor,
  type Order,
  parseCursor,
  type SliceEncoding,
  type Tensor,
  type TensorFile,
  type TensorValues,
  tensorValues,
} from "./format/index.js";
export type { BatchInfo, BatchListing, SliceInfo } from "./inspect.js";
export type {
  DeadCount,
  DeadCounts,
  DeadObject,
  DeadReason,
  FindResult,
  FindSettings,
  ForkSettings,
  LagSettings,
  LiveCheckpoint,
  ReclaimLoopObserver,
  ReclaimLoopSettings,
  ReclaimReport,
  ReclaimSettings,
  SampleMatch,
  SkipRange,
  VerifyCode,
  VerifyCounts,
  VerifyProblem,
  VerifyReport,
  VerifySettings,
} from "./lifecycle/index.js";
export { parseSkip } from "./lifecycle/index.js";
export { type CheckpointOptions, type ConsumerOptions, Namespace, type ProducerOptions } from "./namespace.js";
export type { InfoOptions, NamespaceInfo, ProducerInfo } from "./namespace-info.js";
export { type ListNamespacesOptions, listNamespaces, type NamespaceListing } from "./namespace-listing.js";
export { type Labels, Metrics } from "./observe/index.js";
export {
  createNamespace,
  type DeleteOptions,
  deleteNamespace,
  type NamespaceOptions,
  type NamespaceSettings,
  openNamespace,
} from "./open.js";
export {
  type AppendOptions,
  type BatchSlices,
  Producer,
  type ProducerSettings,
  type Ticket,
} from "./producer/index.js";
export { previewSlice, type SlicePreview, safetensorsType, type TensorPreview } from "./slice-preview.js";
export {
  type AbortUploadsOptions,
  type AzureStoreSettings,
  assertSafe,
  type Body,
  type CacheSettings,
  type CallOptions,
  type CreateOutcome,
  type Durability,
  type FileStore,
  type FileStoreSettings,
  type GcsStoreSettings,
  type HedgingSettings,
  type ListedObject,
  type ListOptions,
  type ListPage,
  MemoryStore,
  type ObjectStore,
  openFileStore,
  openStore,
  type ProbeCase,
  type ProbeReport,
  type ProbeSettings,
  probePrefix,
  probeStore,
  type RetrySettings,
  type S3Credentials,
  type S3Encryption,
  type S3StoreSettings,
  type StoreCall,
  type StoreObserver,
  type StoreOp,
  type StoreSettings,
  type WriteOptions,
  withCache,
  withConcurrency,
  withHedging,
  withMetrics,
  withPrefix,
  withRetry,
} from "./store/index.js";
