/** The instruments of OpenTelemetry's API behind a registry. Without a provider there are none, and nothing is spent on them. */
import { type Counter, createNoopMeter, type Gauge, type Histogram, type Meter, metrics } from "@opentelemetry/api";
import type { Labels } from "./metrics.js";

/** The meter of the provider that is registered now; undefined when there is none. */
export function realMeter(): Meter | undefined {
  const meter = metrics.getMeter("batchweave");
  return meter === createNoopMeter() ? undefined : meter;
}

const units: Readonly<Record<string, string>> = { seconds: "s", bytes: "By" };

/**
 * `batchweave_store_sent_bytes_total` as OpenTelemetry's conventions have it: `batchweave.store.sent`, unit `By`. What is counted is a unit in braces, which
 * Prometheus leaves out of the name: with `1` it would call a gauge a ratio.
 */
function otelName(name: string): { readonly name: string; readonly unit: string } {
  const parts = name.replace(/_total$/, "").split("_");
  const unit = units[parts.at(-1) as string];
  return { name: (unit === undefined ? parts : parts.slice(0, -1)).join("."), unit: unit ?? `{${parts.at(-1)}}` };
}

/** Makes each instrument once. */
export class OtelInstruments {
  readonly #meter: Meter;
  readonly #counters = new Map<string, Counter>();
  readonly #gauges = new Map<string, Gauge>();
  readonly #histograms = new Map<string, Histogram>();
  readonly #watched = new Set<string>();

  constructor(meter: Meter) {
    this.#meter = meter;
  }

  add(name: string, help: string, by: number, labels: Labels): void {
    once(this.#counters, name, () => this.#meter.createCounter(...named(name, help))).add(by, labels);
  }

  set(name: string, help: string, value: number, labels: Labels): void {
    once(this.#gauges, name, () => this.#meter.createGauge(...named(name, help))).record(value, labels);
  }

  record(name: string, help: string, seconds: number, labels: Labels): void {
    once(this.#histograms, name, () => this.#meter.createHistogram(...named(name, help))).record(seconds, labels);
  }

  /** `read` gives all series of the family. */
  watch(
    kind: "counter" | "gauge",
    name: string,
    help: string,
    read: () => readonly { readonly value: number; readonly labels: Labels }[],
  ): void {
    if (this.#watched.has(name)) return;
    this.#watched.add(name);
    const [called, options] = named(name, help);
    const instrument =
      kind === "counter"
        ? this.#meter.createObservableCounter(called, options)
        : this.#meter.createObservableGauge(called, options);
    instrument.addCallback((result) => {
      for (const { value, labels } of read()) result.observe(value, labels);
    });
  }
}

function named(name: string, description: string): [name: string, options: { unit: string; description: string }] {
  const { name: called, unit } = otelName(name);
  return [called, { unit, description }];
}

function once<T>(known: Map<string, T>, name: string, make: () => T): T {
  let found = known.get(name);
  if (found === undefined) {
    found = make();
    known.set(name, found);
  }
  return found;
}
