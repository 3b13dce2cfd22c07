/** A consumer's events as numbers. The headline is the exposed data wait: how long a rank stood still for data. */
import type { ConsumerObserver } from "../consumer/index.js";
import type { Grid } from "../format/index.js";
import type { Metrics } from "../observe/index.js";

/** Counts what a consumer tells. */
export function consumerMetrics(metrics: Metrics, grid: Grid): ConsumerObserver {
  return {
    onShare({ bytes, waitMs, readMs, lagRows }) {
      metrics.count("batchweave_shares_total", "Shares handed to the trainer.");
      metrics.count("batchweave_share_bytes_total", "Bytes handed to the trainer.", bytes);
      metrics.observeMs("batchweave_data_wait_seconds", "Exposed data wait: how long next() blocked.", waitMs);
      metrics.observeMs("batchweave_share_read_seconds", "Time to read a share, most of it ahead of time.", readMs);
      metrics.set("batchweave_lag_rows", "Visible rows that this consumer has not taken yet.", lagRows);
      metrics.set(
        "batchweave_lag_steps",
        "Visible steps that this consumer has not taken yet.",
        Math.floor(lagRows / grid.rows),
      );
    },
    onPoll({ version, moved, end }) {
      metrics.count("batchweave_polls_total", "Looks for a newer manifest.", 1, { moved: String(moved) });
      metrics.set("batchweave_head_version", "Newest manifest version seen.", version);
      metrics.set("batchweave_end_step", "First step that is not visible yet.", end);
    },
    onWait() {
      metrics.count("batchweave_waits_total", "Times a consumer began to wait for a step that was not there.");
    },
  };
}
