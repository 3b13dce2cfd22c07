/**
 * Property: large writes take turns in the order they came and never use all threads of the pool, and one that fails gives its lane
 * back. Method: writes that end when told to.
 */
import { expect, test } from "vitest";
import { BulkLanes } from "../../src/store/file-lanes.js";

test("all threads but one, in order, also after failures", async () => {
  const lanes = new BulkLanes();
  const begun: number[] = [];
  const ends: { resolve: () => void; reject: (e: Error) => void }[] = [];
  const calls = Array.from({ length: 8 }, (_, i) =>
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
  expect(inFlight).toBe(Math.max(1, (Number(process.env["UV_THREADPOOL_SIZE"]) || 4) - 1));
  for (let i = 0; i < 8; i++) {
    if (i % 2 === 0) ends[i]?.resolve();
    else ends[i]?.reject(new Error("disk full"));
    await settle();
    expect(begun.length).toBe(Math.min(8, inFlight + i + 1));
  }
  expect(begun).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  expect((await results).filter(({ status }) => status === "rejected")).toHaveLength(4);
});
