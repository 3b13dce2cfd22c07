/** A consumer's events as numbers and spans. The headline is the exposed data wait: how long a rank stood still for data. */
import type { ConsumerObserver } from "../consumer/index.js";
import type { Env } from "../env/index.js";
import type { Grid } from "../format/index.js";
import { type Metrics, tellSpan } from "../observe/index.js";

/** Counts what a consumer tells, once `begin` has said which rank it is. */
export function consumerMetrics(
  namespace: Metrics,
  env: Env,
  grid: Grid,
): ConsumerObserver & { begin(rank: number, group: string): void; end(): void } {
  let metrics = namespace;
  let [waitedMs, sinceMs, place]: [number, number | undefined, string] = [0, undefined, ""];
  const waitingMs = (): number => (sinceMs === undefined ? 0 : env.monotonic() - sinceMs);
  const ends: (() => void)[] = [];
  return {
    begin(rank, group) {
      place = String(rank);
      metrics = namespace.with({ role: "rank", rank: place, group });
      ends.push(
        metrics.watch(
          "counter",
          "batchweave_data_wait_seconds_total",
          "Exposed data wait: how long next() has blocked, the wait of this moment included.",
          () => (waitedMs + waitingMs()) / 1_000,
        ),
        metrics.watch(
          "gauge",
          "batchweave_data_waiting_seconds",
          "How long next() has blocked by now; 0 while the trainer computes.",
          () => waitingMs() / 1_000,
        ),
      );
    },
    end() {
      for (const end of ends.splice(0)) end();
    },
    onNext() {
      sinceMs = env.monotonic();
    },
    onNextEnd() {
      waitedMs += waitingMs();
      sinceMs = undefined;
    },
    onShare({ iteration, bytes, waitMs, readMs, lagRows, step }) {
      metrics.count("batchweave_shares_total", "Shares handed to the trainer.");
      metrics.count("batchweave_share_bytes_total", "Bytes handed to the trainer.", bytes);
      metrics.observeMs("batchweave_share_wait_seconds", "How long next() blocked for a share.", waitMs);
      metrics.observeMs("batchweave_share_read_seconds", "Time to read a share, most of it ahead of time.", readMs);
      metrics.set("batchweave_lag_rows", "Visible rows that this consumer has not taken yet.", lagRows);
      metrics.set(
        "batchweave_lag_steps",
        "Visible steps that this consumer has not taken yet.",
        Math.floor(lagRows / grid.rows),
      );
      metrics.set("batchweave_rank_step", "First step of this rank's next share.", step);
      const toMs = env.now();
      tellSpan({
        name: "batchweave.share",
        fromMs: toMs - Math.max(waitMs, readMs),
        toMs,
        attributes: { "batchweave.rank": Number(place), "batchweave.iteration": iteration, "batchweave.bytes": bytes },
        parts: [
          // It was read ahead of time: when it ended is not known, but not after it was handed out.
          {
            name: "batchweave.read",
            fromMs: toMs - Math.max(waitMs, readMs),
            toMs: toMs - Math.max(0, waitMs - readMs),
          },
          { name: "batchweave.wait", fromMs: toMs - waitMs, toMs },
        ],
      });
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
