/** A prepared sample as bytes, in a block of a source log (FORMAT.md, 13). Equal samples give equal bytes. Pure. */
import { BatchWeaveError, decodeSafetensors, encodeSafetensors, type Tensor, tensorValues } from "../../index.js";
import type { PreparedImage, PreparedSample } from "../load/prepared-sample.js";

/** Numbers that say where an image lies: first placeholder, placeholders, height, width, values of a patch. */
const placeNumbers = 5;

const imageName = (i: number): string => `image/${i}`;

/** The bytes of a sample. Its features are in the table. */
export function encodeSample({ tokens, lossMask, images = [], nextToken }: PreparedSample): Uint8Array {
  const tensors: Record<string, Tensor> = {
    tokens: { dtype: "I32", shape: [tokens.length], data: Int32Array.from(tokens) },
  };
  if (lossMask) tensors["loss_mask"] = { dtype: "U8", shape: [lossMask.length], data: Uint8Array.from(lossMask) };
  if (images.length > 0) {
    const places = images.flatMap(({ at, tokens: count, height, width, patchValues }) => [
      at,
      count,
      height,
      width,
      patchValues ?? 0,
    ]);
    tensors["image_place"] = { dtype: "I32", shape: [images.length, placeNumbers], data: Int32Array.from(places) };
    images.forEach(({ data }, i) => {
      tensors[imageName(i)] = { dtype: data instanceof Float32Array ? "F32" : "U8", shape: [data.length], data };
    });
  }
  return encodeSafetensors(tensors, nextToken === undefined ? {} : { next_token: String(nextToken) });
}

/** The sample that the bytes hold. */
export function decodeSample(bytes: Uint8Array, where: string, features?: PreparedSample["features"]): PreparedSample {
  const { tensors, metadata } = decodeSafetensors(bytes, where);
  const list = <T>(name: string, dtype: Tensor["dtype"]): T => {
    const tensor = tensors.get(name);
    if (tensor?.dtype !== dtype)
      throw new BatchWeaveError(
        "CORRUPT",
        `${where} has no ${name} of ${dtype}. The pipeline that writes this source log must write what FORMAT.md (13) says.`,
        { name },
      );
    return tensorValues(tensor) as unknown as T;
  };
  const nextToken = metadata["next_token"];
  const places = tensors.has("image_place") ? list<Int32Array>("image_place", "I32") : new Int32Array(0);
  const images = Array.from({ length: places.length / placeNumbers }, (_, i): PreparedImage => {
    const [at, count, height, width, values] = places.subarray(placeNumbers * i) as unknown as readonly [
      number,
      number,
      number,
      number,
      number,
    ];
    const dtype = tensors.get(imageName(i))?.dtype === "F32" ? "F32" : "U8";
    const data = list<Uint8Array | Float32Array>(imageName(i), dtype);
    return { at, tokens: count, height, width, data, ...(values > 0 ? { patchValues: values } : {}) };
  });
  return {
    tokens: list<Int32Array>("tokens", "I32"),
    ...(tensors.has("loss_mask") ? { lossMask: list<Uint8Array>("loss_mask", "U8") } : {}),
    ...(images.length > 0 ? { images } : {}),
    ...(nextToken === undefined ? {} : { nextToken: Number(nextToken) }),
    ...(features ? { features } : {}),
  };
}
