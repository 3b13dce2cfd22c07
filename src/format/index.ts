/**
 * format: bytes <-> values. The code behind FORMAT.md.
 *
 * Owns: every stored layout (batch object, lineage, tensors, manifest, index objects, boundary, namespace, cursor), the names of stored objects, the checksum.
 * May import: errors.
 * Promises: pure; any damaged byte is CORRUPT naming the object, never a crash and never wrong data; unknown fields survive a rewrite.
 */
export * from "./batch.js";
export { auditBatchObject, checkStride } from "./batch-audit.js";
export * from "./boundary.js";
export * from "./brand.js";
export { crc32 } from "./crc.js";
export * from "./cursor.js";
export * from "./descriptor.js";
export { availableEncodings, decodeSlice, encodeSlice } from "./encoding.js";
export * from "./grid.js";
export * from "./index-node.js";
export {
  batchIntents,
  type Intent,
  intentShard,
  intentShards,
  type LeavingIntent,
  leavingIntentKey,
  type OpeningIntent,
  openingIntentKey,
  parseIntentKey,
} from "./intent.js";
export { type JoinOptions, joinRows, joinTensors } from "./join.js";
export { type FieldJoin, type Joins, pipelineJoins } from "./join-rule.js";
export { crcText, sealJson, storedJsonBytesMax } from "./json-object.js";
export * from "./keys.js";
export { decodeLineage, encodeLineage, type LineageSample } from "./lineage.js";
export * from "./manifest.js";
export * from "./namespace.js";
export * from "./producer-state.js";
export * from "./pulse.js";
export {
  type Dtype,
  decodeSafetensors,
  dtypeBytes,
  encodeSafetensors,
  type Tensor,
  type TensorFile,
  type TensorValues,
  tensorValues,
} from "./safetensors.js";
export {
  type BlockSample,
  checkSample,
  decodeSampleTable,
  encodeSampleBlock,
  type SampleEntry,
  type SampleSummary,
  type SampleTable,
  sampleBlockType,
} from "./sample-block.js";
export { openSealed, sealBytes, sealedCode, sealSlices } from "./seal.js";
export { corrupt } from "./shape.js";
