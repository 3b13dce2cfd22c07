/**
 * Property: with reclaim running all the time an upload within the grace never expires, however few or many versions there are, and one that expired
 * gets through the next time (hazard 55). Method: real producers on a memory store with virtual time, and a reclaim after every commit.
 */
import { describe, expect, test } from "vitest";
import { type Descriptor, parseBatchKey } from "../../src/format/index.js";
import { createNamespace, MemoryStore } from "../../src/index.js";
import { lifeStore } from "../../src/log/index.js";
import { AutoEnv } from "./auto-env.js";
import { HookedStore } from "./hooked-store.js";

const slice = [Buffer.from("x")];

describe("hazard 55: uploads beside an eager reclaimer", () => {
  test("a namespace with a version or two a minute uploads nothing twice, though each upload takes one and is reclaimed beside", async () => {
    const env = new AutoEnv();
    const inner = new MemoryStore();
    const store = new HookedStore(inner);
    const ns = await createNamespace("memory:55", { grid: { rows: 1, chunks: 1 } }, { store, env });
    const put = store.put.bind(store);
    store.put = async (key, body, options) => {
      await put(key, body, options);
      if (!key.includes("/batch/")) return;
      env.nowMs += 60_000;
      await ns.reclaim({ graceMs: 300_000, keepVersions: 1 });
    };
    await using producer = await ns.producer({ id: "slow", cadence: { kind: "interval", intervalMs: 1 } });
    for (let i = 0; i < 150; i++) {
      await producer.append(slice);
      await producer.flush();
    }
    const { objects } = await lifeStore(inner, { format: 2, uuid: ns.uuid }).list("batch/");
    const attempts = objects.map(({ key }) => parseBatchKey(key)?.name.attempt);
    expect(attempts.length).toBe(150);
    expect(new Set(attempts)).toEqual(new Set([0]));
  });

  test("an upload that took longer than the grace goes through under a new name", async () => {
    const env = new AutoEnv();
    const inner = new MemoryStore();
    const store = new HookedStore(inner);
    const ns = await createNamespace("memory:55b", { grid: { rows: 1, chunks: 1 } }, { store, env });
    const other = await ns.producer({ id: "other", cadence: { kind: "interval", intervalMs: 1 } });
    const put = store.put.bind(store);
    let slow = 0;
    store.put = async (key, body, options) => {
      if (key.includes("/slow-") && key.includes("/batch/") && slow++ === 0) {
        for (let i = 0; i < 8; i++) {
          await other.append(slice);
          await other.flush();
          env.nowMs += 60_000;
        }
        await ns.reclaim({ graceMs: 120_000, keepVersions: 1 });
      }
      await put(key, body, options);
    };
    const producer = await ns.producer({ id: "slow", cadence: { kind: "interval", intervalMs: 1 } });
    const ticket = await producer.append(slice);
    await producer.flush();
    await ticket.committed;
    const report = await ns.verify({ level: "bytes" });
    expect(report.problems).toEqual([]);
    const names = (await lifeStore(inner, { format: 2, uuid: ns.uuid }).list("batch/")).objects.map(
      ({ key }) => parseBatchKey(key)?.name as Descriptor,
    );
    expect(
      names
        .filter((n) => n.producer === "slow")
        .map((n) => n.attempt)
        .sort(),
    ).toEqual([0, 1]);
    await producer.close();
    await other.close();
  });

  test("a backlog that a reclaim passed is uploaded again at once, not one batch for every commit", async () => {
    const env = new AutoEnv();
    const store = new MemoryStore();
    const ns = await createNamespace("memory:55c", { grid: { rows: 1, chunks: 1 } }, { store, env });
    const other = await ns.producer({ id: "other", cadence: { kind: "interval", intervalMs: 1 } });
    // It commits only when it is flushed, so all of them are in flight when the cutoff passes.
    const producer = await ns.producer({ id: "backlog", cadence: { kind: "fixed", batches: 10_000 } });
    const batches = 200;
    for (let i = 0; i < batches; i++) await producer.append(slice);
    const life = lifeStore(store, { format: 2, uuid: ns.uuid });
    while ((await life.list("batch/")).objects.length < batches) await env.sleep(1);
    for (let i = 0; i < 8; i++) {
      await other.append(slice);
      await other.flush();
      env.nowMs += 60_000;
    }
    await ns.reclaim({ graceMs: 120_000, keepVersions: 1 });
    const before = (await ns.info()).version;
    await producer.flush();
    const { version, steps } = await ns.info();
    expect(steps.end).toBe(8 + batches);
    expect(version - before).toBeLessThanOrEqual(4);
    await producer.close();
    await other.close();
  });
});
