/** `batchweave fleet scale`: carries out what `fleet advice` says, on an engine that holds the processes. */
import { invalid } from "../arguments.js";
import type { Call, Command } from "../command.js";
import { adviceCommand, followAdvice } from "../fleet/advice.js";
import { type FleetCall, fleetArguments, readFleet } from "../fleet/arguments.js";
import { jobName } from "../fleet/kubernetes.js";
import { KubernetesClient } from "../fleet/kubernetes-client.js";
import type { Role } from "../fleet/role.js";
import { countTasks, fillRole } from "../fleet/slurm-tasks.js";

/** Changes the number of processes of one role; gives what it was, or undefined where the role has ended. */
type Scale = (role: Role, processes: number) => Promise<number | undefined>;

async function scaleOn({ engine, fleet, kubernetes, slurm }: FleetCall, signal: AbortSignal): Promise<Scale> {
  if (engine === "kubernetes") {
    const client = await KubernetesClient.open();
    return async ({ name: role }, processes) => {
      const name = jobName(fleet.name, role);
      const had = await client.parallelism(name, kubernetes.namespace);
      if (had !== undefined && had !== processes) await client.scale(name, kubernetes.namespace, processes);
      return had;
    };
  }
  if (engine === "slurm")
    return async (role, processes) => {
      // Tasks end by themselves when all is done: a role without any is left alone.
      const had = await countTasks(fleet.name, role.name, signal);
      if (had === 0) return undefined;
      if (had !== processes) await fillRole(fleet.name, { ...role, processes }, slurm, signal);
      return had;
    };
  throw invalid(
    "fleet scale goes with --on kubernetes or slurm. Here and on Ray, fleet up --autoscale does it itself.",
  );
}

async function run(call: Call): Promise<undefined> {
  const { args, env, stopping, terminal } = call;
  const plan = args.text("plan");
  if (plan === undefined) throw invalid("--plan FILE is missing: the autoscaler goes by what fleet size measured.");
  const given = await readFleet(args, { isScaling: true });
  const scale = await scaleOn(given, stopping.signal);
  const advice = adviceCommand(args.positionals[0] as string, plan, args.number("interval"));
  for await (const targets of followAdvice(advice, env, stopping.signal))
    for (const role of given.fleet.roles) {
      const { name } = role;
      const wanted = Math.max(1, targets[name] ?? 0);
      const had = targets[name] === undefined ? undefined : await scale(role, wanted);
      if (had !== undefined && had !== wanted)
        terminal.result({ role: name, from: had, to: wanted }, `${name}: ${had} -> ${wanted}`);
    }
  return undefined;
}

/** Of fleet up, what says which fleet it is and how its processes are started. */
const names = [
  "on",
  "plan",
  "interval",
  "cores",
  "memory",
  "batchweave",
  "python",
  "namespace",
  "partition",
  "account",
  "time",
];
const options = Object.fromEntries(Object.entries(fleetArguments).filter(([name]) => names.includes(name)));

export const command: Command = {
  usage: "PIPELINE --on kubernetes|slurm --plan FILE",
  about:
    "Carries out fleet advice on an engine that holds the processes: changes the parallelism of Kubernetes jobs, submits and cancels\ntasks of Slurm. fleet up --autoscale has the engine run it beside the others. It keeps nothing: it may die, or run twice. Ends when\nthe training log is complete.",
  positionals: ["PIPELINE"],
  options,
  examples: ["batchweave fleet scale pipeline.ts --on kubernetes --plan plan.json"],
  isLong: true,
  run,
};
