/** `batchweave construct`: a process that plans batches from source logs. */
import { describeSummary, runConstructors } from "../../plan/index.js";
import type { Call, Command } from "../command.js";
import { fleetOptions, readFleetSettings, tellHandovers } from "../fleet-options.js";
import { LifeSigns, processName, sourceFacts, sourceWait } from "../life-signs.js";
import { plannedPipeline, planOption } from "../planned-pipeline.js";
import { durabilityOf } from "../run.js";
import { counted } from "../terminal.js";

async function run(call: Call): Promise<undefined> {
  const { args, terminal, stopping, env, metrics } = call;
  const pipeline = await plannedPipeline(args, "constructors");
  const settings = { ...readFleetSettings(args), steps: args.integer("steps", { min: 1 }) };
  const total = settings.steps ?? pipeline.spec.steps;
  let [made, committed, held, step] = [0, 0, 0, 0];
  const show = (): void =>
    terminal.progress("construct", step, total, `${made} made here, ${counted(held, "lane")} held`);
  await using signs = new LifeSigns(call);
  const result = await runConstructors(pipeline, settings, {
    env,
    metrics,
    onOpen: ({ ns, figures }) =>
      signs.begin(ns, {
        role: "constructor",
        name: processName(),
        facts: () => ({ made, committed, lanes: held, steps: total, sources: sourceFacts(figures()) }),
        waiting: () => sourceWait(figures()),
      }),
    signal: stopping.signal,
    storeSettings: { ...pipeline.spec.storeSettings, durability: durabilityOf(args) },
    onWait: (message) => terminal.note(message),
    onBatch: (batch, pending) => {
      made++;
      step = Math.max(step, batch.step + 1);
      committed = made - pending;
      show();
    },
    onHandover: tellHandovers(call, signs, (by) => {
      held += by;
      show();
    }),
  });
  terminal.settle();
  const uri = settings.uri ?? pipeline.spec.namespace.uri;
  const { closed, end, wallMs, summary, handovers } = result;
  terminal.result({ uri, batches: made, end, closed, handovers, wallMs: Math.round(wallMs), summary }, () =>
    [
      `${uri}: ${counted(made, "batch")} made here in ${(wallMs / 1_000).toFixed(1)} s; the log ends at step ${end}${closed ? " and is closed" : ""}`,
      ...(made > 0 ? [describeSummary(summary)] : []),
    ]
      .flat()
      .join("\n"),
  );
  return undefined;
}

export const command: Command = {
  usage: "PIPELINE [--namespace URI] [--steps N] [--shadow] [--lanes-max N]",
  about:
    'Plans the batches of a pipeline with exchange "log" from the tables of its source logs, fetches the samples it chose, and writes the training log.\nStart it as often as you like, anywhere: processes take lanes as they are needed, and go on with those of a process that died.\nThe log is that of one process, bit for bit. It ends when the log is complete.',
  positionals: ["PIPELINE"],
  options: {
    ...fleetOptions,
    ...planOption,
    steps: { value: "N", help: "Steps after which the log is complete, instead of what the pipeline says." },
  },
  examples: ["batchweave construct pipeline.ts & batchweave construct pipeline.ts"],
  isLong: true,
  run,
};
