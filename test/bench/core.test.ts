/**
 * Property: each core benchmark prints one JSON line per row, of the agreed shape and nothing else, and what can be counted keeps to
 * its target on any machine: bytes written and read, requests, the size of a manifest. Times are not judged here. Method: small runs
 * of the real benchmarks.
 */
import { expect, test } from "vitest";
import { expectShape, rowsOf } from "./bench-rows.js";

test("ingest: at most 1.1 bytes are written per payload byte at 1 MB", async () => {
  const rows = await rowsOf(
    "ingest",
    "--payloads",
    "1e6",
    "--producers",
    "1,2",
    "--rounds",
    "1",
    "--seconds",
    "0.01",
    "--warm",
    "no",
  );
  expectShape(rows, "payloadBytes producers mbPerS bareMbPerS ratio bytesPerByte");
  expect(rows.map((row) => [row["payloadBytes"], row["producers"]])).toEqual([
    [1_000_000, 1],
    [1_000_000, 2],
  ]);
  for (const row of rows) expect(row["bytesPerByte"]).toBeLessThanOrEqual(1.1);
});

test("read: a rank reads its slice and little more; dense reads everybody's", async () => {
  const all = await rowsOf("read", "--ranks", "8", "--slices", "1e5,1e6", "--megabytes", "16");
  const cpu = all.filter(({ mode }) => mode === "ahead" || mode === "together");
  const rows = all.filter((row) => !cpu.includes(row));
  expectShape(cpu, "mode ranks sliceBytes cpuSecondsPerGb bareCpuSecondsPerGb cpuRatio megabytesPerSecond");
  expect(cpu).toHaveLength(4);
  expectShape(rows, "mode ranks sliceBytes amplification requestsPerSlice p50Ratio p50CheckedRatio p95Ratio");
  expect(rows).toHaveLength(4);
  for (const { mode, ranks, sliceBytes, amplification, requestsPerSlice } of rows) {
    if (mode === "dense") expect(amplification).toBeGreaterThanOrEqual(Number(ranks));
    else expect(amplification).toBeLessThanOrEqual(sliceBytes === 1_000_000 ? 1.02 : 1.1);
    // Four steps: one more request in a run is a quarter of one a slice.
    expect(requestsPerSlice).toBeLessThan(mode === "targeted" ? 1.5 : 6);
  }
});

test("history: manifest, open and old steps stay bounded", async () => {
  const rows = await rowsOf("history", "--steps", "1e3,1.5e5", "--commits", "64", "--probes", "4");
  expectShape(rows, "steps producers manifestBytes commitRatio openRequests oldStepRequests");
  for (const { manifestBytes, openRequests, oldStepRequests } of rows) {
    expect(manifestBytes).toBeLessThanOrEqual(128 * 1024);
    expect(openRequests).toBeLessThanOrEqual(40);
    expect(oldStepRequests).toBeLessThanOrEqual(6);
  }
});

test("cadence: one line per policy; a cooperative batch costs its own PUT and about 1.3 requests more", async () => {
  const rows = await rowsOf("cadence", "--policy", "cooperative,dac", "--producers", "8", "--minutes", "2");
  expectShape(rows, "policy producers batches throughput success visibleP50 visibleP99 requestsPerBatch");
  expect(rows.map((row) => row["policy"])).toEqual(["cooperative", "dac"]);
  expect(rows[0]?.["requestsPerBatch"]).toBeLessThanOrEqual(2.35);
  expect(rows[0]?.["visibleP50"]).toBeLessThanOrEqual(0.55);
  expect(rows[0]?.["visibleP99"]).toBeLessThanOrEqual(2);
});
