/**
 * store: bytes under keys.
 *
 * Owns: the {@link ObjectStore} interface, its backends (memory, files, S3, Azure, Google), the decorators around it, and the probe that
 * tells a store we can trust from one we cannot.
 * May import: errors, env, flow.
 * Promises: a conditional create has at most one winner, also across processes, and is never retried here; what is not known is `unknown`.
 * No reader sees part of an object. Keys cannot leave the root. Failures are STORE_* errors that name the place and the remedy;
 * abort reasons pass through unwrapped. Time and chance come from the env passed in.
 */
export type { AzureStoreSettings } from "./azure/index.js";
export {
  type HedgingSettings,
  hedgedPutBytesMax,
  type RetrySettings,
  type StoreCall,
  type StoreObserver,
  type StoreOp,
  withHedging,
  withMetrics,
  withPrefix,
  withRetry,
} from "./decorate/index.js";
export {
  type Durability,
  type FileStore,
  type FileStoreSettings,
  foldersHolding,
  openFileStore,
} from "./file/index.js";
export type { GcsStoreSettings } from "./gcs/index.js";
export { isKey } from "./key.js";
export { MemoryStore } from "./memory.js";
export type {
  AbortUploadsOptions,
  Body,
  CallOptions,
  CreateOutcome,
  ListedObject,
  ListOptions,
  ListPage,
  ObjectStore,
  WriteOptions,
} from "./object-store.js";
export { assertSafe, type ProbeCase, type ProbeReport, type ProbeSettings, probePrefix, probeStore } from "./probe.js";
export type { S3Credentials, S3Encryption, S3StoreSettings } from "./s3/index.js";
export { openStore, pathOfFileUri, type StoreSettings } from "./uri.js";
