/** `batchweave fleet advice`: how many loaders and constructors there should be now, as JSON lines for whatever runs them. */
import {
  decideFleet,
  type FleetLook,
  type FleetPlan,
  loadPipeline,
  lookAtFleet,
  looksMax,
  openFleetLogs,
  readFleetPlan,
  sizeFleet,
} from "../../plan/index.js";
import type { Call, Command } from "../command.js";
import { counted } from "../terminal.js";

async function planOf({ args, env, stopping, terminal }: Call): Promise<FleetPlan> {
  const path = args.text("plan");
  if (path !== undefined) return await readFleetPlan(path);
  const stepSeconds = args.number("step-seconds") ?? 1;
  terminal.note("no --plan: measuring the sources first");
  const pipeline = await loadPipeline(args.positionals[0] as string);
  return (await sizeFleet(pipeline, { stepSeconds }, {}, { env, signal: stopping.signal })).plan;
}

async function run(call: Call): Promise<undefined> {
  const { args, terminal, env, stopping, metrics } = call;
  const intervalMs = args.watchIntervalMs() ?? 15_000;
  const settings = {
    startMs: seconds(args.number("start-seconds")),
    processesMin: args.integer("min", { min: 1 }),
    processesMax: args.integer("max", { min: 1 }),
    demand: args.word("demand", ["schedule", "seen"] as const),
  };
  const known = { loaders: args.integer("loaders"), constructors: args.integer("constructors") };
  const pipeline = await loadPipeline(args.positionals[0] as string);
  const plan = await planOf(call);
  const options = { env, metrics, signal: stopping.signal, storeSettings: pipeline.spec.storeSettings };
  const logs = await openFleetLogs(pipeline, plan, args.text("namespace"), options);
  const history: FleetLook[] = [];
  while (!stopping.signal.aborted) {
    const look = await lookAtFleet(plan, await logs.look(), env.now(), known, stopping.signal);
    history.push(look);
    if (history.length > looksMax) history.shift();
    const advice = decideFleet(plan, history, env.now(), settings);
    const now = { loaders: look.loaders, constructors: look.constructors, own: look.own };
    terminal.result(
      { ...advice, now, step: look.step, atMs: Math.round(look.atMs) },
      () =>
        `step ${look.step}: ${[counted(advice.loaders, "loader"), ...Object.entries(advice.own).map(([name, count]) => `${count} of ${name}`), counted(advice.constructors, "constructor")].join(", ")}\n  ${advice.reasons.join("\n  ")}`,
    );
    // A log that is complete needs no more processes.
    if (!args.flag("watch") || look.isOver) break;
    await env.sleep(intervalMs, stopping.signal).catch((error: unknown) => {
      if (!stopping.signal.aborted) throw error;
    });
  }
  return undefined;
}

const seconds = (value: number | undefined): number | undefined => (value === undefined ? undefined : 1_000 * value);

export const command: Command = {
  usage: "PIPELINE [--plan FILE] [--watch] [--loaders N] [--constructors N]",
  about:
    "Says how many loader and constructor processes there should be now: demand from the mixture, ahead of the phases of a\nschedule, supply from the leads of the source logs. It is advice for whatever runs the processes, and absolute: following it\ntwice changes nothing. A number changes only after several looks in a row, so a single look keeps what there is. It keeps\nnothing: it may die, or run twice.",
  positionals: ["PIPELINE"],
  options: {
    plan: { value: "FILE", help: "A plan of fleet size (default: the sources are measured first)." },
    "step-seconds": { value: "S", help: "Without --plan: how long the trainer's step takes (default 1)." },
    namespace: { value: "URI", help: "The training log, instead of where the pipeline says." },
    watch: { help: "Look again and again, one line of JSON each, until the log is complete." },
    interval: { value: "SECONDS", help: "With --watch: between two looks (default 15)." },
    loaders: { value: "N", help: "Loaders that run now, where the caller knows (default: those that leave pulses)." },
    constructors: { value: "N", help: "The same for constructors." },
    "start-seconds": {
      value: "S",
      help: "From starting a process to its first block: so far ahead phases are seen (default 90).",
    },
    min: { value: "N", help: "Never fewer of either (default 1)." },
    max: { value: "N", help: "Never more of either (default 10,000)." },
    demand: { value: "HOW", help: "schedule (default), or seen: by what the last batches held." },
  },
  examples: [
    "batchweave fleet advice pipeline.ts --plan plan.json --json",
    "batchweave fleet advice pipeline.ts --plan plan.json --watch --interval 15 --json",
  ],
  isLong: true,
  run,
};
