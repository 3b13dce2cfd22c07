/**
 * Ready-made transforms for images, through sharp: measure, decode, resize, crop, patchify. An image is a field of the sample: first the
 * encoded file, then raw RGB, then patches. Measuring reads the header only, so planning knows lengths before anything is decoded, and
 * the rest can be placed later.
 */
import { importPeer } from "../peer.js";
import { checkToken } from "../run/spec-check.js";
import type { PreparedImage, PreparedSample } from "./prepared-sample.js";
import { fieldOf } from "./sample-field.js";
import { type Placement, type Transform, transform } from "./transform.js";

/** Raw RGB, rows from the top. */
export interface RawImage {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array;
}

/** Settings of every image transform. */
export interface ImageSettings {
  /** Field of the sample that holds the image. Default "image". */
  readonly field?: string | undefined;
  readonly at?: Placement | undefined;
}

/** How an image is cut into patches: square ones of `patch` pixels, the whole scaled so that at most `patchesMax` come out. */
export interface PatchSettings extends ImageSettings {
  /** Default 16. */
  readonly patch?: number | undefined;
  /** Default 1024. */
  readonly patchesMax?: number | undefined;
}

type Fields = Readonly<Record<string, unknown>>;
type Sharp = typeof import("sharp")["default"];

async function sharp(): Promise<Sharp> {
  const module = await importPeer<{ default: Sharp }>("sharp", "Image transforms");
  // Parallel work is the pool's business; a thread of its own per image would oversubscribe the machine.
  module.default.concurrency(1);
  module.default.cache(false);
  return module.default;
}

function encoded(value: Fields, field: string): Uint8Array {
  const bytes = fieldOf(value, field);
  if (bytes instanceof Uint8Array) return bytes;
  throw new TypeError(`the field ${field} is not an encoded image`);
}

function raw(value: Fields, field: string): RawImage {
  const image = fieldOf(value, field) as Partial<RawImage> | null;
  if (image?.data instanceof Uint8Array && image.width && image.height) return image as RawImage;
  throw new TypeError(`the field ${field} is not a decoded image; put decodeImage() before`);
}

/** Patches across and down after scaling to at most `patchesMax`. */
export function patchGrid(
  width: number,
  height: number,
  patch: number,
  patchesMax: number,
): { readonly across: number; readonly down: number } {
  const scale = Math.min(1, Math.sqrt((patchesMax * patch * patch) / (width * height)));
  let [across, down] = [
    Math.max(1, Math.floor((width * scale) / patch)),
    Math.max(1, Math.floor((height * scale) / patch)),
  ];
  // A very long strip has one patch on its short side: the limit then binds on the long one.
  if (across * down > patchesMax) [across, down] = [Math.min(across, patchesMax), Math.min(down, patchesMax)];
  return { across, down };
}

/** Puts an image before the text: its placeholders, which no loss counts, and the image itself. What was there moves on. */
function putBefore(value: Fields, field: string, token: number, image: Omit<PreparedImage, "at">): Fields {
  const { tokens = [], lossMask, images = [] } = value as Partial<PreparedSample>;
  const { [field]: _, ...rest } = value;
  const count = image.tokens;
  return {
    ...rest,
    tokens: lengthened(tokens, count, token),
    ...(lossMask ? { lossMask: lengthened(lossMask, count, 0) } : {}),
    images: [{ at: 0, ...image }, ...images.map((other) => ({ ...other, at: other.at + count }))],
  };
}

/** A list stays a list: what is wrong in it must still be seen when the sample is checked. */
function lengthened(list: ArrayLike<number>, count: number, fill: number): Int32Array | readonly number[] {
  if (!(list instanceof Int32Array)) return [...new Array<number>(count).fill(fill), ...Array.from(list)];
  const longer = new Int32Array(count + list.length).fill(fill, 0, count);
  longer.set(list, count);
  return longer;
}

/** Behind {@link placeImage}. */
export async function placeImageTokens(
  value: Fields,
  settings: PatchSettings & { readonly token: number },
): Promise<Fields> {
  const { field = "image", patch = 16, patchesMax = 1024, token } = settings;
  const data = encoded(value, field);
  const { width, height } = await (await sharp())(data).metadata();
  if (!width || !height) throw new TypeError("the image has no size");
  const { across, down } = patchGrid(width, height, patch, patchesMax);
  return putBefore(value, field, token, { tokens: across * down, height: down, width: across, data });
}

/** Behind {@link patchifyImages}: each encoded file becomes rows of patches, decoded and scaled in one go. */
export async function patchifyEach(
  value: { readonly images?: readonly PreparedImage[] },
  settings: PatchSettings,
): Promise<unknown> {
  const { patch = 16 } = settings;
  const open = await sharp();
  const images: PreparedImage[] = [];
  for (const image of value.images ?? []) {
    const [width, height] = [image.width * patch, image.height * patch];
    const { data } = await open(image.data)
      .removeAlpha()
      .toColourspace("srgb")
      .resize(width, height, { fit: "fill" })
      .raw()
      .toBuffer({ resolveWithObject: true });
    images.push({ ...image, data: patchesOf({ width, height, data }, patch), patchValues: patch * patch * 3 });
  }
  return { ...value, images };
}

