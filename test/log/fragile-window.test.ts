/**
 * Property: what an attempt reports as its fragile window begins with its last look for a newer version. The search of a producer that is thousands of versions behind comes
 * before it: counted in, it tripled the intervals of DAC with thousands of producers. Method: a clock that every LIST moves.
 */
import { expect, test } from "vitest";
import { HookedStore } from "../lifecycle/hooked-store.js";
import { SmallWorld, Writer } from "../lifecycle/small-world.js";

test("a producer far behind has as short a fragile window as any", async () => {
  const world = new SmallWorld();
  const log = await world.create("memory:a");
  let lists = 0;
  const store = new HookedStore(log.store, {
    afterList: async (prefix) => {
      if (prefix !== "manifest/") return;
      lists++;
      world.env.nowMs += 1_000;
    },
  });
  const late = await new Writer(world.open("memory:a", log.spec, store), "late").open();
  const batch = await late.upload();
  await new Writer(log, "busy").write(1_010);
  lists = 0;
  const { outcome, fragileMs } = await late.log.attemptBatches(late.holder as NonNullable<Writer["holder"]>, [batch], {
    fresh: true,
  });
  expect(outcome).toBe("committed");
  expect(lists).toBeGreaterThan(1);
  expect(fragileMs).toBeLessThan(1_000);
});
