/** What a batch is made of, as it goes to the thread that builds its slices: a few large arrays instead of an object for every sample, which would take longer to send than to build. Pure. */
import type { PreparedImage } from "../load/prepared-sample.js";
import type { ConstructInput } from "./data-constructor.js";

/** The plan, as sample numbers by bin by bucket. */
interface PlanMessage {
  readonly axis: ConstructInput["plan"]["axis"];
  readonly buckets: readonly { readonly ranks: readonly number[]; readonly bins: readonly (readonly number[])[] }[];
}

/** A batch on its way to its thread. */
export interface SliceMessage {
  readonly plan: PlanMessage;
  readonly encoder: PlanMessage | undefined;
  /** Of all samples, one after another, and where each ends. */
  readonly tokens: Int32Array;
  readonly lossMasks: Uint8Array;
  readonly ends: Int32Array;
  /** By sample: 1 where it has a loss mask. */
  readonly hasMask: Uint8Array;
  /** By sample: the token after its last one; -1 is none. */
  readonly nextTokens: Int32Array;
  /** Names of sources, and by sample which it is of. */
  readonly sources: readonly string[];
  readonly sourceOf: Uint32Array;
  /** Every image once, with the sample whose it is. The encoder's plan counts them in this order. */
  readonly images: readonly { readonly sample: number; readonly image: PreparedImage }[];
  /** By unit of the encoder's plan: the image. */
  readonly units: Uint32Array;
  readonly deferred: Readonly<Record<string, readonly { readonly name: string }[]>>;
}

/** Packs a batch for its way. Tokens and images are copied: a transform may hold on to what it gave. */
export function encodeSliceMessage({ plan, values, encoder, deferred = {} }: ConstructInput): SliceMessage {
  const ends = new Int32Array(values.length);
  let end = 0;
  for (const [i, { tokens }] of values.entries()) {
    end += tokens.length;
    ends[i] = end;
  }
  const tokens = new Int32Array(end);
  const lossMasks = new Uint8Array(values.some(({ lossMask }) => lossMask) ? end : 0);
  const hasMask = new Uint8Array(values.length);
  const nextTokens = new Int32Array(values.length).fill(-1);
  const images: { sample: number; image: PreparedImage }[] = [];
  const places = new Map<PreparedImage, number>();
  for (const [i, value] of values.entries()) {
    const at = (ends[i] as number) - value.tokens.length;
    tokens.set(value.tokens, at);
    if (value.lossMask) {
      lossMasks.set(value.lossMask, at);
      hasMask[i] = 1;
    }
    if (value.nextToken !== undefined) nextTokens[i] = value.nextToken;
    for (const image of value.images ?? []) {
      places.set(image, images.length);
      // A view would take all that it is a view of along.
      images.push({ sample: i, image: { ...image, data: image.data.slice() } });
    }
  }
  const sources = [...new Set(plan.samples.map(({ source }) => source))];
  const numbers = new Map(sources.map((source, i) => [source, i]));
  return {
    plan: planMessage(plan),
    encoder: encoder && planMessage(encoder.plan),
    tokens,
    lossMasks,
    ends,
    hasMask,
    nextTokens,
    sources,
    sourceOf: Uint32Array.from(plan.samples, ({ source }) => numbers.get(source) as number),
    images,
    units: Uint32Array.from(
      encoder?.values ?? [],
      ({ images: own }) => places.get(own?.[0] as PreparedImage) as number,
    ),
    deferred: Object.fromEntries(
      Object.entries(deferred).map(([source, list]) => [source, list.map(({ name }) => ({ name }))]),
    ),
  };
}

/** Buffers of a message that move instead of being copied again. */
export function movable({ tokens, lossMasks, images }: SliceMessage): ArrayBuffer[] {
  return [tokens, lossMasks, ...images.map(({ image }) => image.data)].map(({ buffer }) => buffer as ArrayBuffer);
}

/** The batch again: the same slices are built of it. */
export function decodeSliceMessage(message: SliceMessage): ConstructInput {
  const { tokens, lossMasks, ends, hasMask, nextTokens, sources, sourceOf, units, deferred } = message;
  const images = new Map<number, PreparedImage[]>();
  for (const { sample, image } of message.images) {
    const list = images.get(sample);
    if (list) list.push(image);
    else images.set(sample, [image]);
  }
  const values = Array.from(ends, (end, i) => {
    const at = ends[i - 1] ?? 0;
    return {
      tokens: tokens.subarray(at, end),
      lossMask: hasMask[i] ? lossMasks.subarray(at, end) : undefined,
      images: images.get(i),
      nextToken: nextTokens[i] === -1 ? undefined : nextTokens[i],
    };
  });
  const samples = Array.from(sourceOf, (number) => ({ source: sources[number] as string }));
  return {
    plan: { ...planOf(message.plan), samples },
    values,
    encoder: message.encoder && {
      plan: { ...planOf(message.encoder), samples: [] },
      values: Array.from(units, (unit) => ({
        tokens: [],
        images: [message.images[unit]?.image as PreparedImage],
      })),
    },
    deferred,
  };
}

function planMessage({ axis, buckets }: ConstructInput["plan"]): PlanMessage {
  return { axis, buckets: buckets.map(({ ranks, bins }) => ({ ranks, bins: bins.map(({ samples }) => samples) })) };
}

function planOf({ axis, buckets }: PlanMessage): Pick<ConstructInput["plan"], "axis" | "buckets"> {
  return {
    axis,
    buckets: buckets.map(({ ranks, bins }) => ({ ranks, bins: bins.map((samples) => ({ samples })) })),
  };
}
