/** `batchweave run --replay`: an earlier log once more, with the pipeline as it is now. */
import { describeSources, type Pipeline, replayPipeline } from "../plan/index.js";
import { invalid } from "./arguments.js";
import type { Call } from "./command.js";
import { durabilityOf } from "./run.js";

/** Faults that are named while it runs. */
const faultsNamedMax = 5;

/** Replays and prints what came of it. */
export async function replay({ args, terminal, stopping, metrics }: Call, pipeline: Pipeline): Promise<undefined> {
  const log = args.text("replay") as string;
  const [wrong] = ["id", "lanes", "part", "rehearse", "audit"].filter(
    (name) => args.text(name) !== undefined || args.flag(name),
  );
  if (wrong !== undefined)
    throw invalid(`--${wrong} does not go with --replay, which is one process. Leave one of them out.`);
  const interval = args.integer("interval");
  let named = 0;
  const settings = {
    log,
    uri: args.text("namespace"),
    steps: args.integer("steps", { min: 1 }),
    batchesMax: args.integer("batches"),
    close: !args.flag("no-close"),
    producer: interval === undefined ? undefined : { cadence: { kind: "interval" as const, intervalMs: interval } },
  };
  const result = await replayPipeline(pipeline, settings, {
    metrics,
    signal: stopping.signal,
    storeSettings: { ...pipeline.spec.storeSettings, durability: durabilityOf(args) },
    onFault: ({ source, id, stage, reason }) => {
      if (++named <= faultsNamedMax) terminal.note(`left out: ${source} ${id} (${stage}): ${reason}`);
    },
    onBatch: (_, made, of) => terminal.progress("replayed", made, of),
  });
  terminal.settle();
  const uri = settings.uri ?? pipeline.spec.namespace.uri;
  terminal.result({ uri, log, ...result }, () =>
    [
      `${uri}: ${result.batches} batches of ${log} made again in ${(result.wallMs / 1_000).toFixed(1)} s; it holds steps ${result.from} to ${result.to - 1}${result.closed ? " and is closed" : ""}`,
      `${result.samples} samples in their rows and their order, ${result.tokens} tokens where there were ${result.recordedTokens}${result.leftOut > 0 ? `; LEFT OUT ${result.leftOut}, each recorded with its batch` : ""}`,
      ...(result.batches > 0 ? [describeSources(result.sources, [])] : []),
    ].join("\n"),
  );
  return undefined;
}
