/**
 * Property: a rank that waits says for what after ten seconds, long before it gives up; a rank that starts before its namespace exists waits for it,
 * says so at once, and gives up at a limit. Method: time that the test moves.
 */
import { expect, test } from "vitest";
import { createNamespace, MemoryStore, openNamespace } from "../../src/index.js";
import { ManualEnv } from "./manual-env.js";

const grid = { rows: 1, chunks: 1 };

test("a rank tells what it waits for after ten seconds, and again, until it gives up", async () => {
  const env = new ManualEnv();
  const ns = await createNamespace("memory:", { grid }, { env, store: new MemoryStore() });
  const begunMs = env.now();
  const told: [number, string][] = [];
  const consumer = await ns.consumer({
    mesh: { dp: 1 },
    rank: 0,
    environment: {},
    waitTimeoutMs: 60_000,
    onWait: (message) => told.push([Math.round((env.now() - begunMs) / 1_000), message]),
  });
  await expect(env.drive(consumer.next())).rejects.toMatchObject({ code: "WAIT_TIMEOUT" });
  expect(told.map(([seconds]) => seconds)).toEqual([10, 20, 40]);
  expect(told[0]?.[1]).toMatch(/^Still waiting. Waited 10 s for step 0 .*No producer has ever opened this namespace/);
});

test("a rank that starts before its namespace exists says so and waits for it", async () => {
  const env = new ManualEnv();
  const store = new MemoryStore();
  const told: string[] = [];
  const opening = openNamespace("memory:", { env, store, waitMs: 60_000, onWait: (message) => told.push(message) });
  await env.pass(30_000);
  expect(told).toEqual(["Waiting for a namespace at memory:, at most 60 s: it is not created yet."]);
  const made = await createNamespace("memory:", { grid }, { env, store });
  expect((await env.drive(opening)).uuid).toBe(made.uuid);
});

test("it gives up at the limit, and without one at once", async () => {
  const env = new ManualEnv();
  const store = new MemoryStore();
  const begunMs = env.now();
  const opening = env.drive(openNamespace("memory:", { env, store, waitMs: 60_000 }));
  await expect(opening).rejects.toMatchObject({
    code: "NO_NAMESPACE",
    message: expect.stringContaining("within 60 s"),
  });
  expect(env.now() - begunMs).toBe(60_000);
  await expect(openNamespace("memory:", { env, store })).rejects.toMatchObject({ code: "NO_NAMESPACE" });
  expect(env.now() - begunMs).toBe(60_000);
});
