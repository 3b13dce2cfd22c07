/**
 * Property: what ranks ask of a store, when, and what they are handed changes only when somebody means it to: which ranges are read, how far ahead, how often a waiting rank looks, whom
 * it tells, when it gives up. Method: real producers and ranks in virtual time on a store of fixed latency; all requests and a digest of all shares are compared with
 * `rank-requests.json` (request-record.ts).
 */
import { createHash } from "node:crypto";
import { test } from "vitest";
import { latencyModel, Simulation } from "../../sim/index.js";
import { createPublisher, openProducer } from "../../src/cadence/index.js";
import { type Consumer, type ConsumerParts, type ConsumerSettings, openConsumer } from "../../src/consumer/index.js";
import {
  encodeNamespace,
  type Grid,
  makeCursor,
  type NamespaceSpec,
  namespaceKey,
  type Order,
} from "../../src/format/index.js";
import { reclaim, registerCheckpoint } from "../../src/lifecycle/index.js";
import { Log } from "../../src/log/index.js";
import { Producer, type ProducerSettings } from "../../src/producer/index.js";
import { RequestRecord } from "../request-record.js";

const latency = latencyModel({ name: "like S3", read: () => 63, write: () => 100 });

/** The bytes of one cell: all of one length in every third batch, which are sealed together. */
function cell(step: number, n: number): Uint8Array {
  const length = step % 3 === 0 ? 300 : 100 + ((step * 37 + n * 101) % 900);
  return Uint8Array.from({ length }, (_, i) => step + n + i);
}

class Job {
  readonly simulation = new Simulation({ seed: 9, latency, trace: { ringEvents: 0 } });
  readonly record = new RequestRecord(() => this.simulation.world.nowMs);
  readonly #spec: NamespaceSpec;
  readonly #cells: number;

  constructor(grid: Grid, order: Order = { kind: "commit" }) {
    this.#spec = { format: 1, uuid: "00000000-0000-4000-8000-000000000011", grid, order, created: 0, rest: {} };
    this.#cells = grid.rows * grid.chunks;
  }

