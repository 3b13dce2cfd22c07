/** What `fleet up` and `fleet render` are told. */
import { readFile } from "node:fs/promises";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { loadPipeline, readFleetPlan } from "../../plan/index.js";
import { type Arguments, invalid } from "../arguments.js";
import type { OptionTable } from "../command.js";
import { type KubernetesSettings, mountPath } from "./kubernetes.js";
import { type Fleet, fleetOf, type Programs, type Role, scalerRole } from "./role.js";
import type { SlurmSettings } from "./slurm.js";

const engines = ["local", "ray", "kubernetes", "slurm"] as const;

/** Who runs the processes. */
type Engine = (typeof engines)[number];

/** Options of both commands. */
export const fleetArguments: OptionTable = {
  on: { value: "ENGINE", help: "local (default), ray, kubernetes or slurm." },
  load: {
    value: "N",
    help: "Loader processes, or processes of a pipeline that does all in one (default: the plan's, or 1).",
  },
  construct: { value: "N", help: "Constructor processes (default: the plan's, or 1)." },
  plan: { value: "FILE", help: "Processes, cores and memory as fleet size wrote them." },
  autoscale: {
    help: "As many loaders and constructors as fleet advice says, from --plan and the logs; on Kubernetes and Slurm by one more process there.",
  },
  interval: { value: "SECONDS", help: "With --autoscale: between two looks at the logs (default 15)." },
  cores: { value: "N", help: "Cores of a process (default: the plan's, or 2)." },
  memory: { value: "GB", help: "Memory of a process (default: the plan's and a quarter, or 2)." },
  batchweave: {
    value: "COMMAND",
    help: 'How machines start the command, such as "npx batchweave" (default: as this one was started; in an image: batchweave).',
  },
  python: { value: "COMMAND", help: "How machines start Python (default python3)." },
  address: { value: "ADDRESS", help: "ray: the cluster (default: the running one that Ray finds)." },
  image: { value: "NAME", help: "kubernetes: the container image; the Dockerfile in the repository makes one." },
  namespace: { value: "NAME", help: "kubernetes: where the objects go (default: default)." },
  secret: { value: "NAME", help: "kubernetes: a secret with the store's credentials as environment variables." },
  "in-image": { help: "kubernetes: the pipeline's files are in the image under the paths given; mount none." },
  partition: { value: "NAME", help: "slurm: the partition." },
  account: { value: "NAME", help: "slurm: the account." },
  time: { value: "TIME", help: "slurm: the time limit of a task, such as 1-00:00:00." },
};

/** A fleet and where it goes. */
export interface FleetCall {
  readonly engine: Engine;
  readonly fleet: Fleet;
  readonly kubernetes: KubernetesSettings;
  readonly slurm: SlurmSettings;
}

/** What the scripts of tasks are made of. */
const slurmOptions = ["interval", "cores", "memory", "batchweave", "python", "partition", "account", "time"];
/** Of a process that looks at logs now and then, and its child. */
const scalerBytes = 500_000_000;

/** Bytes of all files that a ConfigMap takes, with room for the rest of it. */
const mountedBytesMax = 900_000;

