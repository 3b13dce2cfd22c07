/** What producers wait for and what reclaim does, as numbers. */
import type { LagObserver, ReclaimLoopObserver, ReclaimReport } from "../lifecycle/index.js";
import type { Metrics } from "../observe/index.js";

/** Counts a producer's waits for a checkpoint, and tells of each. */
export function lagMetrics(metrics: Metrics, producer: string, tell?: (message: string) => void): LagObserver {
  const waiting = (steps: number): void =>
    metrics.set("batchweave_producer_lag_wait_steps", "Steps ahead of the checkpoints while waiting, else 0.", steps, {
      producer,
    });
  return {
    onLagWait: ({ lag, message }) => {
      tell?.(message);
      metrics.count("batchweave_producer_lag_waits_total", "Times a producer had to wait for a checkpoint.");
      waiting(lag);
    },
    onLagResume: ({ waitedMs }) => {
      metrics.observeMs("batchweave_producer_lag_wait_seconds", "Time spent waiting for a checkpoint.", waitedMs);
      waiting(0);
    },
  };
}

/** Counts what a reclaimer deletes, and how far the boundary is behind. */
export function reclaimMetrics(metrics: Metrics): Required<Pick<ReclaimLoopObserver, "onRun" | "onFailure">> {
  return {
    onRun(report: ReclaimReport) {
      metrics.count("batchweave_reclaims_total", "Reclaim runs by outcome.", 1, { outcome: "done" });
      for (const kind of ["batches", "uploads", "index", "manifests", "intents"] as const) {
        const { objects, bytes } = report[kind];
        metrics.count("batchweave_reclaimed_objects_total", "Objects deleted by reclaim.", objects, { kind });
        metrics.count("batchweave_reclaimed_bytes_total", "Bytes deleted by reclaim.", bytes, { kind });
      }
      metrics.set(
        "batchweave_boundary_lag_versions",
        "Versions between the boundary and the head.",
        report.lagVersions,
      );
      metrics.set("batchweave_boundary_lag_ms", "Age of the oldest version not yet announced, in ms.", report.lagMs);
      metrics.set("batchweave_trim_step", "First step still promised.", report.trim.after);
    },
    onFailure() {
      metrics.count("batchweave_reclaims_total", "Reclaim runs by outcome.", 1, { outcome: "failed" });
    },
  };
}