/** Rows of one patch each, left to right, top to bottom; within a patch, pixels by row, RGB. */
export function patchesOf({ width, height, data }: RawImage, patch: number): Uint8Array {
  const [across, down] = [Math.floor(width / patch), Math.floor(height / patch)];
  const out = new Uint8Array(across * down * patch * patch * 3);
  let to = 0;
  for (let y = 0; y < down; y++) {
    for (let x = 0; x < across; x++) {
      for (let row = 0; row < patch; row++, to += 3 * patch) {
        const from = 3 * ((y * patch + row) * width + x * patch);
        out.set(data.subarray(from, from + 3 * patch), to);
      }
    }
  }
  return out;
}

/** Behind {@link decodeImage}. */
export async function decodeField(value: Fields, { field = "image" }: ImageSettings): Promise<Fields> {
  const { data, info } = await (await sharp())(encoded(value, field))
    .removeAlpha()
    .toColourspace("srgb")
    .raw()
    .toBuffer({ resolveWithObject: true });
  return {
    ...value,
    [field]: { width: info.width, height: info.height, data: Uint8Array.from(data) } satisfies RawImage,
  };
}

/** Behind {@link resizeImage}. */
export async function resizeField(
  value: Fields,
  settings: ImageSettings & { width: number; height: number; fit?: "fill" | "inside" | "cover" },
): Promise<Fields> {
  const { field = "image", width, height, fit = "fill" } = settings;
  const image = raw(value, field);
  const { data, info } = await (await sharp())(image.data, {
    raw: { width: image.width, height: image.height, channels: 3 },
  })
    .resize(width, height, { fit })
    .raw()
    .toBuffer({ resolveWithObject: true });
  return {
    ...value,
    [field]: { width: info.width, height: info.height, data: Uint8Array.from(data) } satisfies RawImage,
  };
}

/** Behind {@link cropImage}: from the middle, no larger than the image. */
export async function cropField(
  value: Fields,
  settings: ImageSettings & { width: number; height: number },
): Promise<Fields> {
  const { field = "image" } = settings;
  const image = raw(value, field);
  const [width, height] = [Math.min(settings.width, image.width), Math.min(settings.height, image.height)];
  const [left, top] = [Math.floor((image.width - width) / 2), Math.floor((image.height - height) / 2)];
  const data = new Uint8Array(3 * width * height);
  for (let y = 0; y < height; y++) {
    const from = 3 * ((top + y) * image.width + left);
    data.set(image.data.subarray(from, from + 3 * width), 3 * y * width);
  }
  return { ...value, [field]: { width, height, data } satisfies RawImage };
}

/** Behind {@link patchifyImage}: a decoded image becomes the sample's `images`, its placeholders go before the tokens. */
export function patchifyField(value: Fields, settings: PatchSettings & { readonly token: number }): Fields {
  const { field = "image", patch = 16, token } = settings;
  const image = raw(value, field);
  const [width, height] = [Math.floor(image.width / patch), Math.floor(image.height / patch)];
  if (width < 1 || height < 1)
    throw new RangeError(`an image of ${image.width} x ${image.height} has no patch of ${patch}`);
  const data = patchesOf(image, patch);
  return putBefore(value, field, token, {
    tokens: width * height,
    height,
    width,
    data,
    patchValues: 3 * patch * patch,
  });
}

const here = new URL("./image.js", import.meta.url);
const named = (name: string, { at, ...options }: ImageSettings & Readonly<Record<string, unknown>>): Transform =>
  transform(here, name, options, { at });

/** Measures an encoded image by its header and puts that many placeholder tokens before the text. Decoding is left to {@link patchifyImages}. */
export function placeImage(settings: PatchSettings & { readonly token: number }): Transform {
  checkToken("token", settings.token);
  return named("placeImageTokens", { ...settings });
}

/** Decodes, scales and cuts into patches what {@link placeImage} measured. May be placed in the constructor or the consumer. */
export function patchifyImages(settings: PatchSettings = {}): Transform {
  return named("patchifyEach", { ...settings });
}

/** JPEG, PNG and whatever else sharp reads, to raw RGB. */
export function decodeImage(settings: ImageSettings = {}): Transform {
  return named("decodeField", { ...settings });
}

/** Scales a decoded image. */
export function resizeImage(
  settings: ImageSettings & {
    readonly width: number;
    readonly height: number;
    readonly fit?: "fill" | "inside" | "cover";
  },
): Transform {
  return named("resizeField", { ...settings });
}

/** Cuts the middle out of a decoded image. */
export function cropImage(settings: ImageSettings & { readonly width: number; readonly height: number }): Transform {
  return named("cropField", { ...settings });
}

/** Cuts a decoded image into patches and puts as many placeholder tokens before the text. */
export function patchifyImage(settings: PatchSettings & { readonly token: number }): Transform {
  checkToken("token", settings.token);
  return named("patchifyField", { ...settings });
}
