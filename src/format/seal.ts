/**
 * Sealed slices: each has its checksum beside it, tied to its place, so that a rank that knows where it lies reads it alone, without the slice
 * table. `slice | u32 CRC-32 of whose it is | u32 CRC-32 of the slice`.
 */
import { type StoredSlice, sliceBytesMax } from "./batch.js";
import { crc32, crc32OfText } from "./crc.js";
import type { BatchName } from "./keys.js";
import { corrupt } from "./shape.js";

/** Bytes behind a sealed slice. */
export const sealBytes = 8;
/** The code of sealed slices in the slice table. */
export const sealedCode = 2;
/** Shorter slices are not worth eight bytes each. */
const sealedBytesMin = 4_096;

type Owner = Pick<BatchName, "producer" | "epoch" | "seq" | "incarnation">;

/** CRC-32 of the text that says whose slice it is: another batch's, or another place's, is noticed. */
function ownerCrc(namespace: string, name: Owner, cell: number): number {
  const { producer, epoch, seq, incarnation } = name;
  return crc32OfText(`${namespace}/${producer}-${epoch}-${seq}-${incarnation}/${cell}`);
}

/** Seals the slices of a whole batch if all have one length; then `stride` is what each takes in its object. */
export function sealSlices(
  namespace: string,
  name: Owner,
  slices: readonly StoredSlice[],
): { readonly slices: readonly StoredSlice[]; readonly stride?: number } {
  const length = slices[0]?.bytes.length ?? 0;
  const isUniform = slices.every(({ bytes, encoding }) => encoding === 0 && bytes.length === length);
  if (!isUniform || length < sealedBytesMin || length + sealBytes > sliceBytesMax) return { slices };
  // One buffer for all seals: a batch may have thousands of slices.
  const seals = Buffer.alloc(slices.length * sealBytes);
  const sealed = slices.map(({ bytes, rawLength }, cell): StoredSlice => {
    const seal = seals.subarray(cell * sealBytes, (cell + 1) * sealBytes);
    const crc = crc32(bytes);
    // In this order: a CRC-32 over some bytes and then their own CRC-32 is the same whatever the bytes are, and the table's runs over both.
    seal.writeUInt32LE(ownerCrc(namespace, name, cell), 0);
    seal.writeUInt32LE(crc, 4);
    return { bytes, seal, crc: crc32(seal, crc), rawLength, encoding: sealedCode };
  });
  return { slices: sealed, stride: length + sealBytes };
}

/** The slice in its stored bytes, checked by its seal alone. */
export function openSealed(
  stored: Uint8Array,
  where: string,
  namespace: string,
  name: Owner,
  cell: number,
): Uint8Array {
  const length = stored.length - sealBytes;
  if (length < 0) return corrupt(where, `slice ${cell} has ${stored.length} bytes, fewer than its seal`);
  const seal = new DataView(stored.buffer, stored.byteOffset + length, sealBytes);
  if (seal.getUint32(0, true) !== ownerCrc(namespace, name, cell))
    return corrupt(where, `what lies at the place of slice ${cell} is not that slice of this batch`);
  const slice = stored.subarray(0, length);
  const found = crc32(slice);
  if (found !== seal.getUint32(4, true))
    return corrupt(where, "a slice does not match its checksum", { cell, expected: seal.getUint32(4, true), found });
  return slice;
}
