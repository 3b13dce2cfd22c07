/**
 * Cooperative commit: one producer at a time carries everybody's batches, without an election.
 *
 * Whoever commits goes on committing (the *carrier*): it knows the head, so its commits rarely conflict. All others (*followers*)
 * publish intents of their batches and look at the log at leisure. A follower whose batch was not carried in time commits itself,
 * carrying everybody, and is the carrier from then on; a carrier that loses to another carrier follows. Nothing depends on who
 * believes to be the carrier: two of them only conflict. docs/design/0004-cooperative-commit.md derives the numbers.
 */
import type { Descriptor, Manifest } from "../format/index.js";
import { type Intents, type Log, listIntents, publishIntents, spentIntents, spreadMs } from "../log/index.js";
import { activeProducers, type Outbox, type Publisher, poolProducers, reportExpired } from "./publisher.js";
import type { PublisherObserver } from "./solo.js";
import { Wakeup } from "./wakeup.js";

/** Settings of the cooperative cadence. */
export interface CooperativeSettings {
  /** How long a follower lets its oldest batch go unconfirmed before it looks; drawn between half and one and a half times this. */
  readonly confirmMs?: number | undefined;
  /** How long a carrier has for a published batch before its owner takes over. */
  readonly patienceMs?: number | undefined;
  /** Longest time between two commits of the carrier while there is something to carry. */
  readonly intervalMsMax?: number | undefined;
  readonly intervalMsMin?: number | undefined;
  /** Requests of the carrier per batch it may spend on shorter intervals. */
  readonly requestBudget?: number | undefined;
}

type Resolved = { readonly [K in keyof CooperativeSettings]-?: number };

const defaults: Resolved = {
  confirmMs: 100_000,
  patienceMs: 1_500,
  intervalMsMax: 690,
  intervalMsMin: 100,
  requestBudget: 0.29,
};
/** LIST and PUT every cycle, a look and a delete now and then. */
const requestsPerCycle = 2.3;
/** Share of the pace that is not spent committing: what openings and checkpoints get in by. */
const paceFactor = 1.25;
const aloneIntervalMs = 200;
/** How often a producer that believes to be alone looks for openings: somebody who commits all the time leaves no gap for them. */
const aloneListMs = 1_000;
/** The window of a commit, roughly: over so long for each doubling of their number followers spread before they take over. */
const windowMs = 500;
/** Batches that come faster than this share intents, unless somebody waits for them: then half the carrier's shortest interval. */
const announceMs = 150;
const urgentAnnounceMs = 50;
/** The first look of a follower that somebody waits for; each one in vain makes the delay longer, up to half its patience. */
const urgentLookMs = 50;
const urgentLookGrowth = 1.5;
/** How many times longer a follower waits while it sees that somebody carries. */
const busyPatience = 6;
/** How often each of a few followers looks, times the square of their number: about 10 s until somebody notices that the carrier died. */
const smallPoolLookMs = 2_100;
const idleIntervalMsMax = 1_000;
/** A chain of own versions is vouched for this often at least, and at once when it spent so many intents. */
const vouchMs = 60_000;
const vouchIntents = 500;
/** Or fewer, when so many batches share the cost of it: servers look at every intent that a LIST shows, spent or not. */
const vouchIntentsMin = 64;
const vouchBatches = 750;
/** Weight of the newest cycle in the moving averages. One that took long says little about the next: its time counts for less. */
const alpha = 0.2;
const alphaFaster = 0.5;
const alphaSlower = 0.1;
const deleteMax = 1_000;

