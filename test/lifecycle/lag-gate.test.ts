/**
 * Property: producers stop maxLag steps ahead of the checkpoints, say so, and go on; when ranks and producers wait for each other both fail,
 * naming maxLag and the checkpoint interval. Method: the public API on a memory store, with a real clock and short delays.
 */
import { describe, expect, test } from "vitest";
import { createNamespace, isBatchWeaveError, MemoryStore, type Namespace } from "../../src/index.js";

const slices = [Buffer.from("a"), Buffer.from("b")];
const lag = { pollDelayMs: 5, deadlockMs: 50 };
const cadence = { kind: "interval", intervalMs: 5 } as const;

async function create(): Promise<Namespace> {
  return await createNamespace("memory:lag", { grid: { rows: 2, chunks: 1 } }, { store: new MemoryStore() });
}

/** However long a busy machine takes. */
async function until(holds: () => Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 5));
}

describe("maxLag", () => {
  test("a producer waits at the limit, says so, and goes on when a checkpoint comes", async () => {
    const ns = await create();
    await ns.setMaxLag(8);
    await using producer = await ns.producer({ id: "p", lag, cadence });
    for (let i = 0; i < 8; i++) await producer.append(slices);
    let accepted = false;
    const ninth = producer.append(slices).then(() => {
      accepted = true;
    });
    await until(async () => (await ns.info()).steps.end === 8);
    await until(async () => ns.metrics.value("batchweave_producer_lag_waits_total") === 1);
    expect(accepted).toBe(false);
    expect(ns.metrics.value("batchweave_producer_lag_waits_total")).toBe(1);
    expect(ns.metrics.value("batchweave_producer_lag_wait_steps")).toBeGreaterThanOrEqual(7);
    await using consumer = await ns.consumer({ mesh: { dp: 2 }, rank: 0, lag });
    for (let i = 0; i < 3; i++) await consumer.next();
    await consumer.checkpoint("i-3");
    await ninth;
    expect(ns.metrics.value("batchweave_producer_lag_wait_steps")).toBe(0);
    await producer.flush();
    expect((await ns.info()).steps.end).toBe(9);
  });

  test("is a whole number of at least 1, or none", async () => {
    const ns = await create();
    for (const wrong of [0, -1, 1.5, Number.NaN])
      await expect(ns.setMaxLag(wrong)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    for (const maxLag of [1, undefined]) {
      await ns.setMaxLag(maxLag);
      expect((await ns.info()).maxLag).toBe(maxLag);
    }
  });

  test("several producers overshoot by one batch each at most", async () => {
    const ns = await create();
    await ns.setMaxLag(10);
    const stop = new AbortController();
    const producers = await Promise.all([0, 1, 2].map((n) => ns.producer({ id: `p${n}`, lag, cadence })));
    const work = producers.map(async (producer) => {
      for (;;) await producer.append(slices, { signal: stop.signal });
    });
    await until(async () => (await ns.info()).steps.end >= 10);
    // Long enough for some polls of the gate that must not let anybody through.
    await new Promise((resolve) => setTimeout(resolve, 100));
    stop.abort(new Error("enough"));
    await Promise.allSettled(work);
    for (const producer of producers) await producer.close();
    const { end } = (await ns.info()).steps;
    expect(end).toBeGreaterThanOrEqual(10);
    expect(end).toBeLessThanOrEqual(12);
  });

  test("without it nothing waits and nothing is asked", async () => {
    const ns = await create();
    await using producer = await ns.producer({ id: "p", lag, cadence });
    await producer.flush();
    const before = ns.metrics.value("batchweave_store_requests_total", { op: "list" });
    for (let i = 0; i < 50; i++) await producer.append(slices);
    expect(ns.metrics.value("batchweave_store_requests_total", { op: "list" })).toBeLessThanOrEqual(before + 2);
    await producer.flush();
  });
});

describe("hazard 46: maxLag shorter than the checkpoint interval", () => {
  test("both sides fail with LAG_DEADLOCK and name the two numbers", async () => {
    const ns = await create();
    await ns.setMaxLag(4);
    await using producer = await ns.producer({ id: "p", lag, cadence });
    const writing = (async () => {
      for (let i = 0; i < 100; i++) await producer.append(slices);
    })();
    await using consumer = await ns.consumer({ mesh: { dp: 2 }, rank: 0, lag, waitTimeoutMs: 20_000 });
    const reading = (async () => {
      for await (const share of consumer)
        if (share.iteration % 10 === 9) await consumer.checkpoint(`i-${share.iteration}`);
    })();
    const outcomes = await Promise.allSettled([writing, reading]);
    for (const outcome of outcomes) {
      expect(outcome.status).toBe("rejected");
      const error = (outcome as PromiseRejectedResult).reason;
      expect(isBatchWeaveError(error, "LAG_DEADLOCK")).toBe(true);
      expect(error.message).toMatch(/maxLag = 4 .*checkpoint interval/s);
    }
  });

  test("with a wide enough limit the same job runs to its end", async () => {
    const ns = await create();
    await ns.setMaxLag(14);
    await using producer = await ns.producer({ id: "p", lag, cadence });
    const writing = (async () => {
      for (let i = 0; i < 60; i++) await producer.append(slices);
      await producer.flush();
      await ns.endLog();
    })();
    await using consumer = await ns.consumer({ mesh: { dp: 2 }, rank: 0, lag, waitTimeoutMs: 20_000 });
    let seen = 0;
    for await (const share of consumer) {
      seen++;
      if (share.iteration % 10 === 9) await consumer.checkpoint(`i-${share.iteration}`, share.next, { keepLast: 2 });
    }
    await writing;
    expect(seen).toBe(60);
    expect((await ns.checkpoints()).map((c) => c.step)).toEqual([60, 50]);
  });
});
