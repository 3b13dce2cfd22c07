/** From samples and their plan to the slices of a batch; images that are balanced on their own get a plan of their own. */
import type { SliceThread } from "../construct/slice-thread.js";
import type { LoadPlan } from "../graph/load-plan.js";
import type { PreparedSample } from "../load/prepared-sample.js";
import type { SampleMeta } from "../load/sample-meta.js";
import type { LoadedSample } from "../load/sample-supply.js";
import type { ResolvedPipeline } from "./pipeline.js";

/** A sample as slices are made of it. */
type BuiltSample = Pick<LoadedSample, "meta" | "value">;

/** A batch of more bytes than an extent holds by default is appended slice by slice, as they are built. */
const streamBytesMin = 536_870_912;

/** What a batch is made of. */
export interface BuiltBatch {
  /** To append: all slices, or what gives them one after another while they are uploaded. */
  readonly body: readonly Uint8Array[] | AsyncIterable<Uint8Array>;
  /** All slices; where the body is not all of them, they are built for the asking. */
  readonly slices: readonly Uint8Array[];
  readonly encoder: LoadPlan | undefined;
}

/** Builds the slices of a batch. */
export async function buildSlices(
  { pipeline, builder }: { readonly pipeline: ResolvedPipeline; readonly builder: SliceThread },
  samples: readonly BuiltSample[],
  backbone: LoadPlan,
  streamMin: number = streamBytesMin,
): Promise<BuiltBatch> {
  const { graphs, construct, sources } = pipeline;
  const images = graphs.encoder ? imagesOf(samples) : [];
  const encoder = graphs.encoder && images.length > 0 ? graphs.encoder.plan(images.map(({ meta }) => meta)) : undefined;
  const deferred = Object.fromEntries(
    sources.map(({ name, settings }) => [name, (settings.transforms ?? []).filter(({ at }) => at === "consumer")]),
  );
  const content = {
    plan: backbone,
    values: samples.map(({ value }) => value),
    encoder: encoder && { plan: encoder, values: encoderValues(encoder, images) },
    deferred,
  };
  // By the content alone, so that a replacement which makes a batch again stores it in the same way.
  const isLarge = construct.bytesOf(content) >= streamMin;
  if (!isLarge) {
    const slices = await builder.build(content);
    return { body: slices, slices, encoder };
  }
  return {
    body: builder.slices(content),
    get slices() {
      return construct.build(content);
    },
    encoder,
  };
}

/** Each image as a unit of its own. */
function imagesOf(samples: readonly BuiltSample[]): { readonly meta: SampleMeta; readonly value: PreparedSample }[] {
  return samples.flatMap(({ meta, value }) =>
    (value.images ?? []).map((image, k) => ({
      meta: { source: meta.source, id: `${meta.id}#${k}`, tokens: image.tokens, images: [image.tokens] },
      value: { tokens: [], images: [image] },
    })),
  );
}

/** Values in the order of the plan's samples: a graph that selects has left some out. */
function encoderValues(
  plan: LoadPlan,
  images: readonly { readonly meta: SampleMeta; readonly value: PreparedSample }[],
): PreparedSample[] {
  const byMeta = new Map(images.map(({ meta, value }) => [meta, value]));
  return plan.samples.map((meta) => byMeta.get(meta) as PreparedSample);
}