export class CooperativePublisher implements Publisher {
  readonly #log: Log;
  readonly #observer: PublisherObserver;
  readonly #settings: Resolved;
  readonly #wakeup = new Wakeup();
  /** When each batch's intent was published. Uploading again makes a new descriptor, which needs an intent of its own. */
  readonly #announced = new Map<Descriptor, number>();
  #announcedAtMs = Number.NEGATIVE_INFINITY;
  /** Waits until batches that came meanwhile are announced together. */
  #announcing = false;
  #urgent = false;
  #carrying = false;
  /** The newest of this carrier's own versions that nobody has vouched for yet. */
  #chain: Manifest | undefined;
  #vouchedAtMs = 0;
  /** Batches committed since then. */
  #unvouchedBatches = 0;
  /** What the last listing showed, until its spent ones are being removed. */
  #listed: Intents | undefined;
  #listedAtMs = Number.NEGATIVE_INFINITY;
  /** The same, kept: what it has need not be parsed again. */
  #lastListing: Intents | undefined;
  /** When this follower takes over, unless its next look shows that somebody else did. */
  #takeOverAtMs: number | undefined;
  /** When a look last showed that somebody carries. */
  #carrierSeenAtMs = Number.NEGATIVE_INFINITY;
  #lookedAtMs = Number.NEGATIVE_INFINITY;
  #lookDelayMs = 0;
  #looksInVain = 0;
  #tauMs = 0;
  #batchesPerMs = 0;
  #sweeping = false;
  #idleCycles = 0;
  #cycleEndedAtMs: number | undefined;

