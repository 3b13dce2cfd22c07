/** Optional packages: imported when first needed, named when they are missing. */
import { BatchWeaveError } from "../index.js";

/** Imports an optional peer. MISSING_PACKAGE tells how to get it. */
export async function importPeer<T>(name: string, what: string): Promise<T> {
  try {
    return (await import(name)) as T;
  } catch (cause) {
    throw new BatchWeaveError(
      "MISSING_PACKAGE",
      `${what} need the package ${name}, which is not installed or does not load here. Install it with: npm install ${name.replace(/^((@[^/]+\/)?[^/]+).*$/, "$1")}`,
      { package: name },
      cause,
    );
  }
}
