/** Doing many things, a few at a time. */

/** Calls `work` for every item, at most `inFlightMax` at a time, and stops at the first failure once all that ran have ended. */
export async function inParallel<T>(
  items: Iterable<T>,
  inFlightMax: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const iterator = items[Symbol.iterator]();
  let failure: { error: unknown } | undefined;
  const lane = async (): Promise<void> => {
    for (let next = iterator.next(); !next.done && !failure; next = iterator.next()) {
      try {
        await work(next.value);
      } catch (error) {
        failure ??= { error };
      }
    }
  };
  await Promise.all(Array.from({ length: inFlightMax }, lane));
  if (failure) throw failure.error;
}
