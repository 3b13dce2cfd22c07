/** What producers wait for and what reclaim does, as numbers. */
import type { LagObserver, ReclaimLoopObserver, ReclaimReport } from "../lifecycle/index.js";
import type { Metrics } from "../observe/index.js";
import type { Vitals } from "./vitals.js";

/** Counts a producer's waits for a checkpoint, and tells of each. */
export function lagMetrics(metrics: Metrics, tell?: (message: string) => void): LagObserver {
  const waiting = (steps: number): void =>
    metrics.set("batchweave_producer_lag_wait_steps", "Steps ahead of the checkpoints while waiting, else 0.", steps);
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
      metrics.set(
        "batchweave_boundary_lag_seconds",
        "Age of the oldest version not yet announced.",
        report.lagMs / 1_000,
      );
      metrics.set("batchweave_trim_step", "First step still promised.", report.trim.after);
    },
    onFailure() {
      metrics.count("batchweave_reclaims_total", "Reclaim runs by outcome.", 1, { outcome: "failed" });
    },
  };
}

/** What the state of a log says, for programs that look at it again and again. */
export function logMetrics(metrics: Metrics, { info, groups, producers, commitAgeMs }: Vitals): void {
  metrics.set("batchweave_head_version", "Newest manifest version seen.", info.version);
  metrics.set("batchweave_end_step", "First step that is not visible yet.", info.steps.end);
  metrics.set("batchweave_trim_step", "First step still promised.", info.steps.trim);
  metrics.set("batchweave_log_closed", "1 when the log has ended, else 0.", info.closed ? 1 : 0);
  metrics.set("batchweave_log_commit_age_seconds", "Age of the newest commit of batches.", commitAgeMs / 1_000);
  metrics.set("batchweave_log_waiting_batches", "Batches behind a lane's missing step.", info.waiting?.batches ?? 0);
  for (const { group, lagSteps, ageMs } of groups) {
    metrics.set("batchweave_group_lag_steps", "Steps from a group's newest checkpoint to the end.", lagSteps, {
      group,
    });
    if (ageMs !== undefined)
      metrics.set("batchweave_group_checkpoint_age_seconds", "Age of a group's newest checkpoint.", ageMs / 1_000, {
        group,
      });
  }
  for (const { id, commitAgeMs: ageMs, hasLeft } of producers) {
    if (ageMs === undefined) continue;
    // Who closed has nothing to be late with.
    const seconds = hasLeft ? 0 : ageMs / 1_000;
    metrics.set(
      "batchweave_log_producer_commit_age_seconds",
      "Age of a producer's last commit; 0 once it has closed.",
      seconds,
      {
        producer: id,
      },
    );
  }
}