  #spawn(name: string, atMs: number, main: (log: Log) => Promise<void>): void {
    this.simulation.spawn(name, async ({ env, store }) => {
      await env.sleep(atMs);
      const openOrigin = (): Promise<never> => Promise.reject(new Error("no forks here"));
      await main(new Log({ store: this.record.counting(store, name), env, spec: this.#spec, openOrigin }));
    });
  }

  produce(id: string, count: number, everyMs: number, settings: ProducerSettings = {}, isLast = true): void {
    this.#spawn(id, 0, async (log) => {
      const publisher = createPublisher(log, { kind: "interval", intervalMs: 400 });
      const producer = new Producer({ log, opening: await openProducer(log, id), publisher }, settings);
      for (let i = 0; i < count; i++) {
        await producer.append(Array.from({ length: this.#cells }, (_, n) => cell(i, n)));
        await log.env.sleep(everyMs);
      }
      await producer.flush();
      if (isLast) await log.close();
      await producer.close();
    });
  }

  at(name: string, atMs: number, work: (log: Log) => Promise<void>): void {
    this.#spawn(name, atMs, work);
  }

  /** A rank that takes `shares` and is closed, or goes on to the end. */
  consume(name: string, atMs: number, settings: ConsumerSettings, more: Partial<Reading> = {}): void {
    this.#spawn(name, atMs, async (log) => {
      const { stepMs = 0, shares = Number.POSITIVE_INFINITY, parts = {} } = more;
      const digest = createHash("sha256");
      let taken = 0;
      let consumer: Consumer | undefined;
      try {
        consumer = await openConsumer(log, settings, {
          ...parts,
          observer: {
            onPoll: ({ moved }) => this.record.count(`${name} polls ${moved ? "that moved" : "in vain"}`),
            onWait: ({ step }) => this.record.count(`${name} waits for a step`, step + 1),
            onShare: ({ bytes, waitMs, readMs, lagRows }) => {
              this.record.count(`${name} bytes handed out`, bytes);
              this.record.count(`${name} ms waited`, Math.round(waitMs));
              this.record.count(`${name} ms read`, Math.round(readMs));
              this.record.count(`${name} rows behind`, lagRows);
            },
          },
          onLongWait: (message) => this.record.tell(`${name}: ${message}`),
          onEnd: () => this.record.tell(`${name} has ended`),
        });
        for await (const share of consumer) {
          taken++;
          const { iteration, rows, cursor, next, slices } = share;
          digest.update(JSON.stringify({ iteration, rows, cursor, next }));
          for (const { step, row, chunk, bytes } of slices) digest.update(`${step} ${row} ${chunk} `).update(bytes);
          if (taken >= shares) break;
          await log.env.sleep(stepMs);
        }
        const at = `row ${consumer.cursor.row}, left over ${consumer.leftoverRows}`;
        this.record.tell(`${name}: ${taken} shares to ${at}, ${digest.digest("hex").slice(0, 12)}`);
      } catch (error) {
        const { code, message } = error as { code?: string; message: string };
        this.record.tell(`${name}: after ${taken} shares ${code ?? "an error"}: ${message}`);
        await consumer?.return();
      }
    });
  }

  async run(name: string, untilMs: number): Promise<void> {
    await this.simulation.store.direct().put(namespaceKey, encodeNamespace(this.#spec));
    await this.simulation.world.run({ untilMs });
    this.record.compare("test/consumer/rank-requests.json", name);
  }
}

interface Reading {
  readonly stepMs: number;
  readonly shares: number;
  readonly parts: ConsumerParts;
}

test("four ranks of one job follow the log to its end, each its own rows", async () => {
  const job = new Job({ rows: 6, chunks: 1 });
  job.produce("p", 16, 300);
  for (let rank = 0; rank < 4; rank++) job.consume(`r${rank}`, 1_000 * rank, { mesh: { dp: 4 }, rank });
  await job.run("per rank", 60_000);
});

test("whole batches, chunks in zigzag, several objects a batch", async () => {
  const job = new Job({ rows: 4, chunks: 4 });
  job.produce("p", 9, 500, { extentBytesMax: 2_000 });
  const settings = { policy: "global-batch", layout: "zigzag", mesh: { dp: 2, cp: 2 } } as const;
  for (let rank = 0; rank < 4; rank++) job.consume(`r${rank}`, 700, { ...settings, rank }, { stepMs: 400 });
  await job.run("global batches in zigzag", 60_000);
});

test("a slow rank reads ahead within its limits, in bytes, in iterations, in requests", async () => {
  const job = new Job({ rows: 4, chunks: 1 });
  job.produce("p", 20, 20);
  const settings = { mesh: { dp: 1 }, rank: 0, rowsPerRank: 2 };
  job.consume("bytes", 20_000, { ...settings, prefetchBytesMax: 3_000 }, { stepMs: 150 });
  job.consume("iterations", 20_000, { ...settings, prefetchIterationsMax: 3 }, { stepMs: 150 });
  job.consume("requests", 20_000, { ...settings, readsInFlightMax: 2, footerBytesMax: 0 }, { stepMs: 10 });
  job.consume("whatever", 20_000, settings, { stepMs: 0, shares: 25 });
  await job.run("limits", 120_000);
});

test("one that waits looks less and less often, says what for, and gives up when it was told to", async () => {
  const job = new Job({ rows: 2, chunks: 1 });
  job.produce("p", 5, 100, {}, false);
  job.consume("patient", 0, { mesh: { dp: 1 }, rank: 0, waitTimeoutMs: 100_000 });
  job.consume("quick", 0, { mesh: { dp: 1 }, rank: 0, pollDelayMs: 10, pollDelayMsMax: 40, waitTimeoutMs: 5_000 });
  job.consume("late", 6_000, { mesh: { dp: 1 }, rank: 0, from: "latest", waitTimeoutMs: 15_000 });
  job.consume("wide", 3_000, { mesh: { dp: 8 }, rank: 3, waitTimeoutMs: 12_000 });
  job.consume(
    "watched",
    3_000,
    { mesh: { dp: 1 }, rank: 0 },
    {
      parts: {
        watchStarvation: async ({ step, waitedMs }) => {
          job.record.tell(`watched: step ${step}, ${waitedMs.toFixed(0)} ms`);
          if (waitedMs > 5_000) throw new Error("it can never come");
        },
      },
    },
  );
  await job.run("waiting", 150_000);
});

test("lanes: the wait names the lane that is missing", async () => {
  const job = new Job({ rows: 1, chunks: 1 }, { kind: "lanes", lanes: 3 });
  job.produce("lane-0", 4, 100, {}, false);
  job.produce("lane-2", 4, 100, {}, false);
  job.consume("r", 1_000, { mesh: { dp: 1 }, rank: 0, waitTimeoutMs: 20_000 });
  await job.run("lanes", 60_000);
});

test("from anywhere: earliest, latest, a step, a row, a cursor, a checkpoint; overtaken by a reclaim", async () => {
  const job = new Job({ rows: 3, chunks: 1 });
  job.produce("p", 90, 50);
  const one = { mesh: { dp: 1 }, rank: 0 };
  const uuid = "00000000-0000-4000-8000-000000000011";
  job.consume("step", 12_000, { ...one, from: { step: 5, iteration: 7 } }, { shares: 3 });
  job.consume("row", 12_000, { ...one, from: { row: 16 } }, { shares: 3 });
  job.consume("cursor", 12_000, { ...one, from: makeCursor(uuid, 30, 4) }, { shares: 2 });
  job.consume("slow", 12_000, { ...one, prefetchIterationsMax: 2 }, { stepMs: 3_000 });
  job.at("keeper", 14_000, async (log) => {
    await registerCheckpoint(log, { id: "c", cursor: makeCursor(uuid, 240, 80) });
    await reclaim(log, { graceMs: 0, keepVersions: 1 });
    job.record.tell("reclaimed");
  });
  job.consume("checkpoint", 25_000, { ...one, from: { checkpoint: "c" } });
  job.consume("no checkpoint", 25_000, { ...one, from: { checkpoint: "d" } });
  job.consume("earliest", 25_000, one, { shares: 2 });
  job.consume("latest", 25_000, { ...one, from: "latest" });
  job.consume("gone", 25_000, { ...one, from: { step: 79 } });
  job.consume("first left", 25_000, { ...one, from: { step: 80 } }, { shares: 1 });
  job.consume("the end", 25_000, { ...one, from: { row: 270 } });
  job.consume("past it", 25_000, { ...one, from: { row: 271 } });
  job.consume("another's", 25_000, {
    ...one,
    from: makeCursor(uuid.replace("11", "12"), 3, 1),
  });
  await job.run("starts", 60_000);
});
