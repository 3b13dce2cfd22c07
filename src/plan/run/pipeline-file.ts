/** Loading a pipeline from its file. */
import { existsSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { BatchWeaveError, isBatchWeaveError } from "../../index.js";
import { importModule } from "../load/transform.js";
import type { Pipeline } from "./pipeline.js";

/** The default export of a pipeline file: `.mjs` and `.js` as they are, TypeScript through tsx. */
export async function loadPipeline(path: string): Promise<Pipeline> {
  const module = await importFile(path);
  const found = module["default"] as Partial<Pipeline> | undefined;
  if (found?.kind === "batchweave-pipeline") return found as Pipeline;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `${path} has no pipeline as its default export. Write: export default definePipeline({ … }), from "batchweave/plan".`,
    { path },
  );
}

/** Whatever is wrong with the file is its writer's to mend: a slip of syntax, an import that is not there, something it throws. */
async function importFile(path: string): Promise<Record<string, unknown>> {
  if (!path.startsWith("file:") && !existsSync(path))
    throw new BatchWeaveError("INVALID_ARGUMENT", `There is no file ${path}. Name the file of a pipeline.`, { path });
  if (!path.startsWith("file:") && statSync(path).isDirectory())
    throw new BatchWeaveError("INVALID_ARGUMENT", `${path} is a folder. Name the file of a pipeline in it.`, { path });
  // Success that did nothing would be taken for work that is done.
  const onExit = (): void => {
    process.exitCode = 2;
    process.stderr.write(
      `error[INVALID_ARGUMENT]: ${path} ended the process while it was loaded. Mend the file and run again.\n`,
    );
  };
  process.once("exit", onExit);
  try {
    return await importModule(path.startsWith("file:") ? path : pathToFileURL(resolve(path)).href);
  } catch (error) {
    if (isBatchWeaveError(error)) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    const message = `${path} could not be loaded: ${reason}. Mend the file and run again.`;
    throw new BatchWeaveError("INVALID_ARGUMENT", message, { path }, error);
  } finally {
    process.off("exit", onExit);
  }
}
