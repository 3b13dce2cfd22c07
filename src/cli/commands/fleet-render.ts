/** `batchweave fleet render`: what `fleet up` would hand to an engine, for people and version control. */
import type { Call, Command } from "../command.js";
import { fleetArguments, readFleet } from "../fleet/arguments.js";
import { kubernetesManifests } from "../fleet/kubernetes.js";
import { slurmScripts } from "../fleet/slurm.js";
import { toYaml } from "../fleet/yaml.js";

async function run({ args, terminal }: Call): Promise<undefined> {
  const { engine, fleet, kubernetes, slurm } = await readFleet(args);
  if (engine === "kubernetes") {
    const manifests = kubernetesManifests(fleet, kubernetes);
    terminal.result(manifests, toYaml(manifests).trimEnd());
  } else if (engine === "slurm") {
    const scripts = slurmScripts(fleet, slurm);
    terminal.result(scripts, scripts.map(({ role, text }) => `# ${role}.sbatch\n${text}`).join("\n"));
  } else {
    terminal.result(
      fleet,
      fleet.roles.map(({ processes, command }) => `${processes} x ${command.join(" ")}`).join("\n"),
    );
  }
  return undefined;
}

export const command: Command = {
  usage: "PIPELINE --on kubernetes|slurm|ray|local [--load N] [--construct N] [--plan FILE]",
  about:
    "Writes what fleet up would hand to an engine: Kubernetes manifests, batch scripts for Slurm, or the commands themselves.\nStarts nothing.",
  positionals: ["PIPELINE"],
  options: fleetArguments,
  examples: [
    "batchweave fleet render pipeline.ts --on kubernetes --image registry/batchweave:1 --load 8 > fleet.yaml",
    "batchweave fleet render pipeline.ts --on slurm --load 50 --construct 8",
  ],
  run,
};
