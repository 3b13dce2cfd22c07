/** A follower: announces its batches, and looks whether a carrier committed them. */
import type { Descriptor, Manifest } from "../../format/index.js";
import { type Log, publishIntents } from "../../log/index.js";
import { activeProducers, isCarriers, type Outbox, poolProducers } from "../publisher.js";
import { spreadMs } from "../spread.js";
import { CarrierRhythm, type Pace, paceOf } from "./pace.js";
import type { Urgency } from "./urgency.js";

/** Each look in vain makes the next one later, up to half the patience. */
const lookGrowth = 1.5;
/** How many times longer a follower waits while it sees a carrier at work. */
const busyPatience = 6;
/** A follower that is likely to be that many versions behind, at most, reads them one by one; others list. */
const walkedVersionsMax = 3;

export class Follower {
  readonly #log: Log;
  readonly #urgency: Urgency;
  /** When each batch's intent was published. Uploading again makes a new descriptor, which needs an intent of its own. */
  readonly #announced = new Map<Descriptor, number>();
  #announcedAtMs = Number.NEGATIVE_INFINITY;
  readonly #rhythm = new CarrierRhythm();
  /** When this follower takes over, unless its next look shows that another follower did. */
  #takeOverAtMs: number | undefined;
  /** When a look last showed a carrier at work. */
  #carrierSeenAtMs = Number.NEGATIVE_INFINITY;
  #lookedAtMs = Number.NEGATIVE_INFINITY;
  /** Those who wait at leisure must not look at the same time: 0.5 to 1.5, drawn for every look; 0: not drawn yet. */
  #jitter = 0;
  #looksInVain = 0;

  /** Waits until batches that came meanwhile are announced together. */
  isAnnouncing = false;

  /** No carrier is there, says the caller. */
  #isAbandoned: boolean;

  constructor(log: Log, urgency: Urgency, isAbandoned: boolean) {
    this.#log = log;
    this.#urgency = urgency;
    this.#isAbandoned = isAbandoned;
  }

  /** No other producer is there: nothing to announce, no carrier to wait for. */
  get isAlone(): boolean {
    const { known } = this.#log.head;
    return known !== undefined && activeProducers(known) === 1;
  }

  /** It carried, and lost to another carrier. */
  begin(): void {
    this.#carrierSeenAtMs = this.#log.env.monotonic();
    this.#takeOverAtMs = undefined;
    this.#jitter = 0;
    this.#looksInVain = 0;
  }

