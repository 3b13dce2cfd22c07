/** What `run` shows on a terminal while it works: one row for each source, those first that batches wait for, and what holds it up. */
import type { SourceFigures } from "../plan/index.js";
import { adviceFor } from "./diagnosis.js";
import { formatBytes, formatMs } from "./terminal.js";

const rowsMax = 8;
const waitShareMin = 0.1;

/** Lines below the bar of a run, from its figures so far. */
export function runScreen(figures: readonly SourceFigures[], elapsedMs: number, threads: number): readonly string[] {
  const seconds = Math.max(0.001, elapsedMs / 1_000);
  const sorted = [...figures].sort((a, b) => b.waitMs - a.waitMs || b.samples - a.samples);
  const rows = sorted.slice(0, rowsMax).map((f) => {
    const each = (ms: number): string => formatMs(ms / Math.max(1, f.samples));
    return [
      f.source.slice(0, 24),
      (f.samples / seconds).toFixed(1),
      `${Math.round((100 * f.waitMs) / Math.max(1, elapsedMs))} %`,
      each(f.readMs),
      each(f.transformMs),
      formatBytes(f.bufferedBytes),
      String(f.faults),
    ];
  });
  const table = [["source", "samples/s", "waited for", "read", "transform", "buffered", "left out"], ...rows];
  const widths = table[0]?.map((_, i) => Math.max(...table.map((row) => (row[i] as string).length))) ?? [];
  const lines = table.map((row) =>
    row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] as number) : cell.padStart(widths[i] as number))).join("  "),
  );
  const [worst] = sorted;
  const waitShare = worst ? Math.min(1, worst.waitMs / Math.max(1, elapsedMs)) : 0;
  const sentence =
    worst && waitShare >= waitShareMin
      ? `>> batches wait for source ${worst.source} ${Math.round(100 * waitShare)} % of the time; ${adviceFor({ ...worst, waitShare }, threads)}`
      : ">> no source is waited for";
  const more = sorted.length > rowsMax ? [`and ${sorted.length - rowsMax} more sources`] : [];
  return [sentence, ...lines, ...more];
}
