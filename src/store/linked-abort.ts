/** An abort of our own that also follows the caller's. */
import { getEventListeners } from "node:events";
import { onAbort } from "../env/index.js";

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
  const unlink = parent && onAbort(parent, () => controller.abort(parent.reason));
  return {
    signal: controller.signal,
    abort: (reason) => controller.abort(reason),
    unlink: () => unlink?.(),
  };
}

/** Signals kept for the next calls at most. */
const keptMax = 64;

/**
 * Linked aborts that are used one after another: making a signal, and collecting it as garbage, costs more than the rest of a call that is watched. One is used
 * again only when it has not aborted and has no listeners any more.
 */
export class AbortLinks {
  readonly #free: AbortController[] = [];

  /** As {@link linkAbort}. The call that was given the signal must be done with it when it is unlinked. */
  link(parent: AbortSignal | undefined): LinkedAbort {
    const controller = this.#free.pop() ?? new AbortController();
    const { signal } = controller;
    const unlink = parent && onAbort(parent, () => controller.abort(parent.reason));
    return {
      signal,
      abort: (reason) => controller.abort(reason),
      unlink: () => {
        unlink?.();
        if (signal.aborted || this.#free.length >= keptMax) return;
        if (getEventListeners(signal, "abort").length === 0) this.#free.push(controller);
      },
    };
  }
}
