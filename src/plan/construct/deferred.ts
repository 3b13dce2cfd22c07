/** The consumer's side of transforms that were left to it: images of a slice, finished. */
import { BatchWeaveError, decodeSafetensors, type Tensor, type TensorFile, tensorValues } from "../../index.js";
import type { PreparedImage } from "../load/prepared-sample.js";
import { runChain } from "../load/transform-chain.js";
import type { Pipeline } from "../run/pipeline.js";

/**
 * Decodes a slice and runs what its pipeline placed in the consumer: `image_bytes` becomes `pixel_values`. The code comes from the pipeline that
 * the caller has, never from the log. A slice with nothing left to do is only decoded.
 */
export async function finishSlice(bytes: Uint8Array, pipeline: Pipeline, where = "a slice"): Promise<TensorFile> {
  const file = decodeSafetensors(bytes, where);
  const data = file.tensors.get("image_bytes");
  const sources = JSON.parse(file.metadata["image_sources"] ?? "[]") as string[];
  if (!data || sources.length === 0) return file;
  const [ends, grid] = ["image_byte_ends", "image_grid"].map(
    (name) => tensorValues(file.tensors.get(name) as Tensor) as Int32Array,
  );
  const all = tensorValues(data) as Uint8Array;
  const images: PreparedImage[] = [];
  for (const [i, source] of sources.entries()) {
    const [height, width] = [grid?.[2 * i] as number, grid?.[2 * i + 1] as number];
    const image = { at: 0, tokens: height * width, height, width, data: all.slice(ends?.[i], ends?.[i + 1]) };
    const chain = (pipeline.spec.sources[source]?.settings.transforms ?? []).filter(({ at }) => at === "consumer");
    const { value, error, setup } = await runChain(chain, {
      source,
      id: `${where} image ${i}`,
      value: { tokens: [], images: [image] },
    });
    const finished = (value as { images?: readonly PreparedImage[] } | undefined)?.images?.[0];
    if (error !== undefined || finished?.patchValues === undefined) {
      throw new BatchWeaveError(
        setup ?? "CORRUPT",
        `Source ${source}: image ${i} of ${where} cannot be finished: ${error ?? "its transforms gave no patches"}.`,
        { source, image: i },
      );
    }
    images.push(finished);
  }
  return { tensors: withPixels(file.tensors, images), metadata: withPixelRules(file.metadata) };
}

/** Pixels are joined as the files were that they came from. */
function withPixelRules(metadata: TensorFile["metadata"]): TensorFile["metadata"] {
  const text = metadata["batchweave.join"];
  if (text === undefined) return metadata;
  const { image_bytes: bytes, image_byte_ends: ends, ...rules } = JSON.parse(text) as Record<string, unknown>;
  return {
    ...metadata,
    "batchweave.join": JSON.stringify({ ...rules, pixel_values: bytes, image_cu_seqlens: ends }),
  };
}

function withPixels(
  tensors: ReadonlyMap<string, Tensor>,
  images: readonly PreparedImage[],
): ReadonlyMap<string, Tensor> {
  const values = images[0]?.patchValues as number;
  const patches = images.reduce((sum, { tokens }) => sum + tokens, 0);
  const isFloat = images[0]?.data instanceof Float32Array;
  const pixels = isFloat ? new Float32Array(patches * values) : new Uint8Array(patches * values);
  const bounds = new Int32Array(images.length + 1);
  images.forEach(({ data, tokens }, i) => {
    pixels.set(data, (bounds[i] as number) * values);
    bounds[i + 1] = (bounds[i] as number) + tokens;
  });
  const finished = new Map(tensors);
  finished.delete("image_bytes");
  finished.delete("image_byte_ends");
  finished.set("pixel_values", { dtype: isFloat ? "F32" : "U8", shape: [patches, values], data: pixels });
  finished.set("image_cu_seqlens", { dtype: "I32", shape: [bounds.length], data: bounds });
  return finished;
}
