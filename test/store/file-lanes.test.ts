/**
 * Property: large writes take turns in the order they came, not many more at a time than there are threads, and one that fails gives its lane
 * back. Method: writes that end when told to.
 */
import { expect, test } from "vitest";
import { BulkLanes } from "../../src/store/file/file-lanes.js";

test("two more than threads, in order, also after failures", async () => {
  const lanes = new BulkLanes();
  const begun: number[] = [];
  const ends: { resolve: () => void; reject: (e: Error) => void }[] = [];
  const calls = Array.from({ length: 12 }, (_, i) =>
    lanes.pass(() => {
      begun.push(i);
      return new Promise<void>((resolve, reject) => ends.push({ resolve, reject }));
    }),
  );
  const results = Promise.allSettled(calls);
  const settle = async (): Promise<void> => {
    for (let i = 0; i < 5; i++) await Promise.resolve();
  };
  await settle();
  const inFlight = begun.length;
  expect(inFlight).toBe((Number(process.env["UV_THREADPOOL_SIZE"]) || 4) + 2);
  for (let i = 0; i < 12; i++) {
    if (i % 2 === 0) ends[i]?.resolve();
    else ends[i]?.reject(new Error("disk full"));
    await settle();
    expect(begun.length).toBe(Math.min(12, inFlight + i + 1));
  }
  expect(begun).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
  expect((await results).filter(({ status }) => status === "rejected")).toHaveLength(6);
});
