/** A pipeline's file, with the threads that a plan of `fleet size` gives it. */
import { loadPipeline, type Pipeline, readFleetPlan, withFleetPlan } from "../plan/index.js";
import type { Arguments } from "./arguments.js";
import type { OptionTable } from "./command.js";

/** Of every command that runs processes of a pipeline. */
export const planOption: OptionTable = {
  plan: { value: "FILE", help: "Take the number of threads from a plan of fleet size." },
};

/** Loads the file that a command names first. */
export async function plannedPipeline(args: Arguments, role: "loaders" | "constructors"): Promise<Pipeline> {
  const pipeline = await loadPipeline(args.positionals[0] as string);
  const path = args.text("plan");
  return path === undefined ? pipeline : withFleetPlan(pipeline, await readFleetPlan(path), role);
}
