/** From samples and their plan to the slices of a batch; images that are balanced on their own get a plan of their own. */
import type { LoadPlan } from "../graph/load-plan.js";
import type { PreparedSample } from "../load/prepared-sample.js";
import type { SampleMeta } from "../load/sample-meta.js";
import type { LoadedSample } from "../load/sample-supply.js";
import type { ResolvedPipeline } from "./pipeline.js";

/** A sample as slices are made of it. */
type BuiltSample = Pick<LoadedSample, "meta" | "value">;

/** Builds the slices of a batch. */
export function buildSlices(
  { graphs, construct, sources }: ResolvedPipeline,
  samples: readonly BuiltSample[],
  backbone: LoadPlan,
): { readonly slices: Uint8Array[]; readonly encoder: LoadPlan | undefined } {
  const images = graphs.encoder ? imagesOf(samples) : [];
  const encoder = graphs.encoder && images.length > 0 ? graphs.encoder.plan(images.map(({ meta }) => meta)) : undefined;
  const deferred = Object.fromEntries(
    sources.map(({ name, settings }) => [name, (settings.transforms ?? []).filter(({ at }) => at === "consumer")]),
  );
  const slices = construct.build({
    plan: backbone,
    values: samples.map(({ value }) => value),
    encoder: encoder && { plan: encoder, values: encoderValues(encoder, images) },
    deferred,
  });
  return { slices, encoder };
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
