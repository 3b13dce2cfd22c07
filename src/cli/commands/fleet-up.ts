/** `batchweave fleet up`: runs the processes of a pipeline on an engine. */
import type { Call, Command } from "../command.js";
import { adviceCommand, followAdvice } from "../fleet/advice.js";
import { fleetArguments, readFleet } from "../fleet/arguments.js";
import { kubernetesManifests } from "../fleet/kubernetes.js";
import { KubernetesClient } from "../fleet/kubernetes-client.js";
import { runLocalFleet } from "../fleet/local.js";
import { runRayFleet } from "../fleet/ray.js";
import { slurmJob } from "../fleet/slurm.js";
import { fillRole } from "../fleet/slurm-tasks.js";

async function run(call: Call): Promise<number | undefined> {
  const { args, terminal, env, stopping } = call;
  const { engine, fleet, kubernetes, slurm } = await readFleet(args);
  const processes = fleet.roles.map(({ name, processes: count }) => `${count} ${name}`).join(", ");
  if (engine === "kubernetes") {
    const client = await KubernetesClient.open();
    const applied: string[] = [];
    for (const manifest of kubernetesManifests(fleet, kubernetes)) {
      await client.apply(manifest);
      applied.push(`${manifest.kind.toLowerCase()}/${manifest.metadata.name}`);
    }
    const remove = `kubectl -n ${kubernetes.namespace} delete job,configmap,serviceaccount,role,rolebinding -l app.kubernetes.io/instance=${fleet.name}`;
    terminal.result(
      { engine, fleet: fleet.name, applied },
      `${applied.join("\n")}\n${processes}; apply again with other numbers to scale, remove with: ${remove}`,
    );
    return undefined;
  }
  if (engine === "slurm") {
    const jobs: Record<string, string> = {};
    const listed: string[] = [];
    for (const role of fleet.roles) {
      const { had, job } = await fillRole(fleet.name, role, slurm, stopping.signal);
      if (job !== undefined) jobs[role.name] = job;
      listed.push(`${role.name}: ${job === undefined ? "" : `job ${job}, `}${had} -> ${role.processes} tasks`);
    }
    const cancel = fleet.roles.map(({ name }) => `scancel -n ${slurmJob(fleet.name, name)}`).join("; ");
    terminal.result(
      { engine, fleet: fleet.name, jobs },
      `${listed.join("\n")}\nrun again with other numbers to scale, cancel with: ${cancel}`,
    );
    return undefined;
  }
  const events = {
    onLine: (name: string, line: string): void => terminal.note(`[${name}] ${line}`),
    onRestart: (name: string, why: string, delayMs: number): void =>
      terminal.note(`[${name}] ended with ${why}; starts again in ${(delayMs / 1_000).toFixed(1)} s`),
  };
  const plan = args.flag("autoscale") ? args.text("plan") : undefined;
  const advice =
    plan === undefined ? undefined : adviceCommand(args.positionals[0] as string, plan, args.number("interval"));
  terminal.note(`${fleet.name} on ${engine === "ray" ? "Ray" : "this machine"}: ${processes}`);
  const over = new AbortController();
  const signal = AbortSignal.any([stopping.signal, over.signal]);
  const outcome = await (engine === "ray"
    ? runRayFleet(fleet, args.text("address"), env, stopping.signal, events, advice)
    : runLocalFleet(fleet, env, stopping.signal, events, advice && followAdvice(advice, env, signal))
  ).finally(() => over.abort());
  terminal.result({ engine, fleet: fleet.name, ...outcome }, () => {
    const ended = Object.entries(outcome.ended).map(([role, count]) => `${count} ${role}`);
    return `ended: ${ended.join(", ")}; ${outcome.restarts} restarts`;
  });
  return outcome.status === 0 ? undefined : outcome.status;
}

export const command: Command = {
  usage: "PIPELINE [--on local|ray|kubernetes|slurm] [--load N] [--construct N] [--plan FILE]",
  about:
    'Runs the processes of a pipeline: load and construct where it has exchange: "log", Python loaders of its python() sources, run otherwise.\nOn this machine and on Ray it stays, and starts processes again that fail; on Kubernetes and Slurm it hands them over and ends.\nKilling it, or any process, loses nothing: the log says where others go on.',
  positionals: ["PIPELINE"],
  options: fleetArguments,
  examples: [
    "batchweave fleet up pipeline.ts --load 4 --construct 2",
    "batchweave fleet up pipeline.ts --on ray --plan plan.json --autoscale",
    "batchweave fleet up pipeline.ts --on kubernetes --image registry/batchweave:1 --secret s3-credentials --load 50",
    "batchweave fleet up pipeline.ts --on slurm --partition cpu --load 50 --construct 8",
  ],
  run,
};
