/** An abort of our own that also follows the caller's. */

/** A controller that aborts when `parent` does, with its reason, until unlinked. */
export interface LinkedAbort {
  readonly signal: AbortSignal;
  abort(reason: unknown): void;
  /** Must be called in the end, or a long-lived parent would collect listeners (as `AbortSignal.any` does on Node 20). */
  unlink(): void;
}

/** Makes a {@link LinkedAbort}. */
export function linkAbort(parent: AbortSignal | undefined): LinkedAbort {
  const controller = new AbortController();
  const follow = (): void => controller.abort(parent?.reason);
  if (parent?.aborted) follow();
  else parent?.addEventListener("abort", follow, { once: true });
  return {
    signal: controller.signal,
    abort: (reason) => controller.abort(reason),
    unlink: () => parent?.removeEventListener("abort", follow),
  };
}
