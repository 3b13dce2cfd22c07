/** Which logs a process looks at, and how often: the rate of its requests is bounded, however many logs and processes there are. */
import type { Env } from "../../index.js";
import type { LaneWatch } from "./lane-watch.js";

/** Looks in a round at most: at logs that a reader waits for or that may have ended, at logs we hold lanes of, and at others. */
const urgentMax = 8;
const heldMax = 1;
const othersMin = 1;
const othersMax = 16;
/** Rounds in vain make the pause longer, up to so many times. */
const growth = 1.2;
const growthMax = 2;
/** While lanes are to be had, who holds more waits longer: so many lanes are one more pause, up to a limit. */
const lanesAPause = 4;
const pausesMax = 4;

/** Draws the logs of each round. */
export class Rounds {
  readonly #env: Env;
  readonly #delayMs: number;
  readonly #isShadow: boolean;
  /** Others looked at in a round: more while that finds lanes to take. */
  #others = 4;
  #isActive = true;
  #idle = 0;
  #lanes = 0;

  constructor(env: Env, delayMs: number, isShadow: boolean) {
    this.#env = env;
    this.#delayMs = delayMs;
    this.#isShadow = isShadow;
  }

  /** The logs to look at now, those that were not looked at for longest first. */
  choose(
    watches: readonly LaneWatch[],
    of: (watch: LaneWatch) => { readonly isUrgent: boolean; readonly isHeld: boolean },
  ): LaneWatch[] {
    const oldest = [...watches].sort((a, b) => a.lookedAtMs - b.lookedAtMs);
    const [urgent, held, others]: [LaneWatch[], LaneWatch[], LaneWatch[]] = [[], [], []];
    for (const watch of oldest) {
      const { isUrgent, isHeld } = of(watch);
      if (isUrgent && urgent.length < urgentMax) urgent.push(watch);
      else if (isHeld && held.length < heldMax) held.push(watch);
      else others.push(watch);
    }
    const drawn = Array.from({ length: Math.min(this.#others, others.length) }, () => {
      const at = Math.floor(this.#env.random() * others.length);
      const [watch] = others.splice(at, 1);
      return watch as LaneWatch;
    });
    return [...urgent, ...held, ...drawn];
  }

  /** What a round came to. */
  learn({
    isActive,
    isWanted,
    lanes,
  }: {
    /** Lanes were to be had. */
    readonly isActive: boolean;
    readonly isWanted: boolean;
    /** Lanes held now. */
    readonly lanes: number;
  }): void {
    this.#isActive = isActive;
    this.#lanes = lanes;
    this.#others = isActive ? Math.min(othersMax, 2 * this.#others) : othersMin;
    this.#idle = isActive || isWanted ? 0 : this.#idle + 1;
  }

  /** Until the next round. `dueMs`: time until a lane has stood for too long; a shadow looks then, not by chance, and no more often than chance could. */
  pauseMs(dueMs: number): number {
    const claiming = 0.2 * (1 + Math.min(pausesMax, this.#lanes / lanesAPause));
    const baseMs = this.#delayMs * (this.#isActive ? claiming : this.#isShadow ? 0.5 : 1);
    const slow = this.#isShadow ? 1 : Math.min(growthMax, growth ** this.#idle);
    const drawnMs = baseMs * slow * (0.5 + this.#env.random());
    const leastMs = baseMs / 2;
    return this.#isShadow && dueMs < drawnMs + leastMs ? Math.max(leastMs, dueMs) : drawnMs;
  }
}
