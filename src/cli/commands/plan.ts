/** `batchweave plan`: what a pipeline would do, without writing anything. */
import { describeSources, loadPipeline, OpenPipeline, type PlannedBatch, placementFigures } from "../../plan/index.js";
import type { Call, Command } from "../command.js";

async function run({ args, terminal, env, stopping }: Call): Promise<undefined> {
  const pipeline = await loadPipeline(args.positionals[0] as string);
  const steps = args.integer("steps", { min: 1, max: 10_000 }) ?? 1;
  await using open = await OpenPipeline.open(pipeline, env);
  const { graphs, lanes } = open.resolved;
  const planners = Array.from({ length: lanes }, (_, lane) => open.planner(lane, lanes));
  for (let step = 0; step < steps; step++) {
    const batch = await planners[step % lanes]?.next({ signal: stopping.signal });
    if (!batch) break;
    terminal.result(jsonOf(batch), () => textOf(batch, graphs, args.flag("short")));
  }
  const placements = open.figures.flatMap((f) =>
    placementFigures(f, pipeline.spec.sources[f.source]?.settings.transforms ?? []),
  );
  if (args.flag("json")) return undefined;
  terminal.result({}, `\n${describeSources(open.figures, placements)}`);
  return undefined;
}

function textOf(batch: PlannedBatch, graphs: OpenPipeline["resolved"]["graphs"], isShort: boolean): string {
  const { notes, slices, plans, resumePoint } = batch;
  const bytes = slices.reduce((sum, slice) => sum + slice.length, 0);
  const head = `step ${batch.step} (phase ${notes.phase}): ${notes.samples} samples, ${notes.tokens} of ${notes.slots} slots, ${slices.length} slices of ${bytes} bytes, resume point ${JSON.stringify(resumePoint).length} bytes`;
  if (isShort) return head;
  const graph = graphs.backbone.describe(plans.backbone);
  const encoder = plans.encoder && graphs.encoder ? [graphs.encoder.describe(plans.encoder)] : [];
  return [head, graph, ...encoder, ""].join("\n");
}

function jsonOf({ notes, plans, slices }: PlannedBatch): unknown {
  const bins = plans.backbone.buckets.flatMap(({ name, bins: own }) =>
    own.map(({ microbatch, sequence, samples, tokens, compute }) => ({
      bucket: name,
      microbatch,
      sequence,
      tokens,
      compute,
      samples: samples.map((i) => `${plans.backbone.samples[i]?.source}/${plans.backbone.samples[i]?.id}`),
    })),
  );
  return { ...notes, bytes: slices.reduce((sum, slice) => sum + slice.length, 0), bins };
}

export const command: Command = {
  usage: "PIPELINE [--steps N] [--short]",
  about:
    "Shows what a pipeline would do in its first steps: the graph, and who gets which samples at what cost. Reads its sources,\nruns its transforms, writes nothing. Ends with what each source costs and what placing its transforms elsewhere would move.",
  positionals: ["PIPELINE"],
  options: {
    steps: { value: "N", help: "Steps to plan (default 1)." },
    short: { help: "One line per step." },
  },
  examples: ["batchweave plan pipeline.ts --steps 3"],
  run,
};
