/** What a slice holds, for a person. Pure. */
import { isBatchWeaveError } from "../errors.js";
import { decodeSafetensors, sampleBlockType, type Tensor, tensorValues } from "../format/index.js";

/** What a slice holds, for a person. */
export type SlicePreview =
  | {
      readonly kind: "tensors";
      readonly tensors: readonly TensorPreview[];
      readonly metadata: Readonly<Record<string, string>>;
    }
  | { readonly kind: "text"; readonly text: string; readonly truncated: boolean }
  | { readonly kind: "bytes"; readonly hex: string; readonly truncated: boolean };

/** One tensor of a slice: its shape, its first values, and its range. */
export interface TensorPreview {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: number;
  readonly first: readonly string[];
  readonly min: string | undefined;
  readonly max: string | undefined;
}

/** The content type that says a slice holds tensors. */
export const safetensorsType = "application/vnd.safetensors";

const previewBytesMax = 256;
const previewValuesMax = 8;
/** Elements looked at for the range of a tensor: a preview must be quick. */
const rangeElementsMax = 1_000_000;

/** What a slice holds: tensors when its content type says so, else text when it is text, else hex. */
export function previewSlice(bytes: Uint8Array, contentType: string, where: string): SlicePreview {
  if (contentType === safetensorsType) return previewTensors(bytes, where);
  if (contentType === sampleBlockType) {
    try {
      return previewTensors(bytes, where);
    } catch (error) {
      // The table of a block holds tensors; its other slice is samples, one after another.
      if (!isBatchWeaveError(error, "CORRUPT")) throw error;
    }
  }
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.length, previewBytesMax));
  const truncated = bytes.length > head.length;
  const text = head.toString("utf8");
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what tells binary from text.
  if (bytes.length > 0 && !/[\u0000-\u0008\u000e-\u001f\ufffd]/.test(text)) return { kind: "text", text, truncated };
  return { kind: "bytes", hex: head.toString("hex"), truncated };
}

function previewTensors(bytes: Uint8Array, where: string): SlicePreview {
  const { tensors, metadata } = decodeSafetensors(bytes, where);
  return { kind: "tensors", tensors: [...tensors].map(([name, tensor]) => previewTensor(name, tensor)), metadata };
}

function previewTensor(name: string, tensor: Tensor): TensorPreview {
  const values = tensorValues(tensor);
  let [min, max] = [values[0], values[0]];
  for (let i = 1; i < Math.min(values.length, rangeElementsMax); i++) {
    const value = values[i] as number | bigint;
    if (value < (min as number | bigint)) min = value;
    if (value > (max as number | bigint)) max = value;
  }
  return {
    name,
    dtype: tensor.dtype,
    shape: tensor.shape,
    bytes: tensor.data.byteLength,
    first: Array.from(values.subarray(0, previewValuesMax), String),
    min: min === undefined ? undefined : String(min),
    max: max === undefined ? undefined : String(max),
  };
}
