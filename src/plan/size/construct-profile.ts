/** What a batch costs its constructor: balancing, packing and encoding, measured on a batch of profiled samples in the mixture's shares. */
import type { Env } from "../../index.js";
import { FillBins } from "../graph/fill-bins.js";
import { TokenMixer, wholeShares } from "../mix/mixer.js";
import type { ResolvedPipeline } from "../run/pipeline.js";
import type { ProfiledSample } from "./source-profile.js";

/** Costs of one batch. */
export interface ConstructProfile {
  /** Balancing, packing and encoding, on one thread. */
  readonly buildMs: number;
  /** Of all slices. */
  readonly batchBytes: number;
  readonly samples: number;
  readonly tokens: number;
  /** Of all bins. */
  readonly slots: number;
}

/** Samples of a source come again when the batch needs more than were measured; a batch of more than this many is measured in part. */
const samplesMax = 200_000;

/** Slots of a whole batch. */
function slotsOf({ graphs, spec }: Pick<ResolvedPipeline, "graphs" | "spec">): {
  readonly bins: number;
  readonly slots: number;
} {
  const { tree, microbatches = 1, sequences = 1 } = graphs.backbone.place;
  const bins = tree.nodesAt(graphs.backbone.nodes.axis).length * microbatches * sequences;
  return { bins, slots: bins * spec.construct.seqLength };
}

/** Builds one batch. `shares`: by source, as `samples` are. */
export function profileConstruct(
  pipeline: ResolvedPipeline,
  samples: readonly (readonly ProfiledSample[])[],
  shares: readonly number[],
  env: Env,
): ConstructProfile {
  const { graphs, capacity, spec, batch, construct, sources } = pipeline;
  const { bins: count, slots } = slotsOf(pipeline);
  const names = sources.map(({ name }) => name);
  const begun = env.monotonic();
  const bins = new FillBins(count, capacity, spec.construct.packing ?? "best-fit", graphs.backbone.nodes.cost);
  const mixer = new TokenMixer(names.length);
  mixer.setShares(wholeShares(Object.fromEntries(names.map((name, i) => [name, shares[i] as number])), names));
  const [taken, next, full]: [ProfiledSample[], number[], Set<number>] = [[], names.map(() => 0), new Set()];
  const wanted = Math.min(samplesMax, "samples" in batch ? batch.samples : Number.POSITIVE_INFINITY);
  while (taken.length < wanted) {
    const source = mixer.next((s) => !full.has(s) && (samples[s]?.length ?? 0) > 0);
    if (source === -1) break;
    const own = samples[source] as readonly ProfiledSample[];
    const sample = own[(next[source] as number) % own.length] as ProfiledSample;
    if (!bins.place(sample.meta)) {
      full.add(source);
      continue;
    }
    next[source] = (next[source] as number) + 1;
    taken.push(sample);
    mixer.take(source, "samples" in batch ? 1 : sample.meta.tokens);
  }
  // A sample that comes again must not be the same object: plans and encoders look samples up by it.
  const metas = taken.map(({ meta }) => ({ ...meta }));
  const values = taken.map(({ value }) => value);
  const plan = graphs.backbone.plan(metas, bins.assignment);
  const deferred = Object.fromEntries(
    sources.map(({ name, settings }) => [name, (settings.transforms ?? []).filter(({ at }) => at === "consumer")]),
  );
  const slices = construct.build({ plan, values, deferred });
  return {
    buildMs: env.monotonic() - begun,
    batchBytes: slices.reduce((sum, { length }) => sum + length, 0),
    samples: taken.length,
    tokens: metas.reduce((sum, { tokens }) => sum + tokens, 0),
    slots,
  };
}
