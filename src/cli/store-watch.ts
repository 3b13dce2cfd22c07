/** Tells people that the store does not answer, and when it does again: a command that only tries again looks as if it had stopped. */
import type { Env, Metrics } from "../index.js";
import type { Terminal } from "./terminal.js";
import { formatMs } from "./terminal.js";

const lookMs = 500;
/** Shorter hiccups are not worth a line. */
const toldMsMin = 2_000;
const againMs = 30_000;

/** Watches until it is disposed. */
export function watchStore(env: Env, metrics: Metrics, terminal: Terminal): Disposable {
  const ended = new AbortController();
  let [toldAtMs, sinceMs]: [number | undefined, number] = [undefined, 0];
  const look = (): void => {
    const nowMs = env.monotonic();
    const awayMs = 1_000 * metrics.value("batchweave_store_unreachable_seconds");
    if (awayMs >= toldMsMin && (toldAtMs === undefined || nowMs - toldAtMs >= againMs)) {
      if (toldAtMs === undefined) sinceMs = nowMs - awayMs;
      toldAtMs = nowMs;
      terminal.note(
        `warning: the store has not answered for ${formatMs(awayMs)}; requests are tried again, and nothing that was accepted is lost`,
      );
    } else if (awayMs === 0 && toldAtMs !== undefined) {
      toldAtMs = undefined;
      terminal.note(`the store answers again, after ${formatMs(nowMs - sinceMs)}`);
    }
  };
  const run = async (): Promise<void> => {
    for (;;) {
      await env.sleep(lookMs, ended.signal);
      look();
    }
  };
  run().catch(() => {});
  return { [Symbol.dispose]: () => ended.abort() };
}
