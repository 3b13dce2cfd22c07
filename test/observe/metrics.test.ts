/**
 * Property: what is waited for moves while it is waited for; every series has its labels; the same numbers reach OpenTelemetry's API under its own
 * names, spans are one tree per batch and per share; and without a provider nothing is spent on it.
 * Method: a log in memory on a clock that is moved by hand; OpenTelemetry's own SDK with readers in memory.
 */
import { metrics as api, trace } from "@opentelemetry/api";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { afterEach, expect, test } from "vitest";
import { createNamespace, MemoryStore, Metrics, type ObjectStore } from "../../src/index.js";
import { ManualEnv } from "../consumer/manual-env.js";

afterEach(() => {
  api.disable();
  trace.disable();
});

const grid = { rows: 1, chunks: 1 };

test("the exposed data wait of a rank grows during the wait, not after it", async () => {
  const env = new ManualEnv();
  const metrics = new Metrics();
  const ns = await env.drive(createNamespace("memory:w", { grid }, { store: new MemoryStore(), env, metrics }));
  const consumer = await env.drive(ns.consumer({ mesh: { dp: 1 }, rank: 0, onWait: () => {} }));
  const waiting = consumer.next().catch(() => {});
  await env.pass(60_000);
  expect(metrics.value("batchweave_data_wait_seconds_total", { rank: "0" })).toBeCloseTo(60, 0);
  expect(metrics.value("batchweave_data_waiting_seconds")).toBeCloseTo(60, 0);
  const producer = await env.drive(ns.producer({ id: "p" }));
  await env.drive(producer.append([new Uint8Array(3)]));
  await env.drive(producer.close());
  await env.drive(waiting);
  expect(metrics.value("batchweave_data_waiting_seconds")).toBe(0);
  const waited = metrics.value("batchweave_data_wait_seconds_total");
  await env.pass(10_000);
  expect(metrics.value("batchweave_data_wait_seconds_total"), "the trainer computes").toBe(waited);
  await env.drive(consumer.return());
  expect(metrics.value("batchweave_data_wait_seconds_total"), "what it waited stays").toBe(waited);
});

test("a producer's last commit ages while the store is away, and the store's silence is a number", async () => {
  const env = new ManualEnv();
  const metrics = new Metrics();
  const store = new MemoryStore();
  let isAway = false;
  const away: ObjectStore = new Proxy(store, {
    get: (target, name: keyof MemoryStore) => {
      const found = target[name];
      if (typeof found !== "function") return found;
      return (...args: unknown[]) =>
        isAway ? new Promise(() => {}) : (found as (...a: unknown[]) => unknown).apply(target, args);
    },
  });
  const ns = await env.drive(createNamespace("memory:s", { grid }, { store: away, env, metrics }));
  const producer = await env.drive(ns.producer({ id: "p" }));
  await env.drive(producer.append([new Uint8Array(3)]));
  await env.drive(producer.flush());
  isAway = true;
  void producer.append([new Uint8Array(3)]).catch(() => {});
  await env.pass(45_000);
  expect(metrics.value("batchweave_producer_commit_age_seconds", { producer: "p", role: "producer" })).toBeCloseTo(
    45,
    0,
  );
  expect(metrics.value("batchweave_producer_in_flight_batches")).toBe(1);
  expect(metrics.value("batchweave_store_unreachable_seconds")).toBeGreaterThan(40);
  expect(ns.storeUnreachableMs).toBeGreaterThan(40_000);
});

test("text has labels, sums watched and written counters, and escapes", () => {
  const metrics = new Metrics();
  const mine = metrics.with({ namespace: 's3://b/"x"', role: "rank" });
  mine.count("a_total", "A.", 2);
  const end = mine.watch("counter", "a_total", "A.", () => 3);
  mine.watch("gauge", "g", "G.", () => [
    [1, { source: "web" }],
    [2, { source: "code\n" }],
  ]);
  const line = 'a_total{namespace="s3://b/\\"x\\"",role="rank"} 5';
  expect(metrics.text()).toContain(line);
  expect(metrics.text()).toContain('g{namespace="s3://b/\\"x\\"",role="rank",source="code\\n"} 2');
  end();
  end();
  expect(metrics.text()).toContain(line);
  for (let i = 0; i < 5_000; i++) metrics.count("many_total", "M.", 1, { id: String(i) });
  expect(metrics.text().length).toBeLessThan(100_000);
  expect(metrics.value("many_total")).toBe(5_000);
});

test("OpenTelemetry's API gets the same numbers under its own names, and one tree of spans per batch and per share", async () => {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });
  api.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }));
  const spans = new InMemorySpanExporter();
  trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] }));
  const ns = await createNamespace("memory:o", { grid }, { store: new MemoryStore() });
  const producer = await ns.producer({ id: "p" });
  for (let i = 0; i < 3; i++) await producer.append([new Uint8Array(10)]);
  await producer.flush();
  const consumer = await ns.consumer({ mesh: { dp: 1 }, rank: 0 });
  for (let i = 0; i < 3; i++) await consumer.next();
  await reader.forceFlush();
  const found = new Map(
    exporter
      .getMetrics()
      .flatMap(({ scopeMetrics }) => scopeMetrics)
      .flatMap(({ metrics: all }) => all)
      .map((one) => [one.descriptor.name, one]),
  );
  expect(found.get("batchweave.batches.committed")?.dataPoints[0]).toMatchObject({
    value: 3,
    attributes: { role: "producer", producer: "p" },
  });
  expect(found.get("batchweave.store.request")?.descriptor.unit).toBe("s");
  expect(found.get("batchweave.store.sent")?.descriptor.unit).toBe("By");
  // With "1" Prometheus would call it batchweave_lag_steps_ratio.
  expect(found.get("batchweave.lag.steps")?.descriptor.unit).toBe("{steps}");
  expect(found.get("batchweave.data.wait")?.dataPoints[0]?.attributes).toMatchObject({ rank: "0", group: "default" });
  const all = spans.getFinishedSpans();
  for (const [root, parts] of [
    ["batchweave.batch", ["batchweave.commit", "batchweave.queue", "batchweave.upload"]],
    ["batchweave.share", ["batchweave.read", "batchweave.wait"]],
  ] as const) {
    const roots = all.filter(({ name }) => name === root);
    expect(roots).toHaveLength(3);
    for (const one of roots) {
      const inner = all.filter(({ parentSpanContext }) => parentSpanContext?.spanId === one.spanContext().spanId);
      expect(inner.map(({ name }) => name).sort()).toEqual(parts);
    }
  }
  await producer.close();
  await consumer.return();
});
