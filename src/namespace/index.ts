/**
 * Owns: the handle that users hold: opening, creating, deleting and listing namespaces, what needs several rooms at once, what people look at.
 * May import: errors, env, observe, format, store, log, cadence, producer, consumer, lifecycle, pulse.
 * Promises: producers, consumers and the lifecycle meet here and in the log, nowhere else.
 */
export type { CommitInfo, InfoOptions, NamespaceInfo, ProducerInfo } from "./info.js";
export type { BatchInfo, BatchListing, SliceInfo } from "./inspect.js";
export { type ListNamespacesOptions, listNamespaces, type NamespaceListing } from "./listing.js";
export { type CheckpointOptions, type ConsumerOptions, Namespace, type ProducerOptions } from "./namespace.js";
export {
  createNamespace,
  type DeleteOptions,
  deleteNamespace,
  type NamespaceOptions,
  type NamespaceSettings,
  openNamespace,
} from "./open.js";
export { type ReportValues, reportLogUri } from "./report-log.js";
export { previewSlice, type SlicePreview, safetensorsType, type TensorPreview } from "./slice-preview.js";
export type { GroupVitals, ProducerVitals, Vitals } from "./vitals.js";