/** Reads the pipeline and the options. `isScaling`: of a fleet that is there, so that no image and no files are needed. */
export async function readFleet(
  args: Arguments,
  { isScaling = false }: { readonly isScaling?: boolean } = {},
): Promise<FleetCall> {
  const engine = args.word("on", engines) ?? "local";
  const path = args.positionals[0] as string;
  const pipeline = await loadPipeline(path);
  const planPath = args.text("plan");
  const isMounted = engine === "kubernetes" && !isScaling && !args.flag("in-image");
  const gigabytes = args.number("memory");
  const counts = {
    load: args.integer("load", { min: 1 }),
    construct: args.integer("construct", { min: 1 }),
    cores: args.integer("cores", { min: 1 }),
    memoryBytes: gigabytes === undefined ? undefined : gigabytes * 1e9,
    plan: planPath === undefined ? undefined : await readFleetPlan(planPath),
    planPath: planPath === undefined || !isMounted ? planPath : `${mountPath}/${basename(planPath)}`,
  };
  const file = isMounted ? `${mountPath}/${basename(path)}` : path;
  const programs = programsOf(args, engine);
  const plain = fleetOf(pipeline, file, counts, programs);
  const isScaled = !isScaling && args.flag("autoscale");
  if (isScaled && counts.planPath === undefined)
    throw invalid("--autoscale needs --plan FILE: the autoscaler goes by what fleet size measured.");
  // Where the engine keeps processes running, it keeps the scaler running too.
  const given =
    isScaled && (engine === "kubernetes" || engine === "slurm")
      ? { ...plain, roles: [...plain.roles, scaler(args, engine, file, counts.planPath as string, programs)] }
      : plain;
  const python = Object.values(pipeline.spec.sources).flatMap(({ python: own }) => (own ? [own.file] : []));
  const files = [
    path,
    ...python.map((file) => file.replace(/:[^:/]*$/, "")),
    ...(planPath === undefined ? [] : [planPath]),
  ];
  const fleet = isMounted
    ? {
        ...given,
        roles: given.roles.map((role) => ({ ...role, command: role.command.map((word) => mounted(word, python)) })),
      }
    : given;
  if (engine === "kubernetes" && !isScaling && args.text("image") === undefined)
    throw invalid(
      "--image NAME is missing: Kubernetes runs processes from a container image. Build one with the Dockerfile of the repository.",
    );
  return {
    engine,
    fleet,
    kubernetes: {
      namespace: args.text("namespace") ?? "default",
      image: args.text("image") ?? "",
      secret: args.text("secret"),
      files: isMounted ? await readFiles(files) : undefined,
    },
    slurm: { partition: args.text("partition"), account: args.text("account"), time: args.text("time") },
  };
}

/** One process that carries out the autoscaler's numbers, told what it needs to start others like those that are there. */
function scaler(args: Arguments, engine: Engine, file: string, plan: string, { batchweave }: Programs): Role {
  const told = engine === "slurm" ? slurmOptions : ["interval", "namespace"];
  const options = told.flatMap((name) => {
    const value = args.text(name);
    return value === undefined ? [] : [`--${name}`, value];
  });
  const command = [...batchweave, "fleet", "scale", file, "--on", engine, "--plan", plan, ...options];
  return { name: scalerRole, processes: 1, command, cores: 1, memoryBytes: scalerBytes };
}

/** A Python file where it is mounted. */
function mounted(word: string, python: readonly string[]): string {
  return python.includes(word) ? `${mountPath}/${basename(word)}` : word;
}

function programsOf(args: Arguments, engine: Engine): Programs {
  const own = [process.execPath, fileURLToPath(new URL("../main.js", import.meta.url))];
  const words = (text: string): string[] => text.split(/\s+/).filter((word) => word !== "");
  return {
    batchweave:
      words(args.text("batchweave") ?? "").length > 0
        ? words(args.text("batchweave") as string)
        : engine === "kubernetes"
          ? ["batchweave"]
          : own,
    python: words(args.text("python") ?? process.env["BATCHWEAVE_PYTHON"] ?? "python3"),
  };
}

async function readFiles(paths: readonly string[]): Promise<Record<string, string>> {
  const entries = await Promise.all(
    [...new Set(paths)].map(async (path) => [basename(path), await readFile(path, "utf8")] as const),
  );
  const bytes = entries.reduce((sum, [, text]) => sum + Buffer.byteLength(text), 0);
  if (bytes > mountedBytesMax)
    throw invalid(
      `The pipeline's files have ${bytes} bytes, and a ConfigMap takes ${mountedBytesMax}. Put them into the image and say --in-image.`,
    );
  return Object.fromEntries(entries);
}
