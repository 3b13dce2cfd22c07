/**
 * Tensors in a slice: the safetensors layout, the default codec. `u64 header length | JSON header, padded with spaces to 8 bytes | data`.
 * Every other reader of safetensors reads these bytes, and Python maps them without a copy.
 */
import { BatchWeaveError, shown } from "../errors.js";
import { encodeJoins, type Joins, joinsName } from "./join-rule.js";
import { parseJson } from "./json-text.js";

/** Bits of one element of each dtype of the layout. */
const dtypeBits = {
  BOOL: 8,
  U8: 8,
  I8: 8,
  F8_E4M3: 8,
  F8_E5M2: 8,
  F8_E8M0: 8,
  U16: 16,
  I16: 16,
  F16: 16,
  BF16: 16,
  U32: 32,
  I32: 32,
  F32: 32,
  U64: 64,
  I64: 64,
  F64: 64,
  C64: 64,
} as const;

/** Element type of a tensor, as the layout names it. */
export type Dtype = keyof typeof dtypeBits;

/** One tensor: row-major, little-endian. */
export interface Tensor {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  /** Encoding takes any view; decoding gives a view of the slice, without a copy. */
  readonly data: ArrayBufferView;
}

/** Tensors by name, and strings that travel with them. */
export interface TensorFile {
  readonly tensors: ReadonlyMap<string, Tensor>;
  readonly metadata: Readonly<Record<string, string>>;
}

const lengthBytes = 8;
/** The layout's own limit. */
const headerBytesMax = 100_000_000;
const metadataName = "__metadata__";

/** Bytes of one element. */
export function dtypeBytes(dtype: Dtype): number {
  return dtypeBits[dtype] / 8;
}

function elements(shape: readonly number[]): number {
  return shape.reduce((product, n) => product * n, 1);
}

/**
 * Encodes tensors. The widest come first, so that each is aligned for its dtype. `joins` says how readers put the parts of each field
 * together when they take several chunks or rows.
 */
export function encodeSafetensors(
  tensors: ReadonlyMap<string, Tensor> | Readonly<Record<string, Tensor>>,
  metadata: Readonly<Record<string, string>> = {},
  joins: Joins = {},
): Uint8Array {
  const named: [string, Tensor][] =
    tensors instanceof Map ? [...tensors] : Object.entries(tensors as Readonly<Record<string, Tensor>>);
  for (const [name, tensor] of named) assertTensor(name, tensor);
  named.sort(([a, x], [b, y]) => dtypeBits[y.dtype] - dtypeBits[x.dtype] || (a < b ? -1 : 1));
  let end = 0;
  const entries = named.map(([name, { dtype, shape, data }]) => {
    const begin = end;
    end += data.byteLength;
    return [name, { dtype, shape, data_offsets: [begin, end] }];
  });
  const texts =
    Object.keys(joins).length > 0 ? { ...metadata, [joinsName]: encodeJoins(joins, new Map(named)) } : metadata;
  const fields = Object.keys(texts).length > 0 ? [[metadataName, texts], ...entries] : entries;
  const json = Buffer.from(JSON.stringify(Object.fromEntries(fields)));
  const headerBytes = Math.ceil(json.length / 8) * 8;
  if (headerBytes > headerBytesMax)
    refuse(`the header takes ${headerBytes} bytes, at most ${headerBytesMax} are possible`);
  const out = Buffer.alloc(lengthBytes + headerBytes + end, " ");
  out.writeBigUInt64LE(BigInt(headerBytes), 0);
  out.set(json, lengthBytes);
  let offset = lengthBytes + headerBytes;
  for (const [, { data }] of named) {
    out.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), offset);
    offset += data.byteLength;
  }
  return out;
}

function refuse(what: string): never {
  throw new BatchWeaveError("INVALID_ARGUMENT", `These tensors cannot be stored: ${what}.`);
}

function assertTensor(name: string, { dtype, shape, data }: Tensor): void {
  if (name === metadataName) refuse(`${metadataName} is not a name for a tensor`);
  if (!Object.hasOwn(dtypeBits, dtype)) refuse(`${name} has the dtype ${shown(dtype)}, which is not known`);
  if (!shape.every((n) => Number.isSafeInteger(n) && n >= 0)) refuse(`the shape of ${name} is not whole numbers`);
  const expected = elements(shape) * dtypeBytes(dtype);
  if (data.byteLength !== expected)
    refuse(`${name} has ${data.byteLength} bytes, its shape [${shape.join(", ")}] and ${dtype} make ${expected}`);
}

