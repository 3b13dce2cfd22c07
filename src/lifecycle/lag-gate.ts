/** Backpressure by checkpoints: producers stop `maxLag` steps ahead, and neither side waits for ever for the other. */
import { activeProducers } from "../cadence/index.js";
import { BatchWeaveError } from "../errors.js";
import type { Manifest } from "../format/index.js";
import { type Log, stageSettings } from "../log/index.js";
import type { CallOptions } from "../store/index.js";
import { describeLagWait, type Lag, lagDeadlock, measureLag } from "./lag.js";

/** Settings of {@link lagGate} and {@link starvationWatch}. */
export interface LagSettings {
  /** Between two looks of a producer that has waited for long, and the age after which it looks again before it accepts. Default 1,000. */
  readonly pollDelayMs?: number | undefined;
  /** A producer that waited so long while no checkpoint moved fails with LAG_DEADLOCK. Default 6 hours. */
  readonly waitMsMax?: number | undefined;
  /**
   * A rank that waits for a step that no producer may build fails after this, and makes producers fail. 0 where a rank registers its checkpoints
   * itself before it asks for more: then none can be on its way. Default 10,000 when the last two checkpoints were further apart than what
   * producers may build, else 60,000: a checkpoint may still be being saved.
   */
  readonly deadlockMs?: number | undefined;
}

/** Told when a producer begins to wait for a checkpoint, and when it goes on. */
export interface LagObserver {
  onLagWait?(event: {
    readonly lag: number;
    readonly maxLag: number;
    readonly group: string | undefined;
    readonly checkpointStep: number;
    /** All of it in a sentence. */
    readonly message: string;
  }): void;
  onLagResume?(event: { readonly waitedMs: number }): void;
}

/** Called before a batch is accepted, with how many are accepted and not yet seen in the log at that moment. `onWait` when it does not resolve at once. */
type LagGate = (pending: () => number, options?: CallOptions & { readonly onWait?: () => void }) => Promise<void>;

const hoursMs = 3_600_000;
const ownPollMs = 10;
/** Whoever has just begun to wait looks so many times as often, and less and less so: a wait is longer than it must be by half of itself at most. */
const keenness = 10;
const pollDelayGrowth = 1.5;

/** Sets or removes (`undefined`) maxLag. */
export async function commitMaxLag(log: Log, maxLag: number | undefined, options?: CallOptions): Promise<void> {
  if (maxLag !== undefined && !(Number.isSafeInteger(maxLag) && maxLag >= 1)) {
    throw new BatchWeaveError("INVALID_ARGUMENT", `maxLag must be a whole number of at least 1, not ${maxLag}.`, {
      maxLag,
    });
  }
  await log.commit<undefined, boolean>(
    {
      by: "set maxLag",
      kind: "settings",
      stage: (draft) => {
        const done = stageSettings(draft, { maxLag });
        return { done, result: done };
      },
    },
    { signal: options?.signal, fresh: true },
  );
}

/** A producer's side: resolves when one more batch may be accepted. Costs nothing while no maxLag is set. */
export function lagGate(log: Log, settings: LagSettings = {}, observer: LagObserver = {}): LagGate {
  const pollDelayMs = settings.pollDelayMs ?? 1_000;
  const waitMsMax = settings.waitMsMax ?? 6 * hoursMs;
  const { rows } = log.spec.grid;
  let lookedAtMs = Number.NEGATIVE_INFINITY;
  return async (pending, options) => {
    let manifest = await log.head.newest(options);
    let begunMs: number | undefined;
    let movedAtMs = 0;
    let from = -1;
    let delayMs = pollDelayMs / keenness;
    let isDue = false;
    for (;;) {
      if (manifest.settings?.maxLag === undefined) break;
      // Others' batches count too, and the newest manifest known may be old.
      if (isDue || log.env.monotonic() - lookedAtMs >= pollDelayMs) {
        isDue = false;
        manifest = await log.head.jump(options);
        lookedAtMs = log.env.monotonic();
      }
      const lag = measureLag(manifest, rows);
      const { maxLag } = manifest.settings ?? {};
      if (maxLag === undefined || manifest.closed || isWithin(manifest, maxLag, lag, pending())) break;
      const nowMs = log.env.monotonic();
      if (lag.steps + pending() < maxLag) {
        // Its own batches are on their way into the log; that is no wait for a checkpoint.
        options?.onWait?.();
        await log.env.sleep(Math.min(pollDelayMs, ownPollMs), options?.signal);
        manifest = await log.head.newest(options);
        continue;
      }
      if (begunMs === undefined) {
        begunMs = nowMs;
        options?.onWait?.();
        const message = describeLagWait("producer", maxLag, lag, manifest.steps.end);
        observer.onLagWait?.({
          lag: lag.steps + pending(),
          maxLag,
          group: lag.group,
          checkpointStep: lag.from,
          message,
        });
      }
      if (lag.from !== from) {
        from = lag.from;
        movedAtMs = nowMs;
      }
      if (isStarving(manifest) || nowMs - movedAtMs >= waitMsMax)
        throw lagDeadlock("This producer", manifest, lag, nowMs - begunMs);
      await log.env.sleep(delayMs * (1 + 0.25 * log.env.random()), options?.signal);
      // Another producer of this process may just have looked.
      isDue = log.env.monotonic() - log.head.lookedAtMs >= delayMs / 4;
      delayMs = Math.min(pollDelayMs, delayMs * pollDelayGrowth);
      manifest = await log.head.newest(options);
    }
    if (begunMs !== undefined) observer.onLagResume?.({ waitedMs: log.env.monotonic() - begunMs });
  };
}

