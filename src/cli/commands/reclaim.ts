/** `batchweave reclaim`: deletes what is no longer needed. */
import { BatchWeaveError, isBatchWeaveError, type ReclaimReport } from "../../index.js";
import { invalid } from "../arguments.js";
import type { Call, Command } from "../command.js";
import { LifeSigns } from "../life-signs.js";
import { formatBytes, formatMs, table } from "../terminal.js";

async function run(call: Call): Promise<undefined> {
  const { args, terminal, open, stopping } = call;
  const graceSeconds = args.number("grace");
  const settings = {
    graceMs: graceSeconds === undefined ? undefined : 1_000 * graceSeconds,
    keepVersions: args.integer("keep-versions", { min: 1 }),
  };
  const dryRun = args.flag("dry-run");
  const watch = args.flag("watch");
  if (watch && dryRun) throw invalid("--watch and --dry-run do not go together: a dry run changes nothing to watch.");
  const ns = await open();
  const tell = (report: ReclaimReport): void => terminal.result(report, () => describe(report));
  if (!watch) {
    tell(await ns.reclaim({ ...settings, dryRun }, { signal: stopping.signal }));
    if (!dryRun) await ns.removeGonePulses({ signal: stopping.signal });
    return undefined;
  }
  const intervalMs = args.watchIntervalMs();
  const onFailure = (error: unknown): void => {
    // What waiting cannot mend ends the command; a hiccup of the store does not.
    if (isBatchWeaveError(error) && error.remedy !== "retry" && error.remedy !== "refresh") failed.abort(error);
    else terminal.note(`reclaim failed and will be tried again: ${error instanceof Error ? error.message : error}`);
  };
  const failed = new AbortController();
  let runs = 0;
  await using signs = new LifeSigns(call);
  signs.begin(ns, { role: "reclaimer", name: "reclaim", facts: () => ({ runs }) });
  const onRun = (report: ReclaimReport): void => {
    runs++;
    tell(report);
    // The one process that looks at every log for as long as it lives: it keeps the log's own metrics.
    ns.vitals({ signal: stopping.signal }).catch(() => {});
  };
  try {
    const signal = AbortSignal.any([stopping.signal, failed.signal]);
    await ns.watchReclaim({ ...settings, intervalMs }, { onRun, onFailure, signal });
  } catch (error) {
    if (error instanceof BatchWeaveError || !stopping.stopped) throw error;
  }
  return undefined;
}

function describe(report: ReclaimReport): string {
  const { trim, boundary, dryRun, dead } = report;
  const kinds = ["batches", "uploads", "index", "manifests", "intents"] as const;
  const gone = kinds.filter((kind) => report[kind].objects > 0);
  const counts = gone.map((kind) => `${report[kind].objects} ${kind} (${formatBytes(report[kind].bytes)})`);
  const verb = dryRun ? "would delete" : "deleted";
  const lines = [
    `${verb} ${counts.length === 0 ? "nothing" : counts.join(", ")}; trim ${trim.before} -> ${trim.after}, boundary ${boundary.before} -> ${boundary.after}, ${report.lagVersions} versions and ${formatMs(report.lagMs)} behind the head`,
  ];
  if (report.warning !== undefined) lines.push(report.warning);
  if (dead && dead.length > 0) {
    // Keys are long, of any length: last, they push nothing off the screen.
    lines.push(
      table(
        ["bytes", "why", "object"],
        dead.map(({ key, size, reason }) => [size, reason, key]),
      ),
    );
  }
  return lines.join("\n");
}

export const command: Command = {
  usage: "URI [--dry-run] [--watch] [--interval SECONDS]",
  about:
    "Trims the log to its lowest live checkpoint and deletes trimmed batches, uploads that were never committed, index objects without\na reference and old manifests. Without a checkpoint nothing is trimmed. Safe to interrupt, to repeat and to run twice at once.",
  positionals: ["URI"],
  options: {
    "dry-run": { help: "Change nothing; print every object that would go, and why." },
    watch: { help: "Again and again, until it is stopped." },
    interval: { value: "SECONDS", help: "With --watch: time between two runs (default 60)." },
    grace: { value: "SECONDS", help: "How long an upload may take before its commit (default 900)." },
    "keep-versions": { value: "N", help: "Manifest versions that stay, whatever the clock says (default 16)." },
  },
  examples: [
    "batchweave reclaim file:///data/run --dry-run",
    "batchweave reclaim file:///data/run --watch --metrics 9464",
  ],
  isLong: true,
  run,
};
