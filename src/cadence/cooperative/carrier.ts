/** The carrier: lists the intents, stages the batches of all, PUTs; vouches for its versions now and then; keeps a pace. */
import type { Manifest } from "../../format/index.js";
import { type Intents, type Log, listIntents, spentIntents } from "../../log/index.js";
import { activeProducers, isCarriers, type Outbox, reportExpired } from "../publisher.js";
import type { PublisherObserver } from "../solo.js";
import { CycleRate, type Pace, paceOf } from "./pace.js";
import type { Urgency } from "./urgency.js";

/** Spent intents are removed before they are many when so many batches share the cost of it: servers look at every intent that a LIST shows. */
const sweptIntentsMin = 64;
const sweptBatches = 750;
const deleteMax = 1_000;

export class Carrier {
  readonly #log: Log;
  readonly #urgency: Urgency;
  readonly #observer: PublisherObserver;
  readonly #rate = new CycleRate();
  /** The newest of this carrier's own versions that it has not vouched for yet. */
  #chain: Manifest | undefined;
  #vouchedAtMs = 0;
  /** Batches committed since intents were removed. */
  #unsweptBatches = 0;
  /** What the last listing showed, until its spent ones are being removed. */
  #listed: Intents | undefined;
  #listedAtMs = Number.NEGATIVE_INFINITY;
  /** The same, kept: what it has need not be parsed again. */
  #lastListing: Intents | undefined;
  #isSweeping = false;
  #idleCycles = 0;

  constructor(log: Log, urgency: Urgency, observer: PublisherObserver) {
    this.#log = log;
    this.#urgency = urgency;
    this.#observer = observer;
  }

  /** Its last cycle found nothing to commit. */
  get isIdle(): boolean {
    return this.#idleCycles > 0;
  }

  /** It was a follower until now. */
  begin(): void {
    this.#chain = undefined;
    this.#listed = undefined;
    this.#idleCycles = 0;
    this.#vouchedAtMs = this.#log.env.monotonic();
  }

