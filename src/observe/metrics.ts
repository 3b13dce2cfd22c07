/**
 * Counters, gauges and histograms. Every room writes, only people and scrapers read.
 *
 * Names are those of Prometheus. The same numbers go to OpenTelemetry's API, under the same names with dots, without unit and `_total`, when a provider
 * was registered there before the registry is made: `batchweave_store_request_seconds` is `batchweave.store.request`, unit `s`.
 */
import type { Meter } from "@opentelemetry/api";
import { OtelInstruments, realMeter } from "./otel-instruments.js";
import { seriesLines } from "./prometheus-text.js";

/** Label values of one series. */
export type Labels = Readonly<Record<string, string>>;

/** What a family is. */
export type MetricKind = "counter" | "gauge" | "histogram";

/** One value that is read at each scrape, with labels of its own. */
export type Watched = number | readonly (readonly [value: number, labels: Labels])[];

interface Family {
  readonly kind: MetricKind;
  readonly help: string;
  readonly series: Map<string, Series>;
  readonly watches: Set<{ readonly labels: Labels; readonly read: () => Watched }>;
}

/** One series of a family. */
export interface Series {
  readonly labels: Labels;
  value: number;
  count: number;
  /** Histograms: counts per bucket of {@link bucketsMs}. */
  buckets: number[] | undefined;
}

/** Upper bounds in ms of every histogram. */
export const bucketsMs: readonly number[] = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000,
];

/** Series of one family at most; a label with unbounded values must not eat the memory. */
const seriesMax = 1_000;

interface Shared {
  readonly families: Map<string, Family>;
  readonly otel: OtelInstruments | undefined;
}

/** A registry. One per process or per test; nothing is global. */
export class Metrics {
  readonly #shared: Shared;
  readonly #labels: Labels;
  readonly #prefix: string;

  /** `meter`: where OpenTelemetry's instruments are made. Default: that of the provider that is registered now, if any. */
  constructor(meter?: Meter | undefined, from?: { readonly shared: Metrics; readonly labels: Labels } | undefined) {
    const found = from ? undefined : (meter ?? realMeter());
    this.#shared = from ? from.shared.#shared : { families: new Map(), otel: found && new OtelInstruments(found) };
    this.#labels = from?.labels ?? {};
    this.#prefix = keyOf("", this.#labels);
  }

  /** The same registry, with labels that everything written through it gets. */
  with(labels: Labels): Metrics {
    return new Metrics(undefined, { shared: this, labels: { ...this.#labels, ...labels } });
  }

  /** Adds to a counter. */
  count(name: string, help: string, by = 1, labels: Labels = none): void {
    const series = this.#series(name, help, "counter", labels);
    series.value += by;
    this.#shared.otel?.add(name, help, by, series.labels);
  }

  /** Sets a gauge. */
  set(name: string, help: string, value: number, labels: Labels = none): void {
    const series = this.#series(name, help, "gauge", labels);
    series.value = value;
    this.#shared.otel?.set(name, help, value, series.labels);
  }

  /** Observes a duration in ms. */
  observeMs(name: string, help: string, valueMs: number, labels: Labels = none): void {
    const series = this.#series(name, help, "histogram", labels);
    series.value += valueMs;
    series.count += 1;
    series.buckets ??= bucketsMs.map(() => 0);
    const at = bucketsMs.findIndex((bound) => valueMs <= bound);
    if (at >= 0) series.buckets[at] = (series.buckets[at] as number) + 1;
    this.#shared.otel?.record(name, help, valueMs / 1_000, series.labels);
  }

  /**
   * A value that is asked for at each scrape, so that it moves while its owner waits. The result ends it; a counter then keeps what it
   * said last.
   */
  watch(kind: "counter" | "gauge", name: string, help: string, read: () => Watched): () => void {
    const family = this.#family(name, help, kind);
    const watch = { labels: this.#labels, read };
    family.watches.add(watch);
    this.#shared.otel?.watch(kind, name, help, () => readings(family));
    return () => {
      if (!family.watches.delete(watch) || kind === "gauge") return;
      for (const { labels, value } of readingsOf(watch))
        this.#seriesOf(family, labels, keyOf("", labels)).value += value;
    };
  }

  /** The value of a counter or gauge, or the sum in ms of a histogram, over all series that have these labels. */
  value(name: string, labels: Labels = none): number {
    const family = this.#shared.families.get(name);
    let sum = 0;
    for (const series of family ? readings(family) : []) {
      if (Object.entries(labels).every(([key, value]) => series.labels[key] === value)) sum += series.value;
    }
    return sum;
  }

  /** Prometheus text format. Durations are exported in seconds. */
  text(): string {
    const lines: string[] = [];
    for (const [name, family] of [...this.#shared.families].sort(([a], [b]) => (a < b ? -1 : 1))) {
      lines.push(`# HELP ${name} ${family.help}`, `# TYPE ${name} ${family.kind}`);
      for (const series of readings(family)) lines.push(...seriesLines(name, family.kind, series));
    }
    return `${lines.join("\n")}\n`;
  }

  #family(name: string, help: string, kind: MetricKind): Family {
    let family = this.#shared.families.get(name);
    if (!family) {
      family = { kind, help, series: new Map(), watches: new Set() };
      this.#shared.families.set(name, family);
    }
    return family;
  }

  #series(name: string, help: string, kind: MetricKind, labels: Labels): Series {
    return this.#seriesOf(this.#family(name, help, kind), labels, keyOf(this.#prefix, labels));
  }

  #seriesOf(family: Family, labels: Labels, key: string): Series {
    let series = family.series.get(key);
    if (series) return series;
    const full = family.series.size >= seriesMax;
    // Those that are too many share one series.
    series = full ? family.series.get(overflow) : undefined;
    if (!series) {
      const all = full ? { overflow: "true" } : { ...this.#labels, ...labels };
      series = { labels: all, value: 0, count: 0, buckets: undefined };
      family.series.set(full ? overflow : key, series);
    }
    return series;
  }
}

const none: Labels = {};
const overflow = "overflow";

/** Ten times a share: JSON would cost more than all else here. */
function keyOf(prefix: string, labels: Labels): string {
  let key = prefix;
  for (const label in labels) key += `${label}\n${labels[label]}\n`;
  return key;
}

/** What was written, and what is read now; a counter of both is their sum. */
function readings(family: Family): readonly Series[] {
  if (family.watches.size === 0) return [...family.series.values()];
  const all = new Map<string, Series>();
  const add = (series: Series): void => {
    const key = keyOf("", series.labels);
    const known = all.get(key);
    if (known) known.value += series.value;
    else all.set(key, { ...series });
  };
  for (const series of family.series.values()) add(series);
  for (const watch of family.watches) readingsOf(watch).forEach(add);
  return [...all.values()].slice(0, 2 * seriesMax);
}

function readingsOf({ labels, read }: { readonly labels: Labels; readonly read: () => Watched }): Series[] {
  const found = read();
  const list = typeof found === "number" ? [[found, none] as const] : found;
  return list.map(([value, own]) => ({ labels: { ...labels, ...own }, value, count: 0, buckets: undefined }));
}
