/** Waiting for steps to come into the log. */
import type { Manifest } from "../format/index.js";
import type { Log } from "../log/index.js";
import type { ConsumerObserver } from "./consumer-observer.js";
import { reclaimed } from "./start-position.js";

/** How often a reader that waits looks. */
export interface PollSettings {
  readonly pollDelayMs: number;
  readonly pollDelayMsMax: number;
}

/** After this many versions in a row, one by one, it jumps to the newest. */
const stepsBeforeJump = 4;
const pollDelayGrowth = 1.5;
const soonShare = 1 / 12;

/** A verified manifest in which steps `first` to `last` are visible; undefined when the log is closed before them. RECLAIMED below its trim. */
export async function untilVisible(
  log: Log,
  { first, last, row }: { readonly first: number; readonly last: number; readonly row: number },
  { pollDelayMs, pollDelayMsMax }: PollSettings,
  options: {
    /** Until it has waited for long, no delay is longer than this, or a twelfth of the wait. */
    readonly soonMsMax?: number | undefined;
    readonly observer?: ConsumerObserver | undefined;
    readonly signal?: AbortSignal | undefined;
  },
): Promise<Manifest | undefined> {
  const { observer, signal, soonMsMax = pollDelayMsMax } = options;
  const begunMs = log.env.monotonic();
  let delayMs = pollDelayMs;
  let moves = 0;
  let manifest = log.head.known ?? (await log.head.load({ signal }));
  for (;;) {
    if (first < manifest.steps.trim) throw reclaimed(row, manifest, log.spec.grid.rows);
    if (last < manifest.steps.end) return manifest;
    if (manifest.closed) return undefined;
    const next = moves < stepsBeforeJump ? await log.head.advance({ signal }) : await log.head.jump({ signal });
    const moved = next.version > manifest.version;
    manifest = next;
    observer?.onPoll?.({ version: next.version, moved, end: next.steps.end });
    if (moved) {
      moves++;
      delayMs = pollDelayMs;
      continue;
    }
    moves = 0;
    await log.env.sleep(delayMs * (0.5 + log.env.random()), signal);
    const soonMs = Math.max(soonMsMax, soonShare * (log.env.monotonic() - begunMs));
    delayMs = Math.min(delayMs * pollDelayGrowth, pollDelayMsMax, soonMs);
  }
}
