/** `batchweave load`: a process that reads a pipeline's sources into their logs. */
import { describeSources, runLoaders } from "../../plan/index.js";
import type { Call, Command } from "../command.js";
import { fleetOptions, readFleetSettings, tellHandovers } from "../fleet-options.js";
import { LifeSigns, processName, sourceFacts } from "../life-signs.js";
import { plannedPipeline, planOption } from "../planned-pipeline.js";
import { durabilityOf } from "../run.js";
import { counted } from "../terminal.js";

async function run(call: Call): Promise<undefined> {
  const { args, terminal, stopping, env, metrics } = call;
  const pipeline = await plannedPipeline(args, "loaders");
  let [blocks, held] = [0, 0];
  const show = (): void => terminal.progress("load", blocks, undefined, `holding ${counted(held, "lane")}`);
  await using signs = new LifeSigns(call);
  const result = await runLoaders(pipeline, readFleetSettings(args), {
    env,
    metrics,
    onOpen: ({ ns, figures }) =>
      signs.begin(ns, {
        role: "loader",
        name: processName(),
        facts: () => ({
          blocks,
          lanes: held,
          threads: pipeline.spec.workers?.threads ?? 2,
          sources: sourceFacts(figures()),
        }),
      }),
    signal: stopping.signal,
    storeSettings: { ...pipeline.spec.storeSettings, durability: durabilityOf(args) },
    onFault: ({ source, id, stage, reason }) => terminal.note(`left out: ${source} ${id} (${stage}): ${reason}`),
    onBlock: () => {
      blocks++;
      show();
    },
    onHandover: tellHandovers(call, signs, (by) => {
      held += by;
      show();
    }),
  });
  terminal.settle();
  terminal.result(
    {
      blocks: result.batches,
      fillers: result.fillers,
      isOver: result.isOver,
      handovers: result.handovers,
      wallMs: Math.round(result.wallMs),
      sources: result.sources,
    },
    () =>
      [
        `${counted(result.batches, "block")} made here in ${(result.wallMs / 1_000).toFixed(1)} s; ${result.isOver ? "no more are needed" : "told to stop: others go on"}`,
        ...(result.batches > 0 ? [describeSources(result.sources, [])] : []),
      ].join("\n"),
  );
  return undefined;
}

export const command: Command = {
  usage: "PIPELINE [--namespace URI] [--shadow] [--lanes-max N] [--sources-max N]",
  about:
    'Reads the sources of a pipeline with exchange "log" and writes their prepared samples into a log for each source. Start it as often as you\nlike, anywhere: processes take lanes as they are needed, and go on with those of a process that died. It ends when the sources\nend or the training log is complete.',
  positionals: ["PIPELINE"],
  options: {
    ...fleetOptions,
    ...planOption,
    "sources-max": { value: "N", help: "Sources of which this process holds lanes at most (default: any number)." },
  },
  examples: ["batchweave load pipeline.ts & batchweave load pipeline.ts", "batchweave load pipeline.ts --shadow"],
  isLong: true,
  run,
};
