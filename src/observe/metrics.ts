/** Counters, gauges and histograms with Prometheus names and text. Everyone writes, only people and scrapers read. */

/** Label values of one series. */
export type Labels = Readonly<Record<string, string>>;

interface Family {
  readonly kind: "counter" | "gauge" | "histogram";
  readonly help: string;
  readonly series: Map<string, Series>;
}

interface Series {
  readonly labels: Labels;
  value: number;
  count: number;
  /** Histograms: counts per bucket of {@link bucketsMs}. */
  buckets: number[] | undefined;
}

/** Upper bounds in ms of every histogram. */
const bucketsMs: readonly number[] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];

/** Series of one family at most; a label with unbounded values must not eat the memory. */
const seriesMax = 1_000;

/** A registry. One per process or per test; nothing is global. */
export class Metrics {
  readonly #families = new Map<string, Family>();

  /** Adds to a counter. */
  count(name: string, help: string, by = 1, labels: Labels = {}): void {
    this.#series(name, help, "counter", labels).value += by;
  }

  /** Sets a gauge. */
  set(name: string, help: string, value: number, labels: Labels = {}): void {
    this.#series(name, help, "gauge", labels).value = value;
  }

  /** Observes a duration in ms. */
  observeMs(name: string, help: string, valueMs: number, labels: Labels = {}): void {
    const series = this.#series(name, help, "histogram", labels);
    series.value += valueMs;
    series.count += 1;
    series.buckets ??= bucketsMs.map(() => 0);
    const at = bucketsMs.findIndex((bound) => valueMs <= bound);
    if (at >= 0) series.buckets[at] = (series.buckets[at] as number) + 1;
  }

  /** The value of a counter or gauge, or the sum of a histogram, over all series that have these labels. */
  value(name: string, labels: Labels = {}): number {
    let sum = 0;
    for (const series of this.#families.get(name)?.series.values() ?? []) {
      if (Object.entries(labels).every(([key, value]) => series.labels[key] === value)) sum += series.value;
    }
    return sum;
  }

  /** Prometheus text format. Durations are exported in seconds. */
  text(): string {
    const lines: string[] = [];
    for (const [name, family] of [...this.#families].sort(([a], [b]) => (a < b ? -1 : 1))) {
      lines.push(`# HELP ${name} ${family.help}`, `# TYPE ${name} ${family.kind}`);
      for (const series of family.series.values()) lines.push(...seriesLines(name, family.kind, series));
    }
    return `${lines.join("\n")}\n`;
  }

  #series(name: string, help: string, kind: Family["kind"], labels: Labels): Series {
    let family = this.#families.get(name);
    if (!family) {
      family = { kind, help, series: new Map() };
      this.#families.set(name, family);
    }
    // Ten times a share: JSON would cost more than all else here.
    let key = "";
    for (const label in labels) key += `${label}\n${labels[label]}\n`;
    let series = family.series.get(key);
    if (!series) {
      const full = family.series.size >= seriesMax;
      series = { labels: full ? { overflow: "true" } : labels, value: 0, count: 0, buckets: undefined };
      family.series.set(full ? "overflow" : key, series);
    }
    return series;
  }
}

function labelText(labels: Labels): string {
  const parts = Object.entries(labels).map(
    ([key, value]) => `${key}="${value.replace(/\\/g, "\\\\").replace(/"/g, '\\"').replace(/\n/g, "\\n")}"`,
  );
  return parts.length === 0 ? "" : `{${parts.join(",")}}`;
}

function seriesLines(name: string, kind: Family["kind"], series: Series): string[] {
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
