/**
 * Property: one answer that never comes does not fail a job whose store works; at a place that never served anything, the caller is told after one
 * timeout, and within seconds where only a gateway answers; any number of calls outlives an outage without burying the store. Method: calls that take
 * all the patience and fail, and hundreds that fail at once, on a virtual clock.
 */
import { expect, test } from "vitest";
import { BatchWeaveError } from "../../src/errors.js";
import { withRetry } from "../../src/store/index.js";
import { scriptedStore } from "./scripted-store.js";
import { VirtualEnv } from "./virtual-env.js";

function unavailable(): BatchWeaveError {
  return new BatchWeaveError("STORE_UNAVAILABLE", "later");
}

test("an answer that took all the patience is asked for once more where others came, and only once", async () => {
  const env = new VirtualEnv();
  const { store, calls } = scriptedStore({
    get: async () => {
      await env.sleep(30_000);
      throw new BatchWeaveError("STORE_UNAVAILABLE", "no answer; try again", { errno: "ETIMEDOUT" });
    },
    list: async () => ({ objects: [], more: false }),
  });
  const retrying = withRetry(store, env);
  await env.run(retrying.get("k").catch(() => {}));
  expect(calls.get).toBe(1);
  await retrying.list("");
  await env.run(retrying.get("k").catch(() => {}));
  expect(calls.get).toBe(3);
});

test("a gateway's page where no store ever answered is told within 5 s, whatever it asks for; once one did, it is waited for", async () => {
  for (const retryAfterMs of [undefined, 120_000, 1_000]) {
    const details = { isForeign: true, status: 502, retryAfterMs };
    const env = new VirtualEnv();
    const { store: flaky, calls } = scriptedStore({
      get: async () => {
        await env.sleep(10);
        throw new BatchWeaveError("STORE_UNAVAILABLE", "a page; check the address", details);
      },
      list: async () => ({ objects: [], more: false }),
    });
    const store = withRetry(flaky, env);
    await env.run(store.get("k").catch(() => {}));
    expect(env.now()).toBeLessThanOrEqual(5_010);
    if (retryAfterMs !== 120_000) expect(calls.get).toBeGreaterThan(3);
    await store.list("");
    const before = env.now();
    await env.run(store.get("k").catch(() => {}));
    expect(env.now() - before).toBeGreaterThan(6_000);
  }
});

test("a spent budget makes retries wait for their turn, and fails nobody whose patience lasts", async () => {
  const env = new VirtualEnv();
  let downUntilMs = 1_000;
  const { store: flaky, calls } = scriptedStore({
    get: async () => {
      if (env.now() < downUntilMs) throw unavailable();
      return undefined;
    },
  });
  const store = withRetry(flaky, env, { budgetMax: 10 });
  const readAll = () => env.run(Promise.allSettled(Array.from({ length: 100 }, () => store.get("k"))));
  const outage = await readAll();
  expect(outage.every(({ status }) => status === "fulfilled")).toBe(true);
  // All of them once, ten at once again, 20 a second after that.
  expect(calls.get).toBeLessThanOrEqual(100 + 10 + 20 * Math.ceil(env.now() / 1_000) + 1);
  calls.get = 0;
  downUntilMs = Number.POSITIVE_INFINITY;
  const begunMs = env.now();
  expect((await readAll()).every(({ status }) => status === "rejected")).toBe(true);
  expect(calls.get).toBeLessThanOrEqual(100 + 10 + 20 * 31);
  expect(env.now() - begunMs).toBeLessThan(40_000);
});

test("nobody waits longer for a turn than its patience lasts, however many failed at once", async () => {
  const env = new VirtualEnv();
  const { store: flaky } = scriptedStore({
    get: async () => {
      throw unavailable();
    },
    list: async () => ({ objects: [], more: false }),
  });
  const store = withRetry(flaky, env, { budgetMax: 10 });
  await store.list("");
  await env.run(Promise.allSettled(Array.from({ length: 2_000 }, () => store.get("k"))));
  expect(env.now()).toBeLessThanOrEqual(31_000);
});
