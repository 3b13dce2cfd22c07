/** `batchweave verify`: proves every reference, length, checksum and sequence. */
import { BatchWeaveError, type VerifyReport } from "../../index.js";
import type { Call, Command } from "../command.js";
import { counted, formatBytes } from "../terminal.js";

async function run({ args, terminal, open, stopping }: Call): Promise<undefined> {
  const ns = await open();
  const level = args.flag("quick") ? "footers" : "bytes";
  const report = await ns.verify({ level, repair: args.flag("repair") }, { signal: stopping.signal });
  terminal.result({ uri: ns.uri, ...report }, () => describe(ns.uri, report));
  const errors = report.problems.filter(({ severity }) => severity === "error");
  if (report.ok) return undefined;
  const count = errors.length + report.problemsOmitted;
  // The report has named them; here is what to do, and the status.
  throw new BatchWeaveError(
    "CORRUPT",
    `${ns.uri} is damaged: ${count === 1 ? "one error" : `${count} errors`}, named in the report. Restore those objects from a copy, or fork and skip the steps they hold.`,
    { errors: errors.length, first: errors[0]?.key },
  );
}

function describe(uri: string, report: VerifyReport): string {
  const { counts, steps, problems, problemsOmitted, repaired } = report;
  // A pin and the log may miss the same object.
  const times = new Map<string, number>();
  for (const { severity, code, message } of problems) {
    const line = `${severity}[${code}]: ${message}`;
    times.set(line, (times.get(line) ?? 0) + 1);
  }
  const lines = [...times].map(([line, count]) => (count === 1 ? line : `${line} (${count} times)`));
  if (problemsOmitted > 0) lines.push(`and ${problemsOmitted} more`);
  if (repaired) {
    const gone = Object.entries(repaired).map(([kind, { objects }]) => `${objects} ${kind}`);
    lines.push(`removed what nothing can reach: ${gone.join(", ")}`);
  }
  const looked = `${counted(counts.steps, "step")}${steps.trim < steps.end ? ` (${steps.trim} to ${steps.end - 1})` : ""}, ${counted(counts.batchObjects, "batch object")}, ${formatBytes(counts.bytes)}, ${counts.indexObjects} index objects, ${counts.manifests} manifests, ${counts.producers} producers, ${counts.checkpoints} checkpoints, ${counts.pins} forks`;
  const unreferenced = `${counted(counts.reclaimableObjects, "object")} to reclaim, ${counts.pendingObjects} not referenced yet`;
  const unchecked =
    counts.uncheckedSlices > 0 ? `, but ${counts.uncheckedSlices} slices could NOT be decoded here` : "";
  const how =
    report.level === "bytes"
      ? `every byte was read and checked${unchecked}`
      : "every object is there and the one committed";
  return [
    ...lines,
    `looked at ${looked}; ${unreferenced}`,
    `${uri} is ${report.ok ? `clean: ${how}` : "DAMAGED"}`,
  ].join("\n");
}

export const command: Command = {
  usage: "URI [--quick] [--repair]",
  about:
    "Walks everything that is live at the head of the log: every reference, length, checksum and sequence, the index, checkpoints and forks.\nExits 2 when something is wrong and names it. Producers, ranks and reclaimers may be running.",
  positionals: ["URI"],
  options: {
    quick: { help: "Do not read slices: only that every object is there and the one that was committed." },
    repair: { help: "Remove what is provably unreachable (an interrupted reclaim's). Never changes the log." },
  },
  examples: ["batchweave verify file:///data/run", "batchweave verify file:///data/run --quick --json"],
  isLong: true,
  run,
};
