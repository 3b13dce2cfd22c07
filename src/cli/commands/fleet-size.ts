/** `batchweave fleet size`: how many processes, threads and lanes a pipeline needs, and what binds. */
import { writeFile } from "node:fs/promises";
import { describeFleet, loadPipeline, sizeFleet } from "../../plan/index.js";
import { invalid } from "../arguments.js";
import type { Call, Command } from "../command.js";

async function run({ args, terminal, env, stopping }: Call): Promise<number | undefined> {
  const stepSeconds = args.number("step-seconds");
  const gigabytes = args.number("memory");
  if (gigabytes === 0) throw invalid("--memory must be above 0, in GB, such as 64.");
  const needs = {
    stepSeconds: stepSeconds ?? 1,
    cores: args.integer("cores", { min: 1, max: 1_000_000 }),
    memoryBytes: gigabytes === undefined ? undefined : gigabytes * 1e9,
    processes: args.integer("processes", { min: 1, max: 100_000 }),
    threads: args.integer("threads", { min: 1, max: 1_024 }),
    clusters: args.integer("clusters", { min: 1, max: 64 }),
  };
  const measure = {
    samplesMax: args.integer("samples", { min: 2, max: 100_000 }),
    msMax: 1_000 * (args.number("seconds") ?? 30),
  };
  const pipeline = await loadPipeline(args.positionals[0] as string);
  const { plan, costs } = await sizeFleet(pipeline, needs, measure, {
    env,
    signal: stopping.signal,
    onSource: ({ source }, done, of) => terminal.progress("measured", done, of, source),
  });
  terminal.settle();
  const out = args.text("out");
  if (out !== undefined) await writeFile(out, `${JSON.stringify(plan, undefined, 2)}\n`);
  terminal.result({ ...plan, measured: costs.profiles, batch: costs.construct }, () =>
    [
      describeFleet(plan),
      ...(stepSeconds === undefined ? ["no --step-seconds: a step a second was taken"] : []),
      ...(out === undefined ? [] : [`written to ${out}`]),
    ].join("\n"),
  );
  return plan.feeds ? undefined : 1;
}

export const command: Command = {
  usage: "PIPELINE [--step-seconds S] [--cores N] [--memory GB] [--out plan.json]",
  about:
    "Says how many loader and constructor processes, threads and lanes a pipeline needs so that its trainer never waits, with what\nmemory, what the store sees of it, and which source or limit binds. Reads some samples of every source and really runs their\ntransforms (half a minute in all), clusters sources by cost, and takes for each the phase of the mixture that needs most of it.\nExits 1 when what there is does not feed the step time. Writes nothing but the plan.",
  positionals: ["PIPELINE"],
  options: {
    "step-seconds": { value: "S", help: "How long the trainer's step takes (default 1)." },
    cores: { value: "N", help: "Cores of all machines together (default: as many as it takes)." },
    memory: { value: "GB", help: "Memory of all machines together; a fleet that needs more is refused." },
    processes: { value: "N", help: "Loader processes, where their number is given (default: as few as it takes)." },
    threads: { value: "N", help: "Transform threads of a process at most (default 8)." },
    clusters: { value: "N", help: "Clusters of sources by cost (default 4)." },
    samples: { value: "N", help: "Samples measured of each source at most (default 64)." },
    seconds: { value: "S", help: "Time for measuring all sources, about (default 30)." },
    out: { value: "FILE", help: "Write the plan there, for --plan of the commands that run processes." },
  },
  examples: [
    "batchweave fleet size pipeline.ts --step-seconds 12",
    "batchweave fleet size pipeline.ts --step-seconds 12 --cores 256 --memory 512 --out plan.json",
  ],
  run,
};
