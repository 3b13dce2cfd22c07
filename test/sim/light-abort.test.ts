/** Property: hedged calls work on light abort signals as on Node's. Method: a read that is late, in virtual time, on the simulation's signals. */
import { expect, test } from "vitest";
import { useLightAborts } from "../../sim/index.js";
import { withHedging } from "../../src/store/index.js";
import { scriptedStore } from "../store/scripted-store.js";
import { VirtualEnv } from "../store/virtual-env.js";

test("the first is late, the second answers, the first is aborted", async () => {
  useLightAborts();
  const env = new VirtualEnv();
  let delayMs = 10;
  let aborted = 0;
  const { store, calls } = scriptedStore({
    get: async (_key, options) => {
      const sleep = env.sleep(delayMs, options?.signal);
      delayMs = 10;
      await sleep.catch((e: unknown) => {
        aborted++;
        throw e;
      });
      return new Uint8Array(1);
    },
  });
  const hedged = withHedging(store, env);
  const { signal } = new AbortController();
  for (let i = 0; i < 100; i++) await env.run(hedged.get("k", { signal }));
  expect(calls.get).toBe(100);
  delayMs = 5_000;
  const begun = env.now();
  await env.run(hedged.get("k", { signal }));
  expect(env.now() - begun).toBeLessThan(100);
  expect([calls.get, aborted]).toEqual([102, 1]);
});
