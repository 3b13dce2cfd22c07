/** What a slice holds, for a page: tensors, documents as text, images as pictures. Pure. */
import {
  decodeSafetensors,
  decodeSampleTable,
  previewSlice,
  safetensorsType,
  sampleBlockType,
  type Tensor,
  tensorValues,
} from "../index.js";
import type { Tokenizer } from "../plan/index.js";
import type { ImageView, SliceView, TextView } from "./views.js";

const textsMax = 24;
const tokensShownMax = 256;
const imagesMax = 12;
const imageBytesMax = 1 << 20;
const samplesMax = 200;

/** What is shown of a slice. `payloadBytes`: of a source log's table, how long the samples are that it tells of. */
export function sliceView(
  bytes: Uint8Array,
  contentType: string,
  where: string,
  payloadBytes: number | undefined,
  tokenizer: Pick<Tokenizer, "decode"> | undefined,
): SliceView {
  if (contentType === sampleBlockType && payloadBytes !== undefined) {
    const { source, samples } = decodeSampleTable(bytes, payloadBytes, where);
    return { kind: "samples", bytes: bytes.length, source, ids: samples.slice(0, samplesMax).map(({ id }) => id) };
  }
  const preview = previewSlice(bytes, contentType, where);
  if (preview.kind !== "tensors" || contentType !== safetensorsType)
    return { ...preview, bytes: bytes.length } as SliceView;
  const { tensors } = decodeSafetensors(bytes, where);
  const images = imagesOf(tensors);
  return {
    kind: "tensors",
    bytes: bytes.length,
    metadata: preview.metadata,
    tensors: preview.tensors,
    texts: textsOf(tensors, tokenizer),
    images: images.slice(0, imagesMax),
    imagesMore: Math.max(0, images.length - imagesMax),
  };
}

/** The documents of a slice of tokens, packed or not, as the page and `preview` show them. */
export function sliceTexts(bytes: Uint8Array, where: string, tokenizer: Pick<Tokenizer, "decode">): TextView[] {
  return textsOf(decodeSafetensors(bytes, where).tensors, tokenizer);
}

/** The documents of packed sequences: runs of one segment id, without the padding. */
function textsOf(tensors: ReadonlyMap<string, Tensor>, tokenizer: Pick<Tokenizer, "decode"> | undefined): TextView[] {
  const tokens = tensors.get("tokens") ?? tensors.get("input_ids");
  if (!tokens || tokens.shape.length < 1) return [];
  const ids = tensorValues(tokens);
  const width = tokens.shape.at(-1) as number;
  const segments = tensors.get("segment_ids");
  const marks = segments && tensorValues(segments);
  const texts: TextView[] = [];
  for (let start = 0; start < ids.length && texts.length < textsMax; ) {
    const lineEnd = start - (start % width) + width;
    let end = marks ? start + 1 : lineEnd;
    while (marks && end < lineEnd && marks[end] === marks[start]) end++;
    // Segment 0 is padding.
    if (!marks || Number(marks[start]) > 0) texts.push(textOf(ids, start, end, Math.floor(start / width), tokenizer));
    start = end;
  }
  return texts;
}

function textOf(
  ids: ArrayLike<number | bigint>,
  start: number,
  end: number,
  sequence: number,
  tokenizer: Pick<Tokenizer, "decode"> | undefined,
): TextView {
  const shown = Array.from({ length: Math.min(end - start, tokensShownMax) }, (_, i) => Number(ids[start + i]));
  let text: string | undefined;
  try {
    text = tokenizer?.decode(shown);
  } catch {
    // A tokenizer that is not this log's knows not every token. The numbers are shown.
  }
  return { sequence, tokens: end - start, ids: shown.slice(0, 32), text, truncated: end - start > shown.length };
}

/** Images of a slice: encoded files, or patches put together again. */
function imagesOf(tensors: ReadonlyMap<string, Tensor>): ImageView[] {
  const grid = tensors.get("image_grid");
  const files = tensors.get("image_bytes");
  const patches = tensors.get("pixel_values");
  const ends = tensors.get(files ? "image_byte_ends" : "image_cu_seqlens");
  if (!grid || !ends || !(files ?? patches)) return [];
  const sizes = Array.from(tensorValues(grid), Number);
  const bounds = Array.from(tensorValues(ends), Number);
  return bounds.slice(0, -1).flatMap((from, index): ImageView[] => {
    const to = bounds[index + 1] as number;
    const [height, width] = [sizes[2 * index] as number, sizes[2 * index + 1] as number];
    if (files) {
      const bytes = (files.data as Uint8Array).subarray(from, to);
      const type = imageType(bytes);
      if (!type || bytes.length > imageBytesMax) return [];
      return [{ index, type, width, height, data: Buffer.from(bytes).toString("base64") }];
    }
    const raw = patches && rgbOf(patches, from, width, height);
    return raw ? [{ index, type: "rgb", ...raw }] : [];
  });
}

/** The kinds of files that a browser shows and that cannot carry a script. */
function imageType(bytes: Uint8Array): string | undefined {
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(12, bytes.length)).toString("latin1");
  if (head.startsWith("\x89PNG")) return "image/png";
  if (head.startsWith("\xff\xd8\xff")) return "image/jpeg";
  if (head.startsWith("GIF8")) return "image/gif";
  return head.startsWith("RIFF") && head.slice(8, 12) === "WEBP" ? "image/webp" : undefined;
}

/** Patches of square pixels by row, RGB, as `patchifyImages` cuts them; anything else is not shown as a picture. */
function rgbOf(
  { dtype, shape, data }: Tensor,
  first: number,
  across: number,
  down: number,
): Pick<ImageView, "width" | "height" | "data"> | undefined {
  const values = shape[1] ?? 0;
  const side = Math.sqrt(values / 3);
  if (dtype !== "U8" || !Number.isInteger(side) || side === 0 || across * down * values > imageBytesMax)
    return undefined;
  const bytes = data as Uint8Array;
  const [width, height] = [across * side, down * side];
  const out = Buffer.alloc(3 * width * height);
  for (let patch = 0; patch < across * down; patch++) {
    const [x, y] = [(patch % across) * side, Math.floor(patch / across) * side];
    for (let row = 0; row < side; row++) {
      const from = (first + patch) * values + row * side * 3;
      out.set(bytes.subarray(from, from + 3 * side), 3 * ((y + row) * width + x));
    }
  }
  return { width, height, data: out.toString("base64") };
}