  constructor(log: Log, settings: CooperativeSettings = {}, observer: PublisherObserver = {}) {
    this.#log = log;
    this.#observer = observer;
    this.#settings = {
      ...defaults,
      ...(Object.fromEntries(Object.entries(settings).filter(([, v]) => v !== undefined)) as Partial<Resolved>),
    };
  }

  nudge(urgent: boolean): void {
    // Only what changes the next deadline wakes the loop: a carrier keeps its pace while batches pour in.
    const changes = this.#announcing ? urgent && !this.#urgent : urgent || !this.#carrying || this.#idleCycles > 0;
    this.#urgent ||= urgent;
    if (changes) this.#wakeup.raise();
  }

  /**
   * A nudge hurries one commit or look. Whoever still waits when something was acknowledged nudges again; if it lasted longer, a
   * producer whose buffer is always full would commit without a pause.
   */
  #takeUrgency(): boolean {
    const urgent = this.#urgent;
    this.#urgent = false;
    return urgent;
  }

  async run(outbox: Outbox, signal: AbortSignal): Promise<void> {
    for (;;) await (this.#carrying ? this.#carry(outbox, signal) : this.#follow(outbox, signal));
  }

  // A follower: publish, then look at leisure.

  async #follow(outbox: Outbox, signal: AbortSignal): Promise<void> {
    const pending = outbox.pending();
    if (pending.length === 0) {
      this.#urgent = false;
      this.#announced.clear();
      await this.#wakeup.wait(this.#log.env, Number.POSITIVE_INFINITY, signal);
      return;
    }
    const newest = await this.#log.head.newest({ signal });
    if (activeProducers(newest) === 1) {
      this.#takeOver();
      return;
    }
    // Whoever was opened by a carrier knows that there is one.
    if (this.#lookedAtMs === Number.NEGATIVE_INFINITY) {
      this.#lookedAtMs = this.#log.env.monotonic();
      if (this.#isRecent(newest, outbox)) this.#carrierSeenAtMs = this.#lookedAtMs;
    }
    const fresh = pending.filter((batch) => !this.#announced.has(batch));
    const announceDueMs = fresh.length === 0 ? Number.POSITIVE_INFINITY : this.#announceDueMs();
    const lookDueMs = this.#lookDueMs(pending);
    // What was due first: whoever looked only when all are announced would come to a standstill while batches pour in.
    if (announceDueMs <= 0 && announceDueMs <= lookDueMs) {
      await this.#announce(fresh, signal);
      return;
    }
    if (lookDueMs <= 0) {
      await this.#look(outbox, signal);
      return;
    }
    this.#announcing = fresh.length > 0;
    await this.#wakeup.wait(this.#log.env, Math.min(announceDueMs, lookDueMs), signal);
    this.#announcing = false;
  }

  /** When batches that came meanwhile are announced, together. */
  #announceDueMs(): number {
    return this.#announcedAtMs + (this.#urgent ? urgentAnnounceMs : announceMs) - this.#log.env.monotonic();
  }

  async #announce(fresh: readonly Descriptor[], signal: AbortSignal): Promise<void> {
    const { env, store, spec } = this.#log;
    this.#announcedAtMs = env.monotonic();
    const named = await publishIntents(store, spec.uuid, fresh, { signal });
    const now = env.monotonic();
    for (const batch of fresh) this.#announced.set(batch, now);
    if (!named) this.#takeOver();
  }

  /** Somebody who waits looks soon; so does whoever has not seen a carrier for long; all others when it is time to let go of the bytes. */
  #lookDueMs(pending: readonly Descriptor[]): number {
    const { patienceMs } = this.#settings;
    const now = this.#log.env.monotonic();
    // A dead carrier is noticed by whoever looks next: in small pools, where few look, everybody looks more often.
    const others = poolProducers(this.#log.head.known as Manifest) - 1;
    const confirmMs = Math.min(this.#settings.confirmMs, Math.max(1, others) ** 2 * smallPoolLookMs);
    const takeOverAtMs = this.#takeOverAtMs ?? Number.POSITIVE_INFINITY;
    if (takeOverAtMs < Number.POSITIVE_INFINITY && !this.#urgent) return takeOverAtMs - now;
    const oldestMs = this.#announced.get(pending[0] as Descriptor) ?? now;
    if (this.#lookDelayMs === 0) this.#lookDelayMs = 0.5 + this.#log.env.random();
    const trusted = now - this.#carrierSeenAtMs < 2 * this.#settings.confirmMs;
    const urgentMs = Math.min(patienceMs / 2, urgentLookMs * urgentLookGrowth ** Math.min(this.#looksInVain, 10));
    const delayMs = this.#urgent ? urgentMs : (trusted ? confirmMs : patienceMs) * this.#lookDelayMs;
    const lookAtMs = Math.max(oldestMs + delayMs, this.#lookedAtMs + Math.min(delayMs, patienceMs / 2));
    return Math.min(takeOverAtMs, lookAtMs) - now;
  }

  async #look(outbox: Outbox, signal: AbortSignal): Promise<void> {
    const { env, head } = this.#log;
    const begun = env.monotonic();
    const before = head.known?.version ?? 0;
    const waitedFor = outbox.pending()[0];
    const manifest = await head.jump({ signal });
    const urgent = this.#takeUrgency();
    await outbox.settle(manifest);
    this.#lookedAtMs = env.monotonic();
    this.#lookDelayMs = 0;
    const oldest = outbox.pending()[0];
    this.#looksInVain = oldest === waitedFor ? this.#looksInVain + 1 : 0;
    if (oldest === waitedFor) this.#urgent ||= urgent;
    const moved = manifest.version > before && isOtherCarrier(manifest, outbox.holder.producer);
    if (moved) this.#carrierSeenAtMs = this.#lookedAtMs;
    // Whoever waits looks more often than a busy carrier commits.
    const seen = this.#lookedAtMs - this.#carrierSeenAtMs < this.#settings.patienceMs;
    const carried = seen && this.#isRecent(manifest, outbox);
    const due = oldest !== undefined && this.#mustCommit(oldest, manifest, begun, carried, urgent);
    this.#stepUp(due, activeProducers(manifest));
    this.#forgetSettled(outbox.pending());
  }

  /** A carrier committed lately. By its clock: a wrong one makes this follower compete too early or too late, no more. */
  #isRecent(manifest: Manifest, outbox: Outbox): boolean {
    return (
      isOtherCarrier(manifest, outbox.holder.producer) &&
      Math.abs(this.#log.env.now() - manifest.commit.time) < 2 * this.#settings.patienceMs
    );
  }

  /** When a carrier is gone, many notice at once, and one of them is enough: each draws when it is its turn, and looks again before it. */
  #stepUp(due: boolean, crowd: number): void {
    const { env } = this.#log;
    if (!due) this.#takeOverAtMs = undefined;
    else if (this.#takeOverAtMs !== undefined) {
      if (env.monotonic() >= this.#takeOverAtMs) this.#takeOver();
    } else {
      const delayMs = spreadMs(env.random(), windowMs * Math.log2(crowd), crowd);
      if (delayMs < windowMs) this.#takeOver();
      else this.#takeOverAtMs = env.monotonic() + delayMs;
    }
  }

  /**
   * Not carried although there was time for it: nobody carries, or this batch cannot be carried, and its owner commits. While somebody
   * does carry, being late is no reason to compete: that would make everybody later.
   */
  #mustCommit(oldest: Descriptor, seen: Manifest, nowMs: number, carried: boolean, urgent: boolean): boolean {
    if (oldest.base < seen.orphanCutoff) return true;
    const announcedMs = this.#announced.get(oldest);
    const factor = carried ? busyPatience : urgent ? 0.5 : 1;
    return announcedMs !== undefined && nowMs - announcedMs >= factor * this.#settings.patienceMs;
  }

  #forgetSettled(pending: readonly Descriptor[]): void {
    const left = new Set(pending);
    for (const batch of this.#announced.keys()) if (!left.has(batch)) this.#announced.delete(batch);
  }

  #takeOver(): void {
    this.#carrying = true;
    this.#takeOverAtMs = undefined;
    this.#chain = undefined;
    this.#listed = undefined;
    this.#idleCycles = 0;
    this.#vouchedAtMs = this.#log.env.monotonic();
  }

  // The carrier: list, stage everybody's, PUT; vouch now and then; keep a pace.

  async #carry(outbox: Outbox, signal: AbortSignal): Promise<void> {
    const { env, head } = this.#log;
    const begun = env.monotonic();
    const urgent = this.#takeUrgency();
    const base = this.#chain ?? (await head.newest({ signal }));
    const alone = activeProducers(base) === 1;
    const intents = alone && begun < this.#listedAtMs + aloneListMs ? undefined : await this.#list(signal);
    const own = outbox.pending();
    const options = { signal, from: this.#chain, fresh: this.#chain === undefined && !alone, vouchLater: true };
    const attempt = await this.#log.attemptBatches(outbox.holder, own, options, intents);
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
      this.#unvouchedBatches += carried + staged;
      this.#learn(carried + staged, env.monotonic() - begun);
    } else if (attempt.outcome === "nothing") {
      // What is in already, carried by somebody else or committed before an answer was lost, is acknowledged here. A version of an
      // own chain is not verified yet; vouching for it comes below.
      if (this.#chain === undefined) await outbox.settle(attempt.manifest);
      this.#idleCycles++;
    } else {
      this.#chain = undefined;
      this.#urgent ||= urgent;
      await outbox.settle(attempt.manifest);
      if (attempt.outcome === "lost" && isOtherCarrier(attempt.manifest, outbox.holder.producer)) return this.#yield();
      return;
    }
    await this.#vouch(outbox, signal, alone || urgent);
    // What cannot be staged on a chain of our own (a lane that is too far ahead) waits for others' versions, which it never shows.
    if (attempt.outcome === "nothing" && own.length > 0) this.#chain = undefined;
    await this.#pace(outbox, begun, alone, signal);
  }

  async #list(signal: AbortSignal): Promise<Intents> {
    this.#listedAtMs = this.#log.env.monotonic();
    const intents = await listIntents(this.#log.store, this.#log.spec.uuid, { signal, last: this.#lastListing });
    this.#listed = intents;
    this.#lastListing = intents;
    return intents;
  }

  #yield(): void {
    this.#carrying = false;
    this.#carrierSeenAtMs = this.#log.env.monotonic();
    this.#lookDelayMs = 0;
  }

  /** One look vouches for the whole chain of own versions; only then is anything acknowledged or an intent removed. */
  async #vouch(outbox: Outbox, signal: AbortSignal, atOnce: boolean): Promise<void> {
    const chain = this.#chain;
    if (!chain) return;
    const spent = this.#listed ? spentIntents(this.#listed, chain.producers) : [];
    const isLong =
      spent.length >= vouchIntents || (spent.length >= vouchIntentsMin && this.#unvouchedBatches >= vouchBatches);
    if (!atOnce && !isLong && this.#log.env.monotonic() < this.#vouchedAtMs + vouchMs) return;
    this.#vouchedAtMs = this.#log.env.monotonic();
    this.#unvouchedBatches = 0;
    const { head } = this.#log;
    if (!(await head.vouch(chain, { signal }))) {
      this.#chain = undefined;
      await outbox.settle(await head.load({ signal }));
      return;
    }
    await outbox.settle(chain);
    // They only make the LIST longer: many are removed at a time.
    if (!isLong) return;
    this.#listed = undefined;
    this.#sweep(spent, signal);
  }

  /** Beside the commits: nobody waits for it, and what fails is found in the next LIST. */
  #sweep(spent: readonly string[], signal: AbortSignal): void {
    if (this.#sweeping) return;
    this.#sweeping = true;
    const pages = Array.from({ length: Math.ceil(spent.length / deleteMax) }, (_, i) =>
      this.#log.store.delete(spent.slice(i * deleteMax, (i + 1) * deleteMax), { signal, hint: true }),
    );
    void Promise.allSettled(pages).then(() => {
      this.#sweeping = false;
    });
  }

  #learn(batches: number, cycleMs: number): void {
    const { env } = this.#log;
    const weight = this.#tauMs === 0 ? 1 : cycleMs < this.#tauMs ? alphaFaster : alphaSlower;
    this.#tauMs += weight * (cycleMs - this.#tauMs);
    const intervalMs = Math.max(1, env.monotonic() - (this.#cycleEndedAtMs ?? env.monotonic() - cycleMs));
    this.#cycleEndedAtMs = env.monotonic();
    this.#batchesPerMs = (1 - alpha) * this.#batchesPerMs + (alpha * batches) / intervalMs;
    this.#idleCycles = 0;
  }

  /** Waits until the next cycle: as often as the request budget allows, but never so often that openings and checkpoints cannot get in between. */
  async #pace(outbox: Outbox, begunMs: number, alone: boolean, signal: AbortSignal): Promise<void> {
    const { intervalMsMin, intervalMsMax, requestBudget } = this.#settings;
    const budgetMs = requestsPerCycle / (requestBudget * this.#batchesPerMs);
    let intervalMs = alone
      ? aloneIntervalMs
      : Math.max(intervalMsMin, paceFactor * this.#tauMs, Math.min(intervalMsMax, budgetMs));
    if (this.#idleCycles > 0)
      intervalMs = Math.min(Math.max(idleIntervalMsMax, intervalMs), intervalMs * 2 ** Math.min(this.#idleCycles, 10));
    const idle = alone && this.#idleCycles > 0 && outbox.pending().length === 0;
    // Alone and idle there is nothing to list: sleep until the next batch comes.
    const waitMs = idle ? Number.POSITIVE_INFINITY : begunMs + intervalMs - this.#log.env.monotonic();
    // Somebody may be waiting for batches that are still being uploaded: their upload will wake this.
    const hurry = this.#urgent && this.#idleCycles === 0 && outbox.pending().length > 0;
    if (waitMs > 0 && !hurry) await this.#wakeup.wait(this.#log.env, waitMs, signal);
    else signal.throwIfAborted();
  }
}

/** Commits of batches are signed with the producer's id alone; openings, checkpoints and closes have a blank in theirs. */
function isOtherCarrier(winner: Manifest, own: string): boolean {
  return winner.commit.by !== own && !winner.commit.by.includes(" ");
}
