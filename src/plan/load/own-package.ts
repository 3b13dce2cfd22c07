/** Makes `batchweave` and `batchweave/plan` mean this very package for a module that lies where Node finds none: a command that pip installed has no node_modules beside its pipelines. */
import { createRequire, register } from "node:module";

/** Within this package its own name can be resolved, from whatever file. */
const inside = import.meta.url;

/** Runs on the thread that resolves imports; knows nothing of this module. */
const hook = `export async function resolve(specifier, context, next) {
  if (specifier !== "batchweave" && !specifier.startsWith("batchweave/")) return next(specifier, context);
  try {
    return await next(specifier, context);
  } catch (error) {
    if (error?.code !== "ERR_MODULE_NOT_FOUND") throw error;
    return next(specifier, { ...context, parentURL: ${JSON.stringify(inside)} });
  }
}`;

let isOffered = false;

/** Before `module` is imported. Where it finds a package of that name, that one is used, and nothing happens here. */
export function offerOwnPackage(module: string): void {
  if (isOffered || !module.startsWith("file:")) return;
  try {
    createRequire(module).resolve("batchweave/plan");
  } catch {
    isOffered = true;
    register(`data:text/javascript,${encodeURIComponent(hook)}`);
  }
}
