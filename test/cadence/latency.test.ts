/**
 * Property: a caller that awaits a ticket knows soon after the batch is visible, at the pace and the cost of a pool without waiting callers; no producer waits for one that
 * closed. Method: real producers on the simulated store with S3's latencies, in virtual time: the figures are the same on every machine. The folder is measured
 * by counts alone.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, test } from "vitest";
import { type ProcessContext, runCadence, runShortLived, Simulation } from "../../sim/index.js";
import { createPublisher, openProducer } from "../../src/cadence/index.js";
import { encodeNamespace, type NamespaceSpec, namespaceKey } from "../../src/format/index.js";
import { createNamespace, openNamespace } from "../../src/index.js";
import { Log } from "../../src/log/index.js";
import { Producer } from "../../src/producer/index.js";
import { rowsOf } from "../bench/bench-rows.js";

const cooperative = { kind: "cooperative" } as const;

describe("awaited tickets", () => {
  test("are settled a third of a second after their batches are visible, and nobody sees batches later for it", async () => {
    const options = { cadence: cooperative, producers: 8, minutes: 2 };
    const [leisurely, awaited] = [await runCadence(options), await runCadence({ ...options, isAwaited: true })];
    expect(awaited.ackP50).toBeLessThan(0.3);
    expect(awaited.ackP99).toBeLessThan(2);
    expect(awaited.visibleP50).toBeLessThan(1.1 * leisurely.visibleP50);
    expect(leisurely.requestsPerBatch).toBeLessThan(2.35);
    // A look a batch: the name of the next version, perhaps the one after, and the boundary.
    expect(awaited.requestsPerBatch).toBeLessThan(leisurely.requestsPerBatch + 3);
  });

  test("of seven producers at two batches a second take seconds, not a minute", async () => {
    const run = await runCadence({
      cadence: cooperative,
      producers: 7,
      minutes: 2,
      batchesPerSecond: 2,
      isAwaited: true,
    });
    expect(run.ackP50).toBeLessThan(0.3);
    expect(run.ackP99).toBeLessThan(2);
  });
});

describe("producers that close", () => {
  test("are not waited for by those that come after them", async () => {
    const tookMs = await runShortLived(12, 1);
    expect(tookMs.length).toBe(12);
    // Some ten requests, one after another. With all predecessors taken for carriers it was over three seconds.
    expect(Math.max(...tookMs.slice(1))).toBeLessThan(1_600);
  });

  test("leave a log in which each made three versions: opened, wrote, left", async () => {
    const folder = mkdtempSync(join(tmpdir(), "batchweave-short-"));
    try {
      const uri = pathToFileURL(folder).href;
      await createNamespace(uri, { grid: { rows: 1, chunks: 1 } });
      for (let i = 0; i < 6; i++) {
        await using producer = await (await openNamespace(uri)).producer({ id: `short-${i}` });
        await producer.append([new Uint8Array(8)]);
        await producer.flush();
      }
      const info = await (await openNamespace(uri)).info();
      expect(info).toMatchObject({ version: 18, steps: { end: 6 }, lastCommit: { kind: "leave", by: "short-5" } });
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  /** How long a follower's flush takes after its carrier closed, or was killed. */
  async function flushAfter(end: "closed" | "killed"): Promise<number> {
    const spec: NamespaceSpec = {
      format: 1,
      uuid: "00000000-0000-4000-8000-000000000003",
      grid: { rows: 1, chunks: 1 },
      order: { kind: "commit" },
      created: 0,
      rest: {},
    };
    const simulation = new Simulation({ seed: 3, latency: "s3", trace: { ringEvents: 0 } });
    await simulation.store.direct().put(namespaceKey, encodeNamespace(spec));
    const open = async ({ env, store }: ProcessContext, id: string): Promise<Producer> => {
      const log = new Log({ store, env, spec, openOrigin: () => Promise.reject(new Error("no forks here")) });
      return new Producer({ log, opening: await openProducer(log, id), publisher: createPublisher(log) });
    };
    let isReady = false;
    let tookMs = Number.NaN;
    const carrier = simulation.spawn("carrier", async (context) => {
      const producer = await open(context, "carrier");
      for (let i = 0; i < 10 || !isReady; i++) {
        await producer.append([new Uint8Array(8)]);
        await context.env.sleep(300);
      }
      if (end === "closed") await producer.close();
      else simulation.world.crash(carrier);
    });
    simulation.spawn("follower", async (context) => {
      await context.env.sleep(1_000);
      const producer = await open(context, "follower");
      await producer.append([new Uint8Array(8)]);
      await producer.flush();
      isReady = true;
      await context.env.sleep(5_000);
      const begun = context.env.monotonic();
      await producer.append([new Uint8Array(8)]);
      await producer.flush();
      tookMs = context.env.monotonic() - begun;
    });
    await simulation.world.run({ untilMs: 60_000 });
    return tookMs;
  }

  test("hand over at once: a flush after the carrier closed takes half of one after it was killed", async () => {
    const [closed, killed] = [await flushAfter("closed"), await flushAfter("killed")];
    expect(closed).toBeGreaterThan(0);
    expect(closed).toBeLessThan(killed / 2);
  });
});

test("bench latency prints the agreed fields, for both stores", async () => {
  const agreed = ["bench", "store", "producers", "visibleP50Ms", "visibleP99Ms", "ackP50Ms", "ackP99Ms"];
  const file = await rowsOf("latency", "--producers", "2", "--seconds", "1", "--short-lived", "2");
  const model = await rowsOf("latency", "--store", "s3-model", "--seconds", "60", "--short-lived", "2");
  for (const [store, rows] of [
    ["file", file],
    ["s3-model", model],
  ] as const) {
    expect(rows.length).toBe(2);
    expect(Object.keys(rows[0] as object)).toEqual(expect.arrayContaining(agreed));
    expect(rows[0]).toMatchObject({ bench: "latency", store });
    for (const value of Object.values(rows[0] as object).filter((v) => typeof v === "number"))
      expect(value).toBeGreaterThan(0);
    expect(rows[1]).toMatchObject({ bench: "latency", store, producers: 2, kind: "one after another" });
  }
});
