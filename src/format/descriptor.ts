/** Descriptors: what a manifest knows of a batch. Compact arrays on the store, objects in memory. */
import { BatchWeaveError } from "../errors.js";
import { asEpoch, asSeq, asVersion } from "./brand.js";
import { type BatchName, batchKey } from "./keys.js";
import { sealBytes } from "./seal.js";
import { asId, asInteger, asList, asName, asTuple, asUnknown, corrupt } from "./shape.js";

/** One object of a batch. */
export interface Extent {
  /** How many cells it holds; extents follow each other in row-major order. */
  readonly cells: number;
  /** Size of the object. */
  readonly size: number;
  /** Offset of its slice table: `[table, size)` is all a rank needs besides its slices. */
  readonly table: number;
  /** CRC-32 of `[table, size - 8)`: ties the object to the commit. */
  readonly check: number;
}

/** A committed (or staged) batch. */
export interface Descriptor extends BatchName {
  readonly extents: readonly Extent[];
  /** Index into the namespace's `origins` when the objects are an ancestor's (forks). */
  readonly origin?: number | undefined;
  /** Every slice of the batch is sealed and takes so many bytes: the i-th of an extent begins at `i * stride`. */
  readonly stride?: number | undefined;
  /** Trailing elements that this version does not know, kept. */
  readonly rest?: readonly unknown[] | undefined;
}

/** Extents of one batch at most. */
export const extentsMax = 1_000;

/** The compact form. */
export function encodeDescriptor(d: Descriptor): unknown[] {
  const extents = d.extents.map((e) => [e.cells, e.size, e.table, e.check]);
  const head: unknown[] = [d.producer, d.epoch, d.incarnation, d.seq, d.base, d.attempt, extents];
  if (d.origin !== undefined || d.stride !== undefined || d.rest) head.push(d.origin ?? -1);
  if (d.stride !== undefined) head.push(d.stride);
  return d.rest ? [...head, ...d.rest] : head;
}

/** Reads the compact form. */
export function decodeDescriptor(value: unknown, where: string): Descriptor {
  const list = asList(value, where, "a descriptor");
  const origin = list[7];
  const extents = asList(list[6], where, "descriptor.extents");
  // A step that was trimmed before its fork was made: no reader looks it up.
  const isHole = extents.length === 0 && list[2] === "";
  if (extents.length > extentsMax || (extents.length === 0 && !isHole))
    corrupt(where, `a batch has ${extents.length} extents`);
  const descriptor: Descriptor = {
    producer: asName(list[0], where, "descriptor.producer"),
    epoch: asEpoch(asInteger(list[1], where, "descriptor.epoch")),
    incarnation: isHole ? "" : asId(list[2], where, "descriptor.incarnation"),
    seq: asSeq(asInteger(list[3], where, "descriptor.seq")),
    base: asVersion(asInteger(list[4], where, "descriptor.base")),
    attempt: asInteger(list[5], where, "descriptor.attempt"),
    extents: extents.map((e) => decodeExtent(e, where)),
  };
  // Nearly every descriptor ends here, and a manifest holds dozens: spreading nothing into each costs more than the rest.
  if (list.length <= 7) return descriptor;
  const stride = isStride(list[8]) ? list[8] : undefined;
  const rest = list.slice(stride === undefined ? 8 : 9);
  return {
    ...descriptor,
    ...(origin === -1 ? {} : { origin: asInteger(origin, where, "descriptor.origin") }),
    ...(stride === undefined ? {} : { stride }),
    ...(rest.length > 0 ? { rest: asUnknown(rest, where) } : {}),
  };
}

/** A stride holds a slice and its seal; what is none is an element of a kind to come. */
export function isStride(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) > sealBytes;
}

function decodeExtent(value: unknown, where: string): Extent {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    // Reserved by FORMAT.md for extents in objects of another writer.
    throw new BatchWeaveError(
      "UNSUPPORTED_FORMAT",
      `${where} references a batch by a kind of extent this BatchWeave does not know. Install a newer version.`,
      { key: where },
    );
  }
  const list = asTuple(value, 4, where, "extent");
  return {
    cells: asInteger(list[0], where, "extent.cells"),
    size: asInteger(list[1], where, "extent.size"),
    table: asInteger(list[2], where, "extent.table"),
    check: asInteger(list[3], where, "extent.check"),
  };
}

/** Keys of all objects of a batch. */
export function descriptorKeys(d: Descriptor): string[] {
  return d.extents.map((_, extent) => batchKey(d, extent));
}
