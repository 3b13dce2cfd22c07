/** Packages that only some users need. */
import { BatchWeaveError } from "../errors.js";

/** What `load` gives; MISSING_PACKAGE, naming what to install, when the package is not there. */
export async function loadPeer<T>(name: string, install: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (e) {
    const code = e instanceof Error && "code" in e ? e.code : undefined;
    if (code !== "ERR_MODULE_NOT_FOUND" && code !== "MODULE_NOT_FOUND") throw e;
    throw new BatchWeaveError(
      "MISSING_PACKAGE",
      `${name} is not installed. Install it with: npm install ${install}`,
      { package: name },
      e,
    );
  }
}
