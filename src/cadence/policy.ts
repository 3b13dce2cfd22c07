/** Policies: when a producer that commits for itself tries next, and what the last attempt taught it. */
import type { Env } from "../env/index.js";
import type { AttemptOutcome } from "../log/index.js";

/** One attempt, as a policy sees it. */
interface Lesson {
  readonly outcome: AttemptOutcome;
  /** From reading the base to the end of the PUT; absent when nothing was PUT. */
  readonly fragileMs?: number | undefined;
  /** The pool: producers that share the log and its pace, this one included. */
  readonly activeProducers: number;
}

/** When to try next. One instance per producer; it keeps what it learned. */
export interface Policy {
  readonly name: string;
  /** ms until the next attempt is due: 0 now, Infinity not before more is pending. */
  delayMs(state: { readonly pending: number; readonly sinceAttemptMs: number }): number;
  learn(lesson: Lesson): void;
}

/** Settings of {@link dacPolicy}; the defaults are the paper's. */
export interface DacSettings {
  /** Conflict budget. */
  readonly epsilon?: number | undefined;
  /** Duty budget: share of time spent committing. */
  readonly delta?: number | undefined;
  /** Weight of the newest fragile window in the moving average. */
  readonly alpha?: number | undefined;
  readonly jitter?: number | undefined;
}

/** The gap of DAC for one state: the smallest that keeps both budgets. */
export function dacGapMs(tauMs: number, producers: number, epsilon: number, delta: number): number {
  const conflictMs = tauMs * ((producers - 1) / -Math.log(1 - epsilon) - 1);
  const dutyMs = tauMs * (1 / delta - 1);
  return Math.max(0, conflictMs, dutyMs);
}

/** A fragile window counts as this many times the average at most, and the first one as so many ms: about four of a slow store. */
const sampleGrowthMax = 4;
const firstSampleMsMax = 1_000;

/** Decentralized Adaptive Commit, the paper's section 5.2: after every attempt, successful or not, wait a gap. */
export function dacPolicy(env: Env, settings: DacSettings = {}): Policy {
  const { epsilon = 0.05, delta = 0.2, alpha = 0.2, jitter = 0.2 } = settings;
  let tauMs: number | undefined;
  let gapMs = 0;
  return {
    name: "dac",
    delayMs: ({ sinceAttemptMs }) => Math.max(0, gapMs - sinceAttemptMs),
    learn({ fragileMs, activeProducers }) {
      if (fragileMs === undefined) return;
      // Producers that start together would stay in step for many gaps: the first gap is drawn from its whole length.
      const first = tauMs === undefined;
      // A single stalled commit must not silence a producer for as many gaps as it takes to forget it; a store that is slow is learned soon.
      const sampleMs = Math.min(fragileMs, tauMs === undefined ? firstSampleMsMax : sampleGrowthMax * tauMs);
      tauMs = tauMs === undefined ? sampleMs : (1 - alpha) * tauMs + alpha * sampleMs;
      const gap = dacGapMs(tauMs, activeProducers, epsilon, delta);
      gapMs = gap * (first ? env.random() : 1 + jitter * (2 * env.random() - 1));
    },
  };
}

/** Commits every `intervalMs`: enough for one or a few producers. */
export function intervalPolicy(intervalMs: number): Policy {
  return {
    name: "interval",
    delayMs: ({ sinceAttemptMs }) => Math.max(0, intervalMs - sinceAttemptMs),
    learn() {},
  };
}

/** Commits when so many batches are pending: 1 is the paper's "naive". */
export function fixedPolicy(batches: number): Policy {
  return {
    name: batches === 1 ? "naive" : `fixed-${batches}`,
    delayMs: ({ pending }) => (pending >= batches ? 0 : Number.POSITIVE_INFINITY),
    learn() {},
  };
}

/** Starts at 10 batches and waits for one more after each conflict. */
export function incrPolicy(start = 10): Policy {
  let batches = start;
  return {
    name: "incr",
    delayMs: ({ pending }) => (pending >= batches ? 0 : Number.POSITIVE_INFINITY),
    learn({ outcome }) {
      if (outcome === "lost") batches += 1;
    },
  };
}

/**
 * Additive increase, multiplicative decrease of the interval in batches. `paper`: as the paper words it, interval + addend on
 * success, halved on conflict, which commits *more* often under conflict. `inverse`: the congestion control it must have meant.
 */
export function aimdPolicy(variant: "paper" | "inverse", addend = 1): Policy {
  let batches = 10;
  return {
    name: `aimd-${variant}`,
    delayMs: ({ pending }) => (pending >= batches ? 0 : Number.POSITIVE_INFINITY),
    learn({ outcome }) {
      if (outcome !== "committed" && outcome !== "lost") return;
      const grow = variant === "paper" ? outcome === "committed" : outcome === "lost";
      if (variant === "paper") batches = grow ? batches + addend : Math.max(1, Math.floor(batches / 2));
      else batches = grow ? batches * 2 : Math.max(1, batches - addend);
    },
  };
}
