/** Ends calls of SDKs that would wait for ever: some know no timeout, some none that covers a transfer that stops in the middle. */
import type { Env } from "../../env/index.js";
import { linkAbort } from "../linked-abort.js";
import type { CallOptions } from "../object-store.js";

/** Nothing came for too long. The code is the one that the network itself would give. */
export class NoAnswer extends Error {
  readonly code = "ETIMEDOUT";
}

/** While bytes are sent, a connection slower than this is taken for dead. */
const slowestBytesPerMs = 1_000;

/** The watch of one store. */
export class StallWatch {
  readonly #env: Env;
  readonly #timeoutMs: number;

  constructor(env: Env, timeoutMs: number) {
    this.#env = env;
    this.#timeoutMs = timeoutMs;
  }

  /** As {@link watched}, for a call that sends `bytes` before anything comes back. */
  run<T>(
    options: CallOptions | undefined,
    bytes: number,
    call: (signal: AbortSignal, progress: () => void) => Promise<T>,
  ): Promise<T> {
    return watched(this.#env, this.#timeoutMs + bytes / slowestBytesPerMs, options, call);
  }
}

/**
 * What `call` gives; {@link NoAnswer} when it makes no progress for `stallMs`, and the caller's reason when that aborts. `call` gets a signal
 * that aborts in both cases, and tells its progress.
 */
export async function watched<T>(
  env: Env,
  stallMs: number,
  options: CallOptions | undefined,
  call: (signal: AbortSignal, progress: () => void) => Promise<T>,
): Promise<T> {
  const link = linkAbort(options?.signal);
  const done = new AbortController();
  let lastMs = env.monotonic();
  const watch = async (): Promise<void> => {
    for (;;) {
      const leftMs = lastMs + stallMs - env.monotonic();
      if (leftMs <= 0) return link.abort(new NoAnswer(`no answer within ${stallMs} ms`));
      await env.sleep(leftMs, done.signal);
    }
  };
  const ended = new Promise<never>((_, reject) => {
    const end = (): void => reject(link.signal.reason);
    if (link.signal.aborted) end();
    else link.signal.addEventListener("abort", end, { once: true });
  });
  ended.catch(() => {});
  watch().catch(() => {}); // it was done in time
  const working = call(link.signal, () => {
    lastMs = env.monotonic();
  });
  try {
    return await Promise.race([working, ended]);
  } finally {
    done.abort();
    link.unlink();
    working.catch(() => {}); // no caller waits for it any more
  }
}
