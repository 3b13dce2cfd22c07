/** Waiting that ends with a signal, for work that others may need: it goes on, only this wait ends. */

/** What the work gives, or the signal's reason if that comes first. */
export async function orAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return await work;
  if (signal.aborted) {
    // Nobody waits for it any more: that it fails too is not news, and must not end the process.
    work.catch(() => {});
    throw signal.reason;
  }
  let stop = (): void => {};
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}
