/** Loading a pipeline from its file. */
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { BatchWeaveError } from "../index.js";
import type { Pipeline } from "./pipeline.js";
import { importModule } from "./transform.js";

/** The default export of a pipeline file: `.mjs` and `.js` as they are, TypeScript through tsx. */
export async function loadPipeline(path: string): Promise<Pipeline> {
  const module = await importModule(path.startsWith("file:") ? path : pathToFileURL(resolve(path)).href);
  const found = module["default"] as Partial<Pipeline> | undefined;
  if (found?.kind === "batchweave-pipeline") return found as Pipeline;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `${path} has no pipeline as its default export. Write: export default definePipeline({ … }), from "batchweave/plan".`,
    { path },
  );
}
