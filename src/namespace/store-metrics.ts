/** What a store is asked and how it answers: numbers, their price, and whether it can be reached at all. */
import type { Env } from "../env/index.js";
import type { Metrics } from "../observe/index.js";
import type { StoreObserver, StoreOp } from "../store/index.js";

/** Dollars a thousand requests: list prices of the standard class in a cheap region. docs/operate/cost.md says where they stand. Deleting is free. */
const prices: Readonly<Record<string, { readonly write: number; readonly read: number }>> = {
  s3: { write: 0.005, read: 0.0004 },
  gs: { write: 0.005, read: 0.0004 },
  az: { write: 0.0055, read: 0.00044 },
};

function priceOf(uri: string, op: StoreOp): number {
  const price = prices[/^[a-z0-9]+/.exec(uri)?.[0] ?? ""];
  if (!price || op === "delete") return 0;
  return (op === "get" || op === "getRange" ? price.read : price.write) / 1_000;
}

/** A call that takes longer than this while no other succeeds: the store does not answer. */
const silentMsMax = 4_000;
/** Outcomes that say nothing about the store: it answered, or it was not waited for. */
const unreachable = "STORE_UNAVAILABLE";

/** Whether a store answers, as its calls tell. */
export class StoreHealth {
  readonly #env: Env;
  readonly #begun = new Map<StoreOp, number[]>();
  /** Since when every answer was a failure. */
  #failingSinceMs: number | undefined;
  #answeredAtMs: number;

  constructor(env: Env) {
    this.#env = env;
    this.#answeredAtMs = env.monotonic();
  }

  /** For how long the store has not answered, in ms; 0 while it does, and while no call is made. */
  get unreachableMs(): number {
    const nowMs = this.#env.monotonic();
    if (this.#failingSinceMs !== undefined) return nowMs - this.#failingSinceMs;
    const oldest = Math.min(...[...this.#begun.values()].map((list) => list[0] ?? Number.POSITIVE_INFINITY));
    const silentMs = nowMs - Math.max(oldest, this.#answeredAtMs);
    return silentMs >= silentMsMax ? silentMs : 0;
  }

  /** Calls that have not ended. */
  get inFlight(): number {
    let sum = 0;
    for (const list of this.#begun.values()) sum += list.length;
    return sum;
  }

  begin(op: StoreOp): void {
    const list = this.#begun.get(op);
    if (list) list.push(this.#env.monotonic());
    else this.#begun.set(op, [this.#env.monotonic()]);
  }

  end(op: StoreOp, outcome: string, durationMs: number): void {
    const nowMs = this.#env.monotonic();
    // The one that began when this one did; which is which does not matter.
    const list = this.#begun.get(op) ?? [];
    const at = list.findIndex((begunMs) => begunMs >= nowMs - durationMs - 0.5);
    list.splice(at < 0 ? 0 : at, 1);
    if (outcome === "aborted") return;
    if (outcome === unreachable || outcome === "unknown") {
      this.#failingSinceMs ??= nowMs - durationMs;
      return;
    }
    this.#failingSinceMs = undefined;
    this.#answeredAtMs = nowMs;
  }
}

/** Counts what is asked of the store of `uri`. */
export function storeMetrics(
  metrics: Metrics,
  env: Env,
  uri: string,
): StoreObserver & { readonly health: StoreHealth } {
  const health = new StoreHealth(env);
  metrics.watch("gauge", "batchweave_store_in_flight_requests", "Requests that have not ended.", () => health.inFlight);
  metrics.watch(
    "gauge",
    "batchweave_store_unreachable_seconds",
    "For how long the store has not answered; 0 while it does.",
    () => health.unreachableMs / 1_000,
  );
  return {
    health,
    onBegin: (op) => health.begin(op),
    onCall({ op, bytesIn, bytesOut, durationMs, outcome }) {
      health.end(op, outcome, durationMs);
      metrics.count("batchweave_store_requests_total", "Requests to the object store.", 1, { op, outcome });
      metrics.count("batchweave_store_sent_bytes_total", "Bytes sent to the object store.", bytesOut);
      metrics.count("batchweave_store_received_bytes_total", "Bytes received from the object store.", bytesIn);
      metrics.observeMs("batchweave_store_request_seconds", "Time per request.", durationMs, { op });
      const price = priceOf(uri, op);
      if (price > 0) metrics.count("batchweave_store_cost_dollars_total", "List price of the requests.", price, { op });
    },
  };
}
