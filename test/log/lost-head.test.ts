/**
 * Property: a log whose manifests were removed by hand is told apart from one whose listing is late, within seconds and in a sentence; an id that is
 * in use is not taken over by mistake where that was asked for. Method: a memory store with a clock that moves with every sleep.
 */

import { expect, test } from "vitest";
import { openProducer } from "../../src/cadence/index.js";
import { reclaim, registerCheckpoint } from "../../src/lifecycle/index.js";
import { HookedStore } from "../lifecycle/hooked-store.js";
import { cursorAt, keysOf, SmallWorld, Writer } from "../lifecycle/small-world.js";

const uri = "memory:a";

async function reclaimed(): Promise<{ world: SmallWorld; log: Awaited<ReturnType<SmallWorld["create"]>> }> {
  const world = new SmallWorld();
  const log = await world.create(uri);
  await new Writer(log).write(12);
  await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 6) });
  await reclaim(log, { graceMs: 0, keepVersions: 2 });
  return { world, log };
}

test("without any manifest above the boundary loading fails after two seconds, and says what to do", async () => {
  const { world, log } = await reclaimed();
  await log.store.delete(await keysOf(log.store, "manifest/"));
  // Timers of the commits before, which nobody waits for, move this clock too.
  await new Promise((resolve) => setTimeout(resolve, 5));
  const begunMs = world.env.nowMs;
  await expect(world.open(uri, log.spec).head.load()).rejects.toMatchObject({
    code: "MISSING_OBJECT",
    message: expect.stringMatching(/No manifest above the boundary \d+ .*Restore manifest\//),
  });
  expect(world.env.nowMs - begunMs).toBeLessThan(3_000);
});

test("hazard 32: a listing that shows nothing for a while is waited for", async () => {
  const { world, log } = await reclaimed();
  let late = 10;
  const store = new HookedStore(log.store, {
    afterList: async (prefix, page) => {
      if (prefix === "manifest/" && late-- > 0) (page as { objects: readonly object[] }).objects = [];
    },
  });
  const { version } = await world.open(uri, log.spec, store).head.load();
  expect(version).toBe((await log.head.jump()).version);
});

test("takeover when-quiet: refused while the id was used within half a minute, in either order; then allowed", async () => {
  const world = new SmallWorld();
  const log = await world.create(uri);
  const open = (takeover: boolean | "when-quiet") => openProducer(world.open(uri, log.spec), "p", { takeover });
  expect((await open("when-quiet")).state.epoch).toBe(1);
  await expect(open("when-quiet")).rejects.toMatchObject({
    code: "FENCED",
    message: expect.stringMatching(/opened or wrote [\d.]+ s ago \(epoch 1\).*takeover is off/),
  });
  world.env.nowMs += 29_000;
  await expect(open("when-quiet")).rejects.toMatchObject({ code: "FENCED" });
  world.env.nowMs += 2_000;
  expect((await open("when-quiet")).state.epoch).toBe(2);
  expect((await open(true)).state.epoch).toBe(3);
});
