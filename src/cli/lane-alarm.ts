/** Tells people that batches wait for a lane of another process: a process that only makes more of them looks as if all were well. */
import { type Env, isBatchWeaveError, type Namespace } from "../index.js";
import { counted, formatMs, type Terminal } from "./terminal.js";

const lookMs = 500;
/** Batches are on their way for a moment; for longer, one looks. */
const stuckMsMin = 2_000;
/** A lane's batches come into the log up to so many rounds ahead: a process with as many on their way waits for another. */
const pendingMax = 64;
/** Between two looks at the log, at first and at most. */
const gapMsMin = 2_000;
const gapMsMax = 30_000;

/** What a process has made: how many batches are not known to be in the log, and when it made the last. */
interface LaneProgress {
  readonly pending: number;
  readonly madeAtMs: number;
}

/** Watches until it is disposed. It asks the log only while this process has reason to. */
export function watchLanes(
  env: Env,
  ns: Namespace,
  terminal: Pick<Terminal, "note">,
  progress: () => LaneProgress,
): Disposable {
  const ended = new AbortController();
  const { signal } = ended;
  const isStuck = (): boolean => {
    const { pending, madeAtMs } = progress();
    return pending >= pendingMax || (pending > 0 && env.monotonic() - madeAtMs >= stuckMsMin);
  };
  const run = async (): Promise<void> => {
    let [sinceMs, nextMs, gapMs]: [number | undefined, number, number] = [undefined, 0, gapMsMin];
    for (;;) {
      await env.sleep(lookMs, signal);
      const nowMs = env.monotonic();
      if (!isStuck()) [sinceMs, nextMs, gapMs] = [undefined, 0, gapMsMin];
      else if (nowMs >= nextMs) {
        const waiting = await ns.info({ signal }).then(
          (info) => (info.closed ? undefined : info.waiting),
          (error: unknown) => {
            // The store's own warning says that.
            if (!isBatchWeaveError(error)) throw error;
            return undefined;
          },
        );
        if (waiting) {
          sinceMs ??= nowMs;
          const { lane, batches, missingStep } = waiting;
          terminal.note(
            `warning: step ${missingStep} of ${lane} is missing and keeps ${counted(batches, "batch")} back (${formatMs(Math.max(stuckMsMin, nowMs - sinceMs))}): does a process hold that lane?`,
          );
        }
        gapMs = waiting ? Math.min(gapMsMax, 2 * gapMs) : gapMsMin;
        nextMs = nowMs + gapMs;
      }
    }
  };
  run().catch(() => {});
  return { [Symbol.dispose]: () => ended.abort() };
}