  /** One cycle, and the pause after it. "yield": another carrier came first. */
  async turn(outbox: Outbox, signal: AbortSignal): Promise<"stay" | "yield"> {
    const { env, head } = this.#log;
    const begun = env.monotonic();
    const pace = paceOf(this.#log.roundTrip.ms);
    const urgent = this.#urgency.take();
    const base = this.#chain ?? (await head.newest({ signal }));
    const isAlone = activeProducers(base) === 1;
    const intents = isAlone && begun < this.#listedAtMs + pace.aloneListMs ? undefined : await this.#list(signal);
    const own = outbox.pending();
    const attempt = await this.#log.attemptBatches(outbox.holder, own, {
      kind: "carrier",
      signal,
      from: this.#chain,
      fresh: this.#chain === undefined && !isAlone,
      vouchLater: true,
      intents,
    });
    const carried = attempt.result?.carried ?? 0;
    this.#observer.onAttempt?.({
      outcome: attempt.outcome,
      batches: own.length,
      carried,
      fragileMs: attempt.fragileMs,
      version: attempt.manifest.version,
    });
    reportExpired(outbox, own, attempt.result?.verdicts);
    if (attempt.outcome === "created") {
      this.#chain = attempt.manifest;
      const staged = attempt.result?.verdicts.filter((v) => v === "staged").length ?? 0;
      this.#unsweptBatches += carried + staged;
      this.#rate.learn(carried + staged, env.monotonic() - begun, env.monotonic());
      this.#idleCycles = 0;
    } else if (attempt.outcome === "nothing") {
      // What is in already, carried by another producer or committed before an answer was lost, is acknowledged here. A version of an
      // own chain is not verified yet; vouching for it comes below.
      if (this.#chain === undefined) await outbox.settle(attempt.manifest);
      this.#idleCycles++;
    } else {
      this.#chain = undefined;
      this.#urgency.raise(urgent, false);
      await outbox.settle(attempt.manifest);
      return attempt.outcome === "lost" && isCarriers(attempt.manifest) ? "yield" : "stay";
    }
    await this.#vouch(outbox, pace, signal, isAlone || urgent || outbox.isAwaited());
    // What cannot be staged on a chain of our own (a lane that is too far ahead) waits for others' versions, which it never shows.
    if (attempt.outcome === "nothing" && own.length > 0) this.#chain = undefined;
    await this.#pause(outbox, begun, pace, isAlone, signal);
    return "stay";
  }

  /** Its last commit, which says so and carries once more. False: another commit came first, or nothing can be said. */
  async leave(outbox: Outbox, signal: AbortSignal): Promise<boolean> {
    const base = this.#chain ?? (await this.#log.head.newest({ signal }));
    const intents = activeProducers(base) === 1 ? undefined : await this.#list(signal);
    const options = { kind: "leave", signal, from: this.#chain, vouchLater: true, intents } as const;
    const { outcome } = await this.#log.attemptBatches(outbox.holder, [], options);
    return outcome === "created" || outcome === "nothing";
  }

  async #list(signal: AbortSignal): Promise<Intents> {
    this.#listedAtMs = this.#log.env.monotonic();
    const intents = await listIntents(this.#log.store, this.#log.spec.uuid, { signal, last: this.#lastListing });
    this.#listed = intents;
    this.#lastListing = intents;
    return intents;
  }

  /** One look vouches for the whole chain of own versions; only then is anything acknowledged or an intent removed. */
  async #vouch(outbox: Outbox, pace: Pace, signal: AbortSignal, atOnce: boolean): Promise<void> {
    const chain = this.#chain;
    if (!chain) return;
    const spent = this.#listed ? spentIntents(this.#listed, chain.producers) : [];
    const isLong =
      spent.length >= pace.spentIntentsMax || (spent.length >= sweptIntentsMin && this.#unsweptBatches >= sweptBatches);
    if (!atOnce && !isLong && this.#log.env.monotonic() < this.#vouchedAtMs + pace.vouchMs) return;
    this.#vouchedAtMs = this.#log.env.monotonic();
    const { head } = this.#log;
    if (!(await head.vouch(chain, { signal }))) {
      this.#chain = undefined;
      await outbox.settle(await head.load({ signal }));
      return;
    }
    await outbox.settle(chain);
    // They only make the LIST longer: many are removed at a time.
    if (!isLong) return;
    this.#unsweptBatches = 0;
    this.#listed = undefined;
    this.#sweep(spent, signal);
  }

  /** Beside the commits: no commit waits for it, and what fails is found in the next LIST. */
  #sweep(spent: readonly string[], signal: AbortSignal): void {
    if (this.#isSweeping) return;
    this.#isSweeping = true;
    const pages = Array.from({ length: Math.ceil(spent.length / deleteMax) }, (_, i) =>
      this.#log.store.delete(spent.slice(i * deleteMax, (i + 1) * deleteMax), { signal, hint: true }),
    );
    void Promise.allSettled(pages).then(() => {
      this.#isSweeping = false;
    });
  }

  async #pause(outbox: Outbox, begunMs: number, pace: Pace, isAlone: boolean, signal: AbortSignal): Promise<void> {
    const { env } = this.#log;
    const isPending = outbox.pending().length > 0;
    const intervalMs = this.#rate.intervalMs(pace, isAlone, this.#idleCycles);
    // Alone and idle there is nothing to list: sleep until the next batch comes.
    const waitMs =
      isAlone && this.isIdle && !isPending ? Number.POSITIVE_INFINITY : begunMs + intervalMs - env.monotonic();
    // A caller may be waiting for batches that are still being uploaded: their upload will wake this.
    const hurry = this.#urgency.isUrgent && !this.isIdle && isPending;
    if (waitMs > 0 && !hurry) await this.#urgency.wait(env, waitMs, signal);
    else signal.throwIfAborted();
  }
}
