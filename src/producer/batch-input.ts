/** What a user hands to `append`, checked before anything is accepted. */
import { BatchWeaveError } from "../errors.js";
import type { Grid } from "../format/index.js";

/** Slices of one batch: all of them in row-major order, or one array per row, or a stream of them in row-major order. */
export type BatchSlices = readonly Uint8Array[] | readonly (readonly Uint8Array[])[] | AsyncIterable<Uint8Array>;

/** JSON bytes of a resume point at most. */
const resumePointBytesMax = 1_048_576;

/** A flat list of exactly `rows * chunks` slices. */
export function flattenSlices(slices: Exclude<BatchSlices, AsyncIterable<Uint8Array>>, grid: Grid): Uint8Array[] {
  const flat = (slices as readonly (Uint8Array | readonly Uint8Array[])[]).flatMap((item) =>
    Array.isArray(item) ? item : [item as Uint8Array],
  );
  for (const [i, slice] of flat.entries()) assertSlice(slice, i);
  assertSliceCount(flat.length, grid);
  return flat;
}

/** Refuses what is not a list or a stream. */
export function assertBatch(slices: unknown): void {
  if (Array.isArray(slices) || (typeof slices === "object" && slices !== null && Symbol.asyncIterator in slices))
    return;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    "A batch is an array of Uint8Array in row-major order, one array per row, or an async iterable of them.",
  );
}

/** Refuses what is not bytes, and bytes that were handed to a worker: they would be stored as an empty slice without a word. */
export function assertSlice(slice: unknown, i: number): void {
  if (slice instanceof Uint8Array) {
    if (slice.length > 0 || !isDetached(slice.buffer)) return;
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `The buffer of slice ${i} was transferred away (postMessage, structuredClone), so its bytes are gone. Append first, or transfer a copy.`,
      { slice: i },
    );
  }
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `Slice ${i} is not a Uint8Array. Encode tensors first, for example with encodeSafetensors().`,
    { slice: i },
  );
}

/** `ArrayBuffer.detached` is younger than the oldest Node we run on. */
function isDetached(buffer: ArrayBufferLike): boolean {
  try {
    new Uint8Array(buffer);
    return false;
  } catch {
    return true;
  }
}

/** Refuses a batch with too few or too many slices. */
export function assertSliceCount(count: number, grid: Grid): void {
  const expected = grid.rows * grid.chunks;
  if (count === expected) return;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `A batch of this namespace has ${expected} slices (${grid.rows} rows x ${grid.chunks} chunks), not ${count}. Pass them in row-major order.`,
    { expected, found: count },
  );
}

/** A resume point as it will be read back: JSON, and nothing that JSON would drop or change. */
export function checkResumePoint(value: unknown): unknown {
  if (value === undefined) return undefined;
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (cause) {
    throw notJson(cause);
  }
  if (text === undefined || !isPlainJson(value)) throw notJson();
  const bytes = Buffer.byteLength(text);
  if (bytes > resumePointBytesMax) {
    throw new BatchWeaveError(
      "LIMIT",
      `The resume point has ${bytes} bytes; at most ${resumePointBytesMax} are allowed. Keep positions in it, not data.`,
      { bytes, bytesMax: resumePointBytesMax },
    );
  }
  return JSON.parse(text);
}

function isPlainJson(value: unknown): boolean {
  if (value === null || typeof value === "string" || typeof value === "boolean") return true;
  if (typeof value === "number") return Number.isFinite(value);
  if (Array.isArray(value)) return value.every(isPlainJson);
  if (typeof value !== "object") return false;
  const prototype = Object.getPrototypeOf(value);
  return (
    (prototype === Object.prototype || prototype === null) &&
    Object.values(value).every((v) => v === undefined || isPlainJson(v))
  );
}

function notJson(cause?: unknown): BatchWeaveError {
  return new BatchWeaveError(
    "INVALID_ARGUMENT",
    "The resume point is not JSON: use plain objects, arrays, strings, finite numbers, booleans and null, so that it reads back as it was.",
    {},
    cause,
  );
}
