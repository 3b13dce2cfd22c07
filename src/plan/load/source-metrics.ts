/** What sources cost, as metrics that are read at each scrape. */
import type { Labels, Metrics } from "../../index.js";
import type { SourceFigures } from "./source-figures.js";

/** Watches the figures until it is disposed. */
export function sourceMetrics(metrics: Metrics, figures: () => readonly SourceFigures[]): Disposable {
  const watch = (
    kind: "counter" | "gauge",
    name: string,
    help: string,
    of: (f: SourceFigures) => number,
  ): (() => void) =>
    metrics.watch(kind, `batchweave_source_${name}`, help, () =>
      figures().map((one): [number, Labels] => [of(one), { source: one.source }]),
    );
  const ends = [
    watch("counter", "samples_total", "Samples used.", (f) => f.samples),
    watch("counter", "tokens_total", "Tokens used.", (f) => f.tokens),
    watch("counter", "read_bytes_total", "Bytes read from shards.", (f) => f.readBytes),
    watch(
      "counter",
      "read_seconds_total",
      "Time until shards gave samples, summed over lanes.",
      (f) => f.readMs / 1_000,
    ),
    watch(
      "counter",
      "transform_seconds_total",
      "Time in transforms, summed over threads.",
      (f) => f.transformMs / 1_000,
    ),
    watch("counter", "wait_seconds_total", "Time that batches waited for a sample of it.", (f) => f.waitMs / 1_000),
    watch("gauge", "waiting_seconds", "For how long a batch waits for a sample now.", (f) => f.waitingMs / 1_000),
    watch("gauge", "buffered_bytes", "Bytes of samples that are ready.", (f) => f.bufferedBytes),
    watch("counter", "faults_total", "Samples that were left out.", (f) => f.faults),
  ];
  return {
    [Symbol.dispose]: () => {
      for (const end of ends) end();
    },
  };
}
