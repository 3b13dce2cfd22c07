/**
 * Abort signals for measurements of scale: Node's are event targets, and making, linking and firing three of them per hedged call costs more
 * than simulating the call. These do what the code under test asks of one, in the same order, and nothing else.
 */
class LightSignal {
  aborted = false;
  reason: unknown;
  #listeners: (() => void)[] = [];

  addEventListener(_type: "abort", listener: () => void): void {
    this.#listeners.push(listener);
  }

  removeEventListener(_type: "abort", listener: () => void): void {
    const at = this.#listeners.indexOf(listener);
    if (at >= 0) this.#listeners.splice(at, 1);
  }

  throwIfAborted(): void {
    if (this.aborted) throw this.reason;
  }

  /** Node's `setMaxListeners` calls it. */
  setMaxListeners(): void {}

  /** Node's `getEventListeners` calls it. */
  listeners(_type: "abort"): readonly (() => void)[] {
    return this.#listeners;
  }

  fire(reason: unknown): void {
    if (this.aborted) return;
    this.aborted = true;
    this.reason = reason;
    const listeners = this.#listeners;
    this.#listeners = [];
    for (const listener of listeners) listener();
  }
}

class LightAbortController {
  readonly signal = new LightSignal();

  abort(reason: unknown = new Error("aborted")): void {
    this.signal.fire(reason);
  }
}

/** From here on this thread's abort signals are light. For threads that run nothing but a simulation. */
export function useLightAborts(): void {
  Object.assign(globalThis, { AbortController: LightAbortController });
}
