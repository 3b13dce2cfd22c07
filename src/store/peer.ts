/** Packages that only some users need. */
import { BatchWeaveError } from "../errors.js";

/**
 * Imports an optional package; MISSING_PACKAGE, naming what to install, when it is not there. By its name as a value: a bundler must neither look for it
 * nor fail without it.
 */
export async function loadPeer<T>(name: string): Promise<T> {
  try {
    return (await import(name)) as T;
  } catch (e) {
    const code = e instanceof Error && "code" in e ? e.code : undefined;
    if (code !== "ERR_MODULE_NOT_FOUND" && code !== "MODULE_NOT_FOUND") throw e;
    throw new BatchWeaveError(
      "MISSING_PACKAGE",
      `${name} is not installed. Install it with: npm install ${name}`,
      { package: name },
      e,
    );
  }
}
