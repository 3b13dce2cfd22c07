/**
 * The pace of cooperative commit, pure: how long followers and carriers wait for what. Every time is a multiple of a round trip of this store, with a floor, below which
 * a machine's own scheduling decides, and a ceiling: what S3 needs, where requests cost money. docs/design/0003-cooperative-commit.md derives the numbers.
 */

/** All waits, in ms. */
export interface Pace {
  /** Batches that come faster than this share intents; and those whose tickets are awaited. */
  readonly announceMs: number;
  readonly urgentAnnounceMs: number;
  /** How long a carrier has for a published batch before its owner takes over. */
  readonly patienceMs: number;
  /** How long a follower whose tickets are not awaited lets its oldest batch go unconfirmed. */
  readonly confirmMs: number;
  /** The same where the others are few, times the square of their number: about 10 s on S3 until a follower notices that the carrier died. */
  readonly smallPoolConfirmMs: number;
  /** Shortest time between two looks of a follower whose tickets are awaited. */
  readonly lookMs: number;
  /** The window of a commit, roughly: over so long for each doubling of their number followers spread before they take over. */
  readonly windowMs: number;
  /** Shortest and longest time between two commits of a carrier that has something to carry. */
  readonly intervalMsMin: number;
  readonly intervalMsMax: number;
  /** The longest between two listings that show nothing. */
  readonly idleMsMax: number;
  /** A producer alone commits and lists this often. */
  readonly aloneIntervalMs: number;
  readonly aloneListMs: number;
  /** A chain of own versions is vouched for this often at least. */
  readonly vouchMs: number;
  /** So many spent intents are removed at once, and the chain vouched for. */
  readonly spentIntentsMax: number;
  /** How long a producer that closes tries to say so. */
  readonly farewellMs: number;
}

function times(roundTripMs: number, factor: number, floorMs: number, ceilingMs: number): number {
  return Math.min(ceilingMs, Math.max(floorMs, factor * roundTripMs));
}

/** The pace on a store whose small writes take `roundTripMs`. At 75 ms and more, which is S3, everything is at its ceiling. */
export function paceOf(roundTripMs: number): Pace {
  const r = roundTripMs;
  return {
    announceMs: times(r, 2, 5, 150),
    urgentAnnounceMs: times(r, 0.7, 2, 50),
    patienceMs: times(r, 20, 150, 1_500),
    confirmMs: times(r, 1_400, 500, 100_000),
    smallPoolConfirmMs: times(r, 28, 50, 2_100),
    lookMs: times(r, 0.7, 5, 50),
    windowMs: times(r, 7, 10, 500),
    intervalMsMin: times(r, 1.4, 25, 100),
    intervalMsMax: times(r, 9.2, 25, 690),
    idleMsMax: times(r, 14, 50, 1_000),
    aloneIntervalMs: times(r, 2.7, 20, 200),
    aloneListMs: times(r, 14, 100, 1_000),
    vouchMs: times(r, 800, 1_000, 60_000),
    spentIntentsMax: times(r, 7, 50, 500),
    farewellMs: times(r, 40, 500, 3_000),
  };
}

/** Requests of the carrier per batch that it may spend on shorter intervals. */
const requestBudget = 0.29;
/** LIST and PUT every cycle, a look and a delete now and then. */
const requestsPerCycle = 2.3;
/** A fifth of the time the carrier does not commit: what openings and checkpoints get in by. */
const paceFactor = 1.25;
/** Weight of the newest cycle in the moving averages. One that took long says little about the next: its time counts for less. */
const alpha = 0.2;
const alphaFaster = 0.5;
const alphaSlower = 0.1;

/** What a carrier learns from its cycles. */
export class CycleRate {
  #tauMs = 0;
  #batchesPerMs = 0;
  #endedAtMs: number | undefined;

  /** A cycle that committed `batches` took `cycleMs` and is over now. */
  learn(batches: number, cycleMs: number, nowMs: number): void {
    const weight = this.#tauMs === 0 ? 1 : cycleMs < this.#tauMs ? alphaFaster : alphaSlower;
    this.#tauMs += weight * (cycleMs - this.#tauMs);
    const intervalMs = Math.max(1, nowMs - (this.#endedAtMs ?? nowMs - cycleMs));
    this.#endedAtMs = nowMs;
    this.#batchesPerMs = (1 - alpha) * this.#batchesPerMs + (alpha * batches) / intervalMs;
  }

  /** From the beginning of one cycle to the next: as short as the budget allows, and never so short that no other committer gets in between. */
  intervalMs(pace: Pace, alone: boolean, idleCycles: number): number {
    const budgetMs = requestsPerCycle / (requestBudget * this.#batchesPerMs);
    const busyMs = alone
      ? pace.aloneIntervalMs
      : Math.max(pace.intervalMsMin, paceFactor * this.#tauMs, Math.min(pace.intervalMsMax, budgetMs));
    if (idleCycles === 0) return busyMs;
    return Math.min(Math.max(pace.idleMsMax, busyMs), busyMs * 2 ** Math.min(idleCycles, 10));
  }
}

/** What a follower knows of its carrier's rhythm. Times by the carrier's wall clock: a wrong one makes looks early or late, no more. */
export class CarrierRhythm {
  #version = 0;
  #stampedAtMs = 0;
  #intervalMs: number | undefined;

  /** A version that a carrier made. */
  see(version: number, stampedAtMs: number): void {
    if (version <= this.#version) return;
    const each = (stampedAtMs - this.#stampedAtMs) / (version - this.#version);
    if (this.#version > 0 && each > 0) this.#intervalMs = this.#intervalMs ? (this.#intervalMs + each) / 2 : each;
    this.#version = version;
    this.#stampedAtMs = stampedAtMs;
  }

  /** How long a commit and the pause after it take, as far as is known. */
  intervalMs({ intervalMsMin, intervalMsMax }: Pace): number {
    return Math.min(intervalMsMax, Math.max(intervalMsMin, this.#intervalMs ?? intervalMsMax));
  }

  /**
   * When a batch announced at `announcedAtMs` is expected to be visible: with the first version stamped when a listing could show it, once that is
   * written. Later than that by a little, so that one look is enough.
   */
  expectedAtMs(announcedAtMs: number, roundTripMs: number, pace: Pace): number {
    const intervalMs = this.intervalMs(pace);
    const listedAtMs = announcedAtMs + roundTripMs / 2;
    const cycles = Math.ceil((listedAtMs - this.#stampedAtMs) / intervalMs);
    const stampedAtMs = this.#version > 0 ? this.#stampedAtMs + cycles * intervalMs : listedAtMs + intervalMs / 2;
    const expected = stampedAtMs + 1.2 * roundTripMs;
    return Math.min(Math.max(expected, announcedAtMs + roundTripMs / 2), announcedAtMs + intervalMs + 2 * roundTripMs);
  }
}
