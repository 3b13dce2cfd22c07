/** What a fleet is made of: roles, each a command that any number of equal processes run. Engines differ only in how they start and restart them. */
import { basename } from "node:path";
import { type FleetPlan, isExternal, type Pipeline, sourceLogsUri } from "../../plan/index.js";
import { invalid } from "../arguments.js";

/** A kind of process. None needs a number of its own: lanes are taken from the log. */
export interface Role {
  /** `load`, `construct`, `run`, or `load-<source>` of a Python source. Letters, digits and hyphens. */
  readonly name: string;
  readonly processes: number;
  /** Program and arguments, as they are on the machine that runs it. */
  readonly command: readonly string[];
  readonly cores: number;
  readonly memoryBytes: number;
}

/** A fleet, ready for an engine. */
export interface Fleet {
  /** Of the pipeline's file, for names of jobs. */
  readonly name: string;
  readonly roles: readonly Role[];
}

/** How many processes of each role, and with what. */
interface FleetCounts {
  readonly load?: number | undefined;
  readonly construct?: number | undefined;
  readonly cores?: number | undefined;
  readonly memoryBytes?: number | undefined;
  readonly plan?: FleetPlan | undefined;
  /** The plan's file, told to the processes. */
  readonly planPath?: string | undefined;
}

/** Where programs are: on this machine, or in an image. */
export interface Programs {
  readonly batchweave: readonly string[];
  readonly python: readonly string[];
}

/** The role that carries out the autoscaler's numbers, where an engine runs it as one more process. */
export const scalerRole = "scale";

/** The role that loads a Python source. */
export function loadRole(source: string): string {
  return nameOf(`load-${source}`);
}

const gigabyte = 1e9;
const processesMax = 10_000;

/** The roles of a pipeline. `file`: its path as the processes see it. */
export function fleetOf(pipeline: Pipeline, file: string, counts: FleetCounts, programs: Programs): Fleet {
  const { plan } = counts;
  const logs = sourceLogsUri(pipeline);
  const isLog = logs !== undefined;
  if (!isLog && counts.construct !== undefined)
    throw invalid(
      '--construct goes with a pipeline that has exchange: "log"; this one does all in one role. Use --load.',
    );
  const planned = (role: "loaders" | "constructors"): Pick<Role, "cores" | "memoryBytes"> => ({
    cores: counts.cores ?? Math.max(1, Math.ceil(plan ? Math.max(1, plan[role].threads) : 2)),
    memoryBytes: counts.memoryBytes ?? Math.ceil(plan ? plan[role].memoryBytes * 1.25 : 2 * gigabyte),
  });
  const options = counts.planPath === undefined ? [] : ["--plan", counts.planPath];
  const role = (name: string, of: "loaders" | "constructors", asked: number | undefined): Role => ({
    name,
    processes: asked ?? plan?.[of].processes ?? 1,
    command: [...programs.batchweave, name, file, ...(name === "run" ? options : [])],
    ...planned(of),
  });
  const sources = Object.entries(pipeline.spec.sources);
  const python = sources.flatMap(([source, { python: own }]): Role[] => {
    if (!own || logs === undefined) return [];
    const sized = plan?.sources[source];
    const one = role(loadRole(source), "loaders", own.processes ?? sized?.own?.processes ?? 1);
    const cores = counts.cores ?? sized?.own?.threads ?? one.cores;
    const memoryBytes = counts.memoryBytes ?? (sized?.own ? Math.ceil(1.25 * sized.own.memoryBytes) : one.memoryBytes);
    // Else it would take every core that the machine has, whatever it was given.
    const workers = ["--workers", String(cores)];
    return [
      {
        ...one,
        cores,
        memoryBytes,
        command: [...programs.python, "-m", "batchweave", "load", own.file, "--uri", logs, ...workers],
      },
    ];
  });
  const isFilled = sources.every(([, source]) => isExternal(source));
  const roles = isLog
    ? [
        ...(isFilled ? [] : [role("load", "loaders", counts.load)]),
        ...python,
        role("construct", "constructors", counts.construct),
      ]
    : [role("run", "loaders", counts.load)];
  for (const { name, processes } of roles)
    if (!Number.isSafeInteger(processes) || processes < 1 || processes > processesMax)
      throw invalid(`${processes} processes for ${name} cannot be started: 1 to ${processesMax} are possible.`, {
        name,
      });
  return {
    name: nameOf(basename(file).replace(/\.[^.]*$/, "")),
    roles: roles.map((one) => ({ ...one, name: nameOf(one.name) })),
  };
}

/** A name that every engine takes. */
function nameOf(text: string): string {
  const name = text
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "");
  return name.slice(0, 40) || "pipeline";
}