/**
 * What is left of maxLag is shared by the active producers, since none sees what the others have accepted and not committed yet; and none
 * takes more than an eighth of it at a time, since others may only just have started. One batch each is always allowed below the limit, so it can
 * be passed by as many steps as there are producers, less one.
 */
function isWithin(manifest: Manifest, maxLag: number, lag: Lag, pending: number): boolean {
  const left = maxLag - lag.steps;
  const share = Math.min(left / activeProducers(manifest), maxLag / 8);
  return left > 0 && pending < Math.max(1, Math.floor(share));
}

/** A rank has said that it waits for the very step that no producer may build. */
function isStarving(manifest: Manifest): boolean {
  return manifest.starving !== undefined && manifest.starving === manifest.steps.end;
}

const likelyDeadlockMs = 10_000;
const savingMs = 60_000;

/** How long a rank waits before it calls it a deadlock: briefly, when the next checkpoint is further away than the log may grow. */
function patienceMs({ from, interval }: Lag, end: number): number {
  return interval !== undefined && from + interval > end ? likelyDeadlockMs : savingMs;
}

/** Told, at once, when a rank begins to wait for a step that no producer may build before a checkpoint is registered. */
interface StarvationObserver {
  onStarve?(event: { readonly step: number; readonly message: string }): void;
}

/** What a rank waits for. */
interface Starvation {
  /** The first step it needs that is not visible. */
  readonly step: number;
  readonly waitedMs: number;
  /** The training run it belongs to. */
  readonly group?: string | undefined;
}

/** Called by a rank while it waits for a step. Throws LAG_DEADLOCK when no producer can ever build it. */
type StarvationWatch = (starvation: Starvation, options?: CallOptions) => Promise<void>;

/**
 * A rank's side. Producers stop at maxLag and wait for a checkpoint of the slowest group; if that is this rank's own group (or no
 * checkpoint is live at all) and the rank has read everything, none will come. It commits that it starves, so that producers fail
 * with the same words instead of waiting, and fails.
 */
export function starvationWatch(
  log: Log,
  settings: LagSettings = {},
  observer: StarvationObserver = {},
): StarvationWatch {
  const { rows } = log.spec.grid;
  let toldOf = -1;
  return async ({ step, waitedMs, group }, options) => {
    const isStuck = (manifest: Manifest, lag: Lag): boolean => {
      const maxLag = manifest.settings?.maxLag;
      const ownIsSlowest = lag.groups <= 1 || lag.group === group;
      return (
        maxLag !== undefined && lag.steps >= maxLag && manifest.steps.end <= step && !manifest.closed && ownIsSlowest
      );
    };
    const known = await log.head.newest(options);
    const knownLag = measureLag(known, rows);
    if (!isStuck(known, knownLag)) return;
    const { end } = known.steps;
    if (toldOf !== end) {
      toldOf = end;
      observer.onStarve?.({ step, message: describeLagWait("rank", known.settings?.maxLag ?? 0, knownLag, end) });
    }
    if (waitedMs < (settings.deadlockMs ?? patienceMs(knownLag, end))) return;
    const { manifest, result } = await log.commit<undefined, boolean>(
      {
        by: "report starvation",
        kind: "starvation",
        stage: (draft) => {
          const isStill = isStuck(draft.base, measureLag(draft.base, rows));
          if (!isStill || draft.starving === draft.end) return { done: true, result: isStill };
          draft.starving = draft.end;
          return { done: false, result: true };
        },
      },
      { signal: options?.signal, fresh: true },
    );
    if (result) throw lagDeadlock("This rank", manifest, measureLag(manifest, rows), waitedMs);
  };
}
