/** A producer's events as numbers and spans. */
import type { PublisherObserver } from "../cadence/index.js";
import type { Env } from "../env/index.js";
import { type Metrics, tellSpan } from "../observe/index.js";
import type { ProducerObserver } from "../producer/index.js";

/** Counts commit attempts. */
export function publisherMetrics(metrics: Metrics): PublisherObserver {
  return {
    onAttempt({ outcome, fragileMs }) {
      metrics.count("batchweave_commits_total", "Commit attempts by outcome.", 1, { outcome });
      if (fragileMs !== undefined)
        metrics.observeMs(
          "batchweave_commit_window_seconds",
          "From reading the base to the end of the PUT.",
          fragileMs,
        );
    },
  };
}

/** Batches whose times are kept for a span; one producer has no more in flight. */
const uploadsMax = 4_096;

/** Counts batches; what is in flight and how old the last commit is moves while nothing happens. */
export function producerMetrics(metrics: Metrics, env: Env, producer: string): ProducerObserver {
  let [batches, bytes, lastMs] = [0, 0, env.monotonic()];
  const uploads = new Map<number, { readonly fromMs: number; readonly toMs: number }>();
  const ends = [
    metrics.watch(
      "gauge",
      "batchweave_producer_commit_age_seconds",
      "Since a batch of this producer was last seen committed, or since it was opened.",
      () => (env.monotonic() - lastMs) / 1_000,
    ),
    metrics.watch("gauge", "batchweave_producer_in_flight_batches", "Accepted and not seen committed.", () => batches),
    metrics.watch("gauge", "batchweave_producer_in_flight_bytes", "Bytes of those.", () => bytes),
  ];
  return {
    onAccept: (batch) => {
      // Who had nothing to commit was not late with it.
      if (batches === 0) lastMs = env.monotonic();
      batches++;
      bytes += batch.bytes;
    },
    onUpload: ({ seq, bytes: size, durationMs }) => {
      const toMs = env.now();
      if (uploads.size < uploadsMax) uploads.set(seq, { fromMs: toMs - durationMs, toMs });
      metrics.count("batchweave_uploaded_bytes_total", "Payload bytes uploaded.", size);
      metrics.observeMs("batchweave_upload_seconds", "Time per batch upload.", durationMs);
    },
    onCommit: ({ seq, bytes: size, latencyMs, version }) => {
      batches--;
      bytes -= size;
      lastMs = env.monotonic();
      metrics.count("batchweave_batches_committed_total", "Batches seen committed.");
      metrics.observeMs("batchweave_commit_latency_seconds", "From accepted to seen committed.", latencyMs);
      const toMs = env.now();
      const fromMs = toMs - latencyMs;
      const upload = uploads.get(seq);
      uploads.delete(seq);
      const attributes = { "batchweave.producer": producer, "batchweave.seq": seq };
      tellSpan({
        name: "batchweave.batch",
        fromMs,
        toMs,
        attributes: { ...attributes, "batchweave.bytes": size, "batchweave.version": version },
        parts: upload && [
          { name: "batchweave.queue", fromMs, toMs: Math.max(fromMs, upload.fromMs) },
          { name: "batchweave.upload", ...upload },
          { name: "batchweave.commit", fromMs: Math.min(upload.toMs, toMs), toMs },
        ],
      });
    },
    onEnd: () => {
      for (const end of ends.splice(0)) end();
    },
  };
}
