/** A limit on work that is known: many items, a few at a time. */

/** Calls `work` for every item, at most `inFlightMax` at a time. After a failure none begins, and it is thrown once all that ran have ended. */
export async function inParallel<T>(
  items: Iterable<T>,
  inFlightMax: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const iterator = items[Symbol.iterator]();
  let failure: { error: unknown } | undefined;
  const worker = async (): Promise<void> => {
    for (let next = iterator.next(); !next.done && !failure; next = iterator.next()) {
      try {
        await work(next.value);
      } catch (error) {
        failure ??= { error };
      }
    }
  };
  await Promise.all(Array.from({ length: inFlightMax }, worker));
  if (failure) throw failure.error;
}

/** As {@link inParallel}; gives what `work` gave, in the order of the items. */
export async function mapParallel<T, R>(
  items: readonly T[],
  inFlightMax: number,
  work: (item: T, index: number) => Promise<R>,
): Promise<R[]> {
  const results = new Array<R>(items.length);
  await inParallel(items.entries(), Math.min(inFlightMax, items.length), async ([index, item]) => {
    results[index] = await work(item, index);
  });
  return results;
}
