/** Many waits on one signal. */

const listenersOf = new WeakMap<AbortSignal, Set<() => void>>();

/**
 * Calls `listener` when `signal` aborts, at once if it has; the result takes it back, and must be called in the end. However many there are, the signal itself
 * gets one listener, and none once all are taken back: Node calls more than ten a leak, on stderr of a program that passes one signal to many calls.
 */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  if (signal.aborted) {
    listener();
    return () => {};
  }
  const listeners = listenersOf.get(signal) ?? listenTo(signal);
  // Of its own, so that a caller that comes twice with the same function is called twice and taken back one by one.
  const one = (): void => listener();
  listeners.add(one);
  return () => {
    listeners.delete(one);
    if (listeners.size > 0 || listenersOf.get(signal) !== listeners) return;
    listenersOf.delete(signal);
    signal.removeEventListener("abort", tellAll);
  };
}

function listenTo(signal: AbortSignal): Set<() => void> {
  const listeners = new Set<() => void>();
  listenersOf.set(signal, listeners);
  signal.addEventListener("abort", tellAll, { once: true });
  return listeners;
}

/** One function for all signals: the signal knows who it is. */
function tellAll(this: AbortSignal): void {
  const listeners = listenersOf.get(this);
  listenersOf.delete(this);
  for (const listener of listeners ?? []) listener();
}
