/** A folder for one run that is gone afterwards. */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Runs `work` in a folder of its own under `parent` (default: the system's temporary folder), and removes it whatever happens. */
export async function inScratchFolder<T>(parent: string | undefined, work: (folder: string) => Promise<T>): Promise<T> {
  if (parent !== undefined) mkdirSync(parent, { recursive: true });
  const folder = mkdtempSync(join(parent ?? tmpdir(), "batchweave-bench-"));
  const remove = (): void => rmSync(folder, { recursive: true, force: true });
  const onSignal = (): void => {
    remove();
    process.exit(130);
  };
  process.once("SIGINT", onSignal);
  process.once("SIGTERM", onSignal);
  try {
    return await work(folder);
  } finally {
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
    remove();
  }
}
