/** The plan file: written by `fleet size`, taken by the commands that run processes. */
import { readFile } from "node:fs/promises";
import { BatchWeaveError } from "../../index.js";
import type { Pipeline } from "../run/pipeline.js";
import type { FleetPlan } from "./fleet-plan.js";

const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 1;

/** Reads a plan file and checks what others will use of it. */
export async function readFleetPlan(path: string): Promise<FleetPlan> {
  const refuse = (why: string, cause?: unknown): never => {
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `${path} is no fleet plan: ${why}. Make one with \`batchweave fleet size PIPELINE --out ${path}\`.`,
      { path },
      cause,
    );
  };
  let text = "";
  let plan: Partial<FleetPlan> | null = null;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    refuse(`it cannot be read (${(error as NodeJS.ErrnoException).code})`, error);
  }
  try {
    plan = JSON.parse(text) as Partial<FleetPlan> | null;
  } catch (error) {
    refuse("it is not JSON", error);
  }
  if (plan?.kind !== "batchweave-fleet-plan") refuse("it does not say that it is one");
  if (plan?.v !== 1) refuse(`it is of version ${plan?.v}, and this release reads version 1`);
  const { loaders, constructors, sources } = plan as FleetPlan;
  if (![loaders?.processes, loaders?.threads, constructors?.processes].every(isCount))
    refuse("it does not say how many processes and threads there are");
  const bad = Object.entries(sources ?? {}).find(([, source]) => !isCount(source?.lanes));
  if (typeof sources !== "object" || sources === null || bad) refuse(`source ${bad?.[0]} has no number of lanes`);
  return plan as FleetPlan;
}

/** What a role takes from a plan: its threads. Sources that are new since the plan was made are as the pipeline says. */
export function withFleetPlan(pipeline: Pipeline, plan: FleetPlan, role: "loaders" | "constructors"): Pipeline {
  const { spec } = pipeline;
  const unknown = Object.keys(plan.sources).filter((name) => !Object.hasOwn(spec.sources, name));
  if (unknown.length > 0)
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `The plan names ${unknown.slice(0, 5).join(", ")}, which the pipeline does not have: it was made for another. Size this one with batchweave fleet size.`,
      { unknown },
    );
  const threads = spec.workers?.threads === 0 ? 0 : Math.max(1, plan[role].threads);
  return { ...pipeline, spec: { ...spec, workers: { ...spec.workers, threads } } };
}