/** Decodes a slice that holds tensors. Checks everything before it gives anything: no overlap, no hole, no byte outside. */
export function decodeSafetensors(bytes: Uint8Array, where: string): TensorFile {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (bytes.length < lengthBytes) return notTensors(where, `it has only ${bytes.length} bytes`);
  const headerBytes = Number(view.getBigUint64(0, true));
  if (headerBytes > headerBytesMax || lengthBytes + headerBytes > bytes.length)
    return notTensors(where, `it claims a header of ${headerBytes} bytes`);
  const header = parseHeader(bytes.subarray(lengthBytes, lengthBytes + headerBytes), where);
  const data = bytes.subarray(lengthBytes + headerBytes);
  const metadata = decodeStrings(header[metadataName] ?? {}, where);
  const ranges: { name: string; begin: number; end: number }[] = [];
  const tensors = new Map<string, Tensor>();
  for (const [name, value] of Object.entries(header)) {
    if (name === metadataName) continue;
    const { dtype, shape, begin, end } = decodeEntry(name, value, where);
    ranges.push({ name, begin, end });
    tensors.set(name, { dtype, shape, data: data.subarray(begin, end) });
  }
  assertGapless(ranges, data.length, where);
  return { tensors, metadata };
}

function notTensors(where: string, what: string): never {
  throw new BatchWeaveError(
    "CORRUPT",
    `${where} does not hold tensors in the safetensors layout: ${what}. Read it as plain bytes, or check the contentType its producer gave.`,
    { key: where, what },
  );
}

function parseHeader(bytes: Uint8Array, where: string): Record<string, unknown> {
  if (bytes[0] !== 0x7b) return notTensors(where, "its header does not begin with a brace");
  try {
    return parseJson(bytes) as Record<string, unknown>;
  } catch {
    return notTensors(where, "its header is not JSON");
  }
}

function decodeStrings(value: unknown, where: string): Record<string, string> {
  const valid =
    typeof value === "object" &&
    value !== null &&
    !Array.isArray(value) &&
    Object.values(value).every((text) => typeof text === "string");
  return valid ? (value as Record<string, string>) : notTensors(where, `${metadataName} is not strings by name`);
}

function decodeEntry(
  name: string,
  value: unknown,
  where: string,
): { dtype: Dtype; shape: number[]; begin: number; end: number } {
  const what = `tensor ${JSON.stringify(name)}`;
  const whole = (list: unknown): list is number[] =>
    Array.isArray(list) && list.every((n) => Number.isSafeInteger(n) && (n as number) >= 0);
  const entry = (typeof value === "object" ? (value ?? {}) : {}) as Record<string, unknown>;
  const { dtype, shape, data_offsets: offsets } = entry;
  if (typeof dtype !== "string" || !Object.hasOwn(dtypeBits, dtype))
    return notTensors(where, `${what} has the dtype ${shown(dtype)}, which is not known`);
  if (!whole(shape)) return notTensors(where, `the shape of ${what} is not whole numbers`);
  if (!whole(offsets) || offsets.length !== 2)
    return notTensors(where, `the offsets of ${what} are not two whole numbers`);
  const [begin, end] = offsets as [number, number];
  const expected = elements(shape) * dtypeBytes(dtype as Dtype);
  if (end - begin !== expected)
    return notTensors(where, `${what} has ${end - begin} bytes, its shape and dtype make ${expected}`);
  return { dtype: dtype as Dtype, shape, begin, end };
}

function assertGapless(ranges: { name: string; begin: number; end: number }[], length: number, where: string): void {
  ranges.sort((a, b) => a.begin - b.begin || a.end - b.end);
  let offset = 0;
  for (const { name, begin, end } of ranges) {
    if (begin !== offset)
      notTensors(
        where,
        `tensor ${JSON.stringify(name)} ${begin < offset ? "overlaps another" : "leaves a hole before it"}`,
      );
    offset = end;
  }
  if (offset !== length) notTensors(where, `its tensors take ${offset} bytes of ${length}`);
}

/** Typed array for dtypes that have one in JavaScript; the others (half precision, 8-bit floats, complex) are given as bytes. */
export type TensorValues =
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | Float32Array
  | Float64Array
  | BigUint64Array
  | BigInt64Array;

const arrays = {
  I8: Int8Array,
  U16: Uint16Array,
  I16: Int16Array,
  U32: Uint32Array,
  I32: Int32Array,
  F32: Float32Array,
  F64: Float64Array,
  U64: BigUint64Array,
  I64: BigInt64Array,
} as const;

/** The elements of a tensor: a view where its bytes are aligned for the dtype, otherwise a copy. */
export function tensorValues({ dtype, data }: Tensor): TensorValues {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (!(dtype in arrays)) return bytes;
  const View = arrays[dtype as keyof typeof arrays];
  const aligned = bytes.byteOffset % View.BYTES_PER_ELEMENT === 0 ? bytes : Uint8Array.prototype.slice.call(bytes);
  return new View(aligned.buffer as ArrayBuffer, aligned.byteOffset, aligned.byteLength / View.BYTES_PER_ELEMENT);
}
