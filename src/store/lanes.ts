/** Many calls, a few at a time. */

/** Calls `work` for every item with at most `lanesMax` going at once. After a failure no new one begins, and the first failure is thrown. */
export async function inLanes<T>(
  items: readonly T[],
  lanesMax: number,
  work: (item: T) => Promise<void>,
): Promise<void> {
  let next = 0;
  let hasFailed = false;
  const lane = async (): Promise<void> => {
    while (next < items.length && !hasFailed) {
      try {
        await work(items[next++] as T);
      } catch (e) {
        hasFailed = true;
        throw e;
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(lanesMax, items.length) }, lane));
}
