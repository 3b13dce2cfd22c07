/** Bugs for the Python package: each takes one rule away, and a served run must notice. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runServed, type ServedResult } from "./served-run.js";

/** One change of one file. */
interface PythonBug {
  readonly name: string;
  /** Below python/batchweave. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

const look = "up_to = self.boundary.look()\n        self.round_trip";

/** Every planted bug. */
export const pythonBugs: readonly PythonBug[] = [
  {
    name: "unknown is taken for created",
    file: "log/log.py",
    from: 'if outcome == "created":',
    to: 'if outcome in ("created", "unknown"):',
  },
  {
    name: "no look at the boundary after a read",
    file: "log/head.py",
    from: look,
    to: look.replace("look()", "up_to"),
  },
  {
    name: "no look at the boundary after a verdict",
    file: "log/head.py",
    from: "if self.boundary.look() >= created.version:",
    to: "if self.boundary.up_to >= created.version:",
  },
  {
    name: "whatever the same producer committed is mine",
    file: "log/log.py",
    from: 'found.commit["id"] == following.commit["id"]',
    to: 'found.commit["by"] == following.commit["by"]',
  },
  {
    name: "an older epoch still holds its id",
    file: "log/stage.py",
    from: "state.epoch == epoch and state.incarnation == incarnation",
    to: "state.epoch >= epoch",
  },
  {
    name: "a batch is acknowledged once it is uploaded",
    file: "producer/producer.py",
    from: "                entry.descriptor = descriptor\n",
    to: "                entry.descriptor = descriptor\n                entry.ticket._settle(self._log.head.newest().version)\n",
  },
];

/** Runs seeds with a copy of the package that has the bug, until one fails. */
export async function runPythonBug(
  bug: PythonBug,
  { root, seed, seedsMax, roughMs }: { root: string; seed: number; seedsMax: number; roughMs: number },
): Promise<ServedResult | undefined> {
  const folder = mkdtempSync(join(tmpdir(), "batchweave-planted-"));
  try {
    cpSync(join(root, "python/batchweave"), join(folder, "batchweave"), { recursive: true });
    const path = join(folder, "batchweave", bug.file);
    const text = readFileSync(path, "utf8");
    if (text.split(bug.from).length !== 2) throw new Error(`${bug.file} does not hold once: ${bug.from}`);
    writeFileSync(path, text.replace(bug.from, bug.to));
    for (let i = 0; i < seedsMax; i++) {
      // A bug may also show as somebody who never finishes: that is told sooner here.
      const result = await runServed({ root, pythonPath: folder, seed: seed + i, roughMs, patienceMs: 40_000 });
      if (result.failure !== undefined) return result;
    }
    return undefined;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
