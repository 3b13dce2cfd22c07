/** Series as lines of Prometheus' text format. */
import { bucketsMs, type Labels, type MetricKind, type Series } from "./metrics.js";

function labelText(labels: Labels): string {
  const parts = Object.entries(labels).map(
    ([key, value]) => `${key}="${value.replace(/\\/g, "\\\\").replace(/"/g, '\\"').replace(/\n/g, "\\n")}"`,
  );
  return parts.length === 0 ? "" : `{${parts.join(",")}}`;
}

/** One series; a histogram has many lines. */
export function seriesLines(name: string, kind: MetricKind, series: Series): string[] {
  if (kind !== "histogram") return [`${name}${labelText(series.labels)} ${series.value}`];
  const lines: string[] = [];
  let cumulative = 0;
  bucketsMs.forEach((bound, i) => {
    cumulative += series.buckets?.[i] ?? 0;
    lines.push(`${name}_bucket${labelText({ ...series.labels, le: String(bound / 1_000) })} ${cumulative}`);
  });
  lines.push(`${name}_bucket${labelText({ ...series.labels, le: "+Inf" })} ${series.count}`);
  lines.push(
    `${name}_sum${labelText(series.labels)} ${series.value / 1_000}`,
    `${name}_count${labelText(series.labels)} ${series.count}`,
  );
  return lines;
}