  /** One thing at a time: announce, look, or wait for either. "take-over": this producer carries from now on. */
  async turn(outbox: Outbox, signal: AbortSignal): Promise<"stay" | "take-over"> {
    const { env, head } = this.#log;
    const pending = outbox.pending();
    if (pending.length === 0) {
      this.#urgency.take();
      this.#announced.clear();
      await this.#urgency.wait(env, Number.POSITIVE_INFINITY, signal);
      return "stay";
    }
    const newest = await head.newest({ signal });
    if (this.isAlone || this.#isAbandoned) {
      this.#isAbandoned = false;
      return "take-over";
    }
    const pace = paceOf(this.#log.roundTrip.ms);
    if (this.#lookedAtMs === Number.NEGATIVE_INFINITY) {
      // The carrier that opened this producer, if one did, is there.
      this.#lookedAtMs = env.monotonic();
      if (this.#isRecent(newest, pace)) this.#carrierSeenAtMs = this.#lookedAtMs;
    }
    const fresh = pending.filter((batch) => !this.#announced.has(batch));
    const isAwaited = this.#urgency.isUrgent || outbox.isAwaited();
    const announceDueMs = fresh.length === 0 ? Number.POSITIVE_INFINITY : this.#announceDueMs(pace, isAwaited);
    const lookDueMs = this.#lookDueMs(pending[0] as Descriptor, pace, isAwaited);
    // What was due first: a follower that looked only when all are announced would come to a standstill while batches pour in.
    if (announceDueMs <= 0 && announceDueMs <= lookDueMs) return await this.#announce(fresh, signal);
    if (lookDueMs <= 0) return await this.#look(outbox, pace, signal);
    this.isAnnouncing = fresh.length > 0;
    await this.#urgency.wait(env, Math.min(announceDueMs, lookDueMs), signal);
    this.isAnnouncing = false;
    return "stay";
  }

  /** When batches that came meanwhile are announced, together. */
  #announceDueMs(pace: Pace, isAwaited: boolean): number {
    const delayMs = isAwaited ? pace.urgentAnnounceMs : pace.announceMs;
    return this.#announcedAtMs + delayMs - this.#log.env.monotonic();
  }

  async #announce(fresh: readonly Descriptor[], signal: AbortSignal): Promise<"stay" | "take-over"> {
    const { env, store, spec, roundTrip } = this.#log;
    this.#announcedAtMs = env.monotonic();
    const named = await publishIntents(store, spec.uuid, fresh, { signal });
    const now = env.monotonic();
    roundTrip.learn(now - this.#announcedAtMs);
    for (const batch of fresh) this.#announced.set(batch, now);
    return named ? "stay" : "take-over";
  }

  #lookDueMs(oldest: Descriptor, pace: Pace, isAwaited: boolean): number {
    const now = this.#log.env.monotonic();
    const takeOverAtMs = this.#takeOverAtMs ?? Number.POSITIVE_INFINITY;
    if (takeOverAtMs < Number.POSITIVE_INFINITY && !isAwaited) return takeOverAtMs - now;
    const announcedAtMs = this.#announced.get(oldest);
    const lookAtMs = isAwaited
      ? this.#awaitedLookAtMs(announcedAtMs ?? now, pace)
      : this.#leisurelyLookAtMs(announcedAtMs ?? now, pace);
    return Math.min(takeOverAtMs, lookAtMs) - now;
  }

  /** A ticket is awaited: soon after the carrier's commit is expected, and again soon if that was in vain. */
  #awaitedLookAtMs(announcedAtMs: number, pace: Pace): number {
    const { env, roundTrip } = this.#log;
    const growth = lookGrowth ** Math.min(this.#looksInVain, 10);
    // What was seen so long ago says nothing about who carries now: the carrier may have closed.
    if (announcedAtMs - this.#lookedAtMs > pace.patienceMs) return announcedAtMs;
    const againAtMs = this.#lookedAtMs + Math.min(pace.patienceMs / 2, pace.lookMs * growth);
    // The rhythm is told in wall clock, this process's deadlines are not.
    const offsetMs = env.now() - env.monotonic();
    const expectedAtMs = this.#rhythm.expectedAtMs(announcedAtMs + offsetMs, roundTrip.ms, pace) - offsetMs;
    return Math.max(expectedAtMs, againAtMs);
  }

  /** No ticket is awaited: when it is time to let go of the bytes; a follower that has not seen a carrier for long looks sooner. */
  #leisurelyLookAtMs(announcedAtMs: number, pace: Pace): number {
    // A dead carrier is noticed by the follower that looks next: in small pools, where few look, each looks more often.
    const others = Math.max(1, poolProducers(this.#log.head.known as Manifest) - 1);
    const confirmMs = Math.min(pace.confirmMs, others ** 2 * pace.smallPoolConfirmMs);
    if (this.#jitter === 0) this.#jitter = 0.5 + this.#log.env.random();
    const isTrusted = this.#log.env.monotonic() - this.#carrierSeenAtMs < 2 * pace.confirmMs;
    const delayMs = (isTrusted ? confirmMs : pace.patienceMs) * this.#jitter;
    return Math.max(announcedAtMs + delayMs, this.#lookedAtMs + Math.min(delayMs, pace.patienceMs / 2));
  }

  async #look(outbox: Outbox, pace: Pace, signal: AbortSignal): Promise<"stay" | "take-over"> {
    const { env, head } = this.#log;
    const begun = env.monotonic();
    const before = head.known?.version ?? 0;
    const waitedFor = outbox.pending()[0] as Descriptor;
    const manifest = await this.#readHead(waitedFor, pace, signal);
    const urgent = this.#urgency.take();
    const isAwaited = urgent || outbox.isAwaited();
    await outbox.settle(manifest);
    this.#lookedAtMs = env.monotonic();
    this.#jitter = 0;
    const left = outbox.pending();
    const oldest = left[0];
    this.#looksInVain = oldest === waitedFor ? this.#looksInVain + 1 : 0;
    if (oldest === waitedFor) this.#urgency.raise(urgent, false);
    if (isCarriers(manifest)) {
      if (manifest.version > before) this.#carrierSeenAtMs = this.#lookedAtMs;
      this.#rhythm.see(manifest.version, manifest.commit.time);
    }
    // Below the cutoff no carrier stages anything any more: all of these must be uploaded again.
    const expired = left.filter((batch) => batch.base < manifest.orphanCutoff);
    if (expired.length > 0) outbox.expire(expired);
    const isDue = oldest !== undefined && this.#mustCommit(oldest, manifest, begun, pace, isAwaited);
    this.#forgetSettled(outbox.pending());
    return this.#stepUp(isDue, activeProducers(manifest), pace);
  }

  /** Far behind, a listing finds the head; one or two versions behind, the next name does, and listing all manifests would cost more. */
  async #readHead(waitedFor: Descriptor, pace: Pace, signal: AbortSignal): Promise<Manifest> {
    const { env, head } = this.#log;
    const behindMs = env.monotonic() - this.#lookedAtMs;
    if (behindMs > walkedVersionsMax * this.#rhythm.intervalMs(pace)) return await head.jump({ signal });
    const isIn = (manifest: Manifest): boolean =>
      (manifest.producers.get(waitedFor.producer)?.seq ?? 0) > waitedFor.seq;
    return await head.walk(isIn, walkedVersionsMax, { signal });
  }

  /** A carrier committed lately. By its clock: a wrong one makes this follower compete too early or too late, no more. */
  #isRecent(manifest: Manifest, pace: Pace): boolean {
    return isCarriers(manifest) && Math.abs(this.#log.env.now() - manifest.commit.time) < 2 * pace.patienceMs;
  }

  /**
   * Not carried although there was time for it: there is no carrier, or this batch cannot be carried, and its owner commits. While a producer
   * does carry, being late is no reason to compete: that would make all of them later.
   */
  #mustCommit(oldest: Descriptor, seen: Manifest, nowMs: number, pace: Pace, isAwaited: boolean): boolean {
    const announcedAtMs = this.#announced.get(oldest);
    if (announcedAtMs === undefined) return false;
    // The carrier said that it is gone, and no carrier came after it.
    if (seen.commit.kind === "leave") return true;
    // A follower whose tickets are awaited looks more often than a busy carrier commits.
    const isCarried = this.#lookedAtMs - this.#carrierSeenAtMs < pace.patienceMs && this.#isRecent(seen, pace);
    const factor = isCarried ? busyPatience : isAwaited ? 0.5 : 1;
    return nowMs - announcedAtMs >= factor * pace.patienceMs;
  }

  /** When a carrier is gone, many notice at once, and one of them is enough: each draws when it is its turn, and looks again before it. */
  #stepUp(isDue: boolean, crowd: number, { windowMs }: Pace): "stay" | "take-over" {
    const { env } = this.#log;
    const now = env.monotonic();
    if (!isDue) this.#takeOverAtMs = undefined;
    else if (this.#takeOverAtMs !== undefined) return now >= this.#takeOverAtMs ? "take-over" : "stay";
    else {
      const delayMs = spreadMs(env.random(), windowMs * Math.log2(crowd), crowd);
      if (delayMs < windowMs) return "take-over";
      this.#takeOverAtMs = now + delayMs;
    }
    return "stay";
  }

  #forgetSettled(pending: readonly Descriptor[]): void {
    const left = new Set(pending);
    for (const batch of this.#announced.keys()) if (!left.has(batch)) this.#announced.delete(batch);
  }
}
