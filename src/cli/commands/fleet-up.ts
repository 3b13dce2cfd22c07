/** `batchweave fleet up`: runs the processes of a pipeline on an engine. */
import { invalid } from "../arguments.js";
import type { Call, Command } from "../command.js";
import { followAdvice } from "../fleet/advice.js";
import { fleetArguments, readFleet } from "../fleet/arguments.js";
import { kubernetesManifests } from "../fleet/kubernetes.js";
import { type LocalEvents, type LocalOutcome, runLocalFleet } from "../fleet/local.js";
import { askProgram } from "../fleet/program.js";
import { runRayFleet } from "../fleet/ray.js";
import type { Fleet } from "../fleet/role.js";
import { slurmScripts } from "../fleet/slurm.js";
import { toYaml } from "../fleet/yaml.js";

async function run(call: Call): Promise<number | undefined> {
  const { args, terminal, env, stopping } = call;
  const { engine, fleet, kubernetes, slurm } = await readFleet(args);
  if (args.flag("autoscale") && engine !== "local")
    throw invalid("--autoscale goes with --on local. Elsewhere, run fleet advice --watch and apply with its numbers.");
  const processes = fleet.roles.map(({ name, processes: count }) => `${count} ${name}`).join(", ");
  if (engine === "kubernetes") {
    const text = toYaml(kubernetesManifests(fleet, kubernetes));
    // Field by field on the server: applying again with other numbers scales the jobs that run.
    const apply = ["apply", "--server-side", "--force-conflicts", "--field-manager=batchweave-fleet", "-f", "-"];
    const said = await askProgram("kubectl", apply, text, stopping.signal);
    const remove = `kubectl -n ${kubernetes.namespace} delete job,configmap,serviceaccount -l app.kubernetes.io/instance=${fleet.name}`;
    terminal.result(
      { engine, fleet: fleet.name, applied: said.trim().split("\n") },
      `${said.trim()}\n${processes}; apply again with other numbers to scale, remove with: ${remove}`,
    );
    return undefined;
  }
  if (engine === "slurm") {
    const jobs: Record<string, string> = {};
    for (const { role, text } of slurmScripts(fleet, slurm))
      jobs[role] = (await askProgram("sbatch", ["--parsable"], text, stopping.signal)).trim().split(";")[0] as string;
    const listed = Object.entries(jobs).map(([role, id]) => `${role}: job ${id}`);
    terminal.result(
      { engine, fleet: fleet.name, jobs },
      `${listed.join("\n")}\n${processes}; cancel with: scancel ${Object.values(jobs).join(" ")}`,
    );
    return undefined;
  }
  const events = {
    onLine: (name: string, line: string): void => terminal.note(`[${name}] ${line}`),
    onRestart: (name: string, why: string, delayMs: number): void =>
      terminal.note(`[${name}] ended with ${why}; starts again in ${(delayMs / 1_000).toFixed(1)} s`),
  };
  terminal.note(`${fleet.name} on ${engine === "ray" ? "Ray" : "this machine"}: ${processes}`);
  const outcome =
    engine === "ray"
      ? await runRayFleet(fleet, args.text("address"), env, stopping.signal, events)
      : await runScaled(call, fleet, events);
  terminal.result({ engine, fleet: fleet.name, ...outcome }, () => {
    const ended = Object.entries(outcome.ended).map(([role, count]) => `${count} ${role}`);
    return `ended: ${ended.join(", ")}; ${outcome.restarts} restarts`;
  });
  return outcome.status === 0 ? undefined : outcome.status;
}

/** On this machine; with --autoscale as many processes as fleet advice says. */
async function runScaled({ args, env, stopping }: Call, fleet: Fleet, events: LocalEvents): Promise<LocalOutcome> {
  const plan = args.text("plan");
  if (!args.flag("autoscale")) return await runLocalFleet(fleet, env, stopping.signal, events);
  if (plan === undefined)
    throw invalid("--autoscale needs --plan FILE: the autoscaler goes by what fleet size measured.");
  const over = new AbortController();
  const advice = followAdvice(
    args.positionals[0] as string,
    plan,
    env,
    AbortSignal.any([stopping.signal, over.signal]),
  );
  try {
    return await runLocalFleet(fleet, env, stopping.signal, events, advice);
  } finally {
    over.abort();
  }
}

export const command: Command = {
  usage: "PIPELINE [--on local|ray|kubernetes|slurm] [--load N] [--construct N] [--plan FILE]",
  about:
    'Runs the processes of a pipeline: load and construct where it has exchange: "log", Python loaders of its python() sources, run otherwise.\nOn this machine and on Ray it stays, and starts processes again that fail; on Kubernetes and Slurm it hands them over and ends.\nKilling it, or any process, loses nothing: the log says where others go on.',
  positionals: ["PIPELINE"],
  options: {
    ...fleetArguments,
    autoscale: {
      help: "local: as many loaders and constructors as fleet advice says, from --plan and the logs. Elsewhere follow its advice by applying again.",
    },
  },
  examples: [
    "batchweave fleet up pipeline.ts --load 4 --construct 2",
    "batchweave fleet up pipeline.ts --on ray --plan plan.json",
    "batchweave fleet up pipeline.ts --on kubernetes --image registry/batchweave:1 --secret s3-credentials --load 50",
    "batchweave fleet up pipeline.ts --on slurm --partition cpu --load 50 --construct 8",
  ],
  run,
};
