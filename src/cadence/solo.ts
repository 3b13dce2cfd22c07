/** The solo publisher: a producer commits its own batches, when its policy says so. */
import type { Log } from "../log/index.js";
import type { Policy } from "./policy.js";
import { activeProducers, type Outbox, type Publisher, poolProducers, reportExpired } from "./publisher.js";
import { Wakeup } from "./wakeup.js";

/** Told of every attempt; the source of commit metrics. */
export interface PublisherObserver {
  onAttempt?(attempt: {
    outcome: string;
    batches: number;
    carried: number;
    fragileMs?: number | undefined;
    version: number;
  }): void;
}

const aheadDelayMs = 50;

/** Longest time that a producer which closes tries to say so. */
const farewellMs = 3_000;
const over = Symbol("said, or not said in time");

export class SoloPublisher implements Publisher {
  readonly #log: Log;
  readonly #policy: Policy;
  readonly #observer: PublisherObserver;
  readonly #wakeup = new Wakeup();
  #urgent = false;

  constructor(log: Log, policy: Policy, observer: PublisherObserver = {}) {
    this.#log = log;
    this.#policy = policy;
    this.#observer = observer;
  }

  nudge(urgent: boolean): void {
    this.#urgent ||= urgent;
    this.#wakeup.raise();
  }

  async run(outbox: Outbox, signal: AbortSignal): Promise<void> {
    const { env } = this.#log;
    let attemptedAtMs = Number.NEGATIVE_INFINITY;
    // With several producers the newest manifest known is stale for sure: reading the head first is cheaper than losing.
    let fresh = false;
    for (;;) {
      const pending = outbox.pending();
      if (pending.length === 0) {
        this.#urgent = false;
        await this.#wakeup.wait(env, Number.POSITIVE_INFINITY, signal);
        continue;
      }
      const delayMs = this.#policy.delayMs({
        pending: pending.length,
        sinceAttemptMs: env.monotonic() - attemptedAtMs,
      });
      if (delayMs > 0 && !(this.#urgent && delayMs === Number.POSITIVE_INFINITY)) {
        await this.#wakeup.wait(env, delayMs, signal);
        continue;
      }
      const attempt = await this.#log.attemptBatches(outbox.holder, pending, { kind: "own", signal, fresh });
      attemptedAtMs = env.monotonic();
      fresh = activeProducers(attempt.manifest) > 1;
      this.#policy.learn({
        outcome: attempt.outcome,
        fragileMs: attempt.fragileMs,
        activeProducers: poolProducers(attempt.manifest),
      });
      this.#observer.onAttempt?.({
        outcome: attempt.outcome,
        batches: pending.length,
        carried: 0,
        fragileMs: attempt.fragileMs,
        version: attempt.manifest.version,
      });
      await outbox.settle(attempt.manifest);
      reportExpired(outbox, pending, attempt.result?.verdicts);
      if (attempt.result?.verdicts.includes("ahead")) await env.sleep(aheadDelayMs, signal);
    }
  }

  /** One attempt: a producer that loses it counts as one of the pool for a while longer. */
  async leave(outbox: Outbox): Promise<void> {
    const { env, head } = this.#log;
    if (!head.known || head.known.closed) return;
    const stop = new AbortController();
    const limit = env.sleep(farewellMs, stop.signal).catch(() => {});
    const farewell = this.#log.attemptBatches(outbox.holder, [], {
      kind: "leave",
      signal: stop.signal,
      vouchLater: true,
    });
    await Promise.race([farewell.catch(() => {}), limit]);
    stop.abort(over);
  }
}
