/** Reports of runs and audits as text. Pure. */

import type { PlacementFigures, SourceFigures } from "../load/source-figures.js";
import type { PipelineAudit } from "./audit.js";
import type { RunSummary } from "./run-report.js";

const percent = (share: number): string => `${(100 * share).toFixed(2)} %`;
const sourcesShownMax = 12;

/** Columns side by side, the first to the left, the others to the right. */
export function textTable(rows: readonly (readonly string[])[]): string[] {
  const widths = rows[0]?.map((_, c) => Math.max(...rows.map((row) => (row[c] ?? "").length))) ?? [];
  return rows.map((row) =>
    row
      .map((cell, c) => (c === 0 ? cell.padEnd(widths[c] ?? 0) : cell.padStart(widths[c] ?? 0)))
      .join("  ")
      .trimEnd(),
  );
}

/** Mixture by phase, balance, packing, faults; with an audit also what was lost or repeated. */
export function describeSummary(summary: RunSummary, audit?: PipelineAudit | undefined): string {
  const lines: string[] = [];
  for (const { phase, steps, unit, total, off, shares } of summary.mixture) {
    const exact =
      off === 0
        ? "exact"
        : off < 1 && unit === "samples"
          ? "exact to the sample"
          : `off by at most ${Math.ceil(off)} ${unit}`;
    lines.push(`mixture, phase ${phase}: ${steps} steps, ${total} ${unit}, ${exact}`);
    const shown = shares.slice(0, sourcesShownMax);
    const header = ["  source", "scheduled", "achieved", "samples", "tokens"];
    const rows = shown.map((s) => [
      `  ${s.source}`,
      percent(s.wanted),
      percent(s.achieved),
      String(s.samples),
      String(s.tokens),
    ]);
    lines.push(...textTable([header, ...rows]));
    if (shares.length > sourcesShownMax) lines.push(`  … and ${shares.length - sourcesShownMax} more`);
  }
  const { before, after } = summary;
  lines.push(
    `balance: max/mean cost over ranks ${before.ranks.toFixed(3)} -> ${after.ranks.toFixed(3)}, over microbatches ${before.microbatches.toFixed(3)} -> ${after.microbatches.toFixed(3)}`,
    `packing: ${percent(summary.packing)} of ${summary.slots} slots hold tokens (${summary.samples} samples in ${summary.batches} batches)`,
  );
  const dropped = Object.values(summary.dropped).reduce((a, b) => a + b, 0);
  if (dropped > 0) {
    const total = summary.tokens + dropped;
    const sources = Object.entries(summary.dropped).map(([source, tokens]) => `${source} ${tokens}`);
    lines.push(
      `DROPPED: ${dropped} of ${total} tokens (${percent(dropped / total)}) of samples longer than a sequence: ${sources.join(", ")}`,
    );
  }
  for (const [what, count] of Object.entries(summary.faults)) lines.push(`faults: ${what} ${count}`);
  if (audit) {
    lines.push(
      `audit of steps ${audit.from} to ${audit.to - 1}: lost ${audit.lost}, repeated ${audit.repeated}${audit.skipped > 0 ? `, left out by policy and recorded ${audit.skipped}` : ""}${audit.leftOut > 0 ? `, in steps that are not in this log ${audit.leftOut}` : ""}`,
    );
    for (const { source, reason } of audit.unaudited)
      lines.push(`  not audited, because it cannot be read again as it was: ${source} (${reason})`);
    if (audit.examples.length > 0) lines.push(`  such as ${audit.examples.join(", ")}`);
  }
  return lines.join("\n");
}

const bytes = (n: number): string => (n >= 1e6 ? `${(n / 1e6).toFixed(1)} MB` : `${(n / 1e3).toFixed(1)} kB`);

/** What each source cost, and what moving its transforms would move. */
export function describeSources(sources: readonly SourceFigures[], placements: readonly PlacementFigures[]): string {
  // The one that batches waited for most comes first: it is what to speed up.
  const used = sources
    .filter(({ samples }) => samples > 0)
    .sort((a, b) => b.waitMs - a.waitMs)
    .slice(0, sourcesShownMax);
  const hasFaults = used.some(({ faults }) => faults > 0);
  const lines = textTable([
    [
      "source",
      "samples",
      ...(hasFaults ? ["left out"] : []),
      "waited for",
      "read/sample",
      "transform/sample",
      "raw",
      "ready",
      "expansion",
      "buffered at most",
    ],
    ...used.map((s) => [
      s.source,
      String(s.samples),
      ...(hasFaults ? [String(s.faults)] : []),
      `${(s.waitMs / 1_000).toFixed(1)} s`,
      `${(s.readMs / s.samples).toFixed(2)} ms`,
      `${(s.transformMs / s.samples).toFixed(2)} ms`,
      bytes(s.rawBytes),
      bytes(s.readyBytes),
      `${s.expansion.toFixed(2)}x`,
      bytes(s.bufferedBytesMost),
    ]),
  ]);
  for (const { source, split } of used)
    if (split > 0) lines.push(`${source}: ${split} documents are longer than a sequence and were split`);
  const moved = placements.filter(({ source }) => used.some((s) => s.source === source));
  if (moved.length > 0) {
    const both = (f: { buffered: number; logged: number }): string => `${bytes(f.buffered)} / ${bytes(f.logged)}`;
    lines.push("bytes moved (loader to constructor / constructor to log), were the transform placed in the");
    lines.push(
      ...textTable([
        ["  transform", "now", "loader", "constructor", "consumer"],
        ...moved.map((p) => [
          `  ${p.source} ${p.transform}`,
          p.at,
          both(p.loader),
          both(p.constructor),
          both(p.consumer),
        ]),
      ]),
    );
  }
  return lines.join("\n");
}
