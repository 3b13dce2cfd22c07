/**
 * Property: never more is under way than was said; turns are taken by priority, then in the order of coming; a failure gives its place back, lets nothing new
 * begin, and is thrown when nothing is under way any more. Method: work that ends when told to.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Gate, inParallel, mapParallel } from "../../src/flow/index.js";

interface Told {
  readonly item: number;
  readonly end: (failure?: Error) => void;
}

/** Work that notes its beginning and ends when told to. */
function toldWork(): { begun: Told[]; work: (item: number) => Promise<number> } {
  const begun: Told[] = [];
  const work = (item: number): Promise<number> =>
    new Promise((resolve, reject) => {
      begun.push({ item, end: (failure) => (failure ? reject(failure) : resolve(item)) });
    });
  return { begun, work };
}

const settle = async (): Promise<void> => {
  for (let i = 0; i < 10; i++) await Promise.resolve();
};

describe("a gate", () => {
  test("lets so many in at a time, in order, also after failures", async () => {
    const { begun, work } = toldWork();
    const gate = new Gate(6);
    const results = Promise.allSettled(Array.from({ length: 12 }, (_, i) => gate.pass(() => work(i))));
    for (let i = 0; i < 12; i++) {
      await settle();
      expect(begun.length).toBe(Math.min(12, 6 + i));
      begun[i]?.end(i % 2 ? new Error("disk full") : undefined);
    }
    expect(begun.map(({ item }) => item)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    expect((await results).filter(({ status }) => status === "rejected")).toHaveLength(6);
  });

  test("lets the lower priority go first", async () => {
    const { begun, work } = toldWork();
    const gate = new Gate(1);
    const calls = [5, 3, 3.5, 1, 3].map((priority, i) => gate.pass(() => work(i), priority));
    for (let i = 0; i < calls.length; i++) {
      await settle();
      begun[i]?.end();
    }
    await Promise.all(calls);
    expect(begun.map(({ item }) => item)).toEqual([0, 3, 1, 4, 2]);
  });
});

describe("in parallel", () => {
  test("as many as there is room for, results in the order of the items", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(99)), fc.integer({ min: 1, max: 9 }), async (items, inFlightMax) => {
        const { begun, work } = toldWork();
        const all = mapParallel(items, inFlightMax, work);
        for (let i = 0; i < items.length; i++) {
          await settle();
          expect(begun.length).toBe(Math.min(items.length, i + inFlightMax));
          begun[i]?.end();
        }
        expect(await all).toEqual(items);
      }),
    );
  });

  test("a failure is the first, and comes when the others have ended", async () => {
    const { begun, work } = toldWork();
    let isOver = false;
    const all = inParallel([0, 1, 2, 3, 4, 5], 3, async (item) => void (await work(item))).finally(() => {
      isOver = true;
    });
    all.catch(() => {});
    await settle();
    begun[1]?.end(new Error("first"));
    await settle();
    begun[0]?.end(new Error("second"));
    await settle();
    expect([isOver, begun.length]).toEqual([false, 3]);
    begun[2]?.end();
    await expect(all).rejects.toThrow("first");
    expect(begun.length).toBe(3);
  });
});
