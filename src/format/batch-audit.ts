/** Checking a whole batch object, as `verify` does: every byte belongs to something and is under a checksum. */

import type { ExtentPlace } from "./batch.js";
import {
  type BatchMetadata,
  checkBlock,
  checkSlice,
  decodeFooter,
  decodeMetadata,
  lineageBlock,
  type SliceEntry,
} from "./batch.js";
import type { Descriptor, Extent } from "./descriptor.js";
import { decodeSlice, isUnavailable } from "./encoding.js";
import type { BatchName } from "./keys.js";
import { decodeLineage, type LineageSample } from "./lineage.js";
import { openSealed, sealedCode } from "./seal.js";
import { corrupt } from "./shape.js";

/** What {@link auditBatchObject} found in an extent. */
interface AuditedExtent {
  readonly metadata: BatchMetadata;
  readonly lineage: readonly LineageSample[] | undefined;
  /** Bytes of the slices after decoding. */
  readonly rawBytes: number;
  /** Slices of a known encoding that this platform cannot decode: their stored bytes passed, what is in them was not looked at. */
  readonly undecoded: number;
}

/** Ranks go by the stride and not by the table: both must say the same. */
export function checkStride(where: string, stride: number | undefined, i: number, entry: SliceEntry): void {
  if (stride === undefined) return;
  if (entry.encoding !== sealedCode || entry.length !== stride || entry.offset !== i * stride)
    corrupt(where, `its descriptor says that every slice takes ${stride} bytes, sealed, and its table does not`, {
      offset: entry.offset,
    });
}

/**
 * Checks one whole object against its descriptor: size, footer, every slice (decoded too, where this platform can), metadata
 * and lineage, and that nothing lies between them. `decode: false` leaves the encodings alone.
 */
export function auditBatchObject(
  bytes: Uint8Array,
  where: string,
  namespace: string,
  name: BatchName & Pick<Descriptor, "stride">,
  place: ExtentPlace,
  extent: Extent,
  decode = true,
): AuditedExtent {
  if (bytes.length !== extent.size) corrupt(where, `it has ${bytes.length} bytes, expected ${extent.size}`);
  const footer = decodeFooter(bytes.subarray(extent.table), where, namespace, name, place, extent);
  let offset = 0;
  let rawBytes = 0;
  let undecoded = 0;
  for (let i = 0; i < footer.cells; i++) {
    const entry = footer.entry(i);
    if (entry.offset !== offset) corrupt(where, `slice ${place.firstCell + i} does not follow the one before it`);
    const stored = bytes.subarray(offset, offset + entry.length);
    checkSlice(stored, where, entry);
    checkStride(where, name.stride, i, entry);
    if (entry.encoding === sealedCode) openSealed(stored, where, namespace, name, place.firstCell + i);
    const canDecode = decode && !isUnavailable(entry);
    if (canDecode) decodeSlice(stored, where, entry);
    else undecoded++;
    offset += entry.length;
    rawBytes += entry.rawLength;
  }
  const { metadata: block } = footer;
  const metadata = decodeMetadata(bytes.subarray(block.offset, block.offset + block.length), where, block);
  const lineage = lineageBlock(metadata, where);
  if ((lineage?.offset ?? offset) !== offset || offset + (lineage?.length ?? 0) !== block.offset)
    corrupt(where, "there are bytes between its slices and its metadata");
  if (!lineage) return { metadata, lineage: undefined, rawBytes, undecoded };
  const lineageBytes = bytes.subarray(lineage.offset, lineage.offset + lineage.length);
  checkBlock(lineageBytes, where, lineage, "lineage");
  return { metadata, lineage: decodeLineage(lineageBytes, where), rawBytes, undecoded };
}
