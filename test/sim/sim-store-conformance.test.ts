/**
 * Property: without faults, the simulated store is a store like any other; one that ignores preconditions is refused by the probe.
 * Method: the conformance suite through a simulated client whose world runs on whenever a call waits.
 */
import { expect, test } from "vitest";
import { Simulation } from "../../sim/index.js";
import { isBatchWeaveError } from "../../src/errors.js";
import { assertSafe, type ObjectStore, probeStore } from "../../src/store/index.js";
import { describeStoreConformance } from "../store/conformance.js";

/** A simulated client for callers outside the simulation. */
async function outsideClient(): Promise<ObjectStore> {
  const sim = new Simulation({ seed: 1, latency: "wide" });
  let client: ObjectStore | undefined;
  sim.spawn("outside", async ({ store }) => {
    client = store;
    await new Promise(() => {});
  });
  await sim.world.run();
  const inner = client as unknown as ObjectStore;
  let running: Promise<unknown> | undefined;
  const advance = <T>(call: Promise<T>): Promise<T> => {
    running ??= sim.world.run().finally(() => {
      running = undefined;
    });
    // A call made while the last run was ending would wait for ever.
    return Promise.race([call, running.then(() => (running ? call : advance(call)))]);
  };
  return {
    uri: inner.uri,
    create: async (...args) => advance(inner.create(...args)),
    put: async (...args) => advance(inner.put(...args)),
    get: async (...args) => advance(inner.get(...args)),
    getRange: async (...args) => advance(inner.getRange(...args)),
    list: async (...args) => advance(inner.list(...args)),
    delete: async (...args) => advance(inner.delete(...args)),
  };
}

describeStoreConformance("simulated", async () => ({ store: await outsideClient(), hasNoLimits: true }));

test("21: a store that ignores preconditions is refused, a good one is not", async () => {
  for (const ignoresPreconditions of [true, false]) {
    const sim = new Simulation({ seed: 1, store: { ignoresPreconditions } });
    let refused: boolean | undefined;
    sim.spawn("prober", async ({ store, env }) => {
      try {
        assertSafe(await probeStore(store, env));
        refused = false;
      } catch (e) {
        refused = isBatchWeaveError(e, "UNSAFE_STORE");
      }
    });
    await sim.world.run();
    expect(refused).toBe(ignoresPreconditions);
    expect(sim.store.keys()).toEqual([]);
  }
});
