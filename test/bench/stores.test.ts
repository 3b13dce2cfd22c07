/**
 * Property: the benchmarks of the stores print rows of the agreed shape, and what can be counted keeps to its target: extra requests of hedging,
 * requests per batch. Times are not judged here. Method: small runs of the real benchmarks.
 */
import { expect, test } from "vitest";
import { expectShape, rowsOf } from "./bench-rows.js";

test("store: every client in every cell", async () => {
  const small = ["--sizes", "1e5", "--concurrency", "2", "--tls", "no", "--rounds", "1", "--seconds", "0.3"];
  const rows = await rowsOf("store", ...small);
  expectShape(rows, "client op bytes concurrency tls mbPerS p50Ms p99Ms cpuSPerGb");
  const clients = ["bare", "batchweave", "batchweave, bytes signed", "aws sdk"];
  expect(rows.map((row) => `${row["op"]} ${row["client"]}`)).toEqual(
    ["put", "get"].flatMap((op) => clients.map((client) => `${op} ${client}`)),
  );
});

test("hedging: at most 5 % more range reads, and a burst of ten", async () => {
  const [plain, hedged] = await rowsOf("hedging", "--steps", "80");
  expect([plain?.["hedged"], hedged?.["hedged"]]).toEqual([false, true]);
  expect(hedged?.["extraRequests"]).toBeLessThanOrEqual(0.05 + 10 / 80);
});

test("requests: a batch takes at most three writes, however few share a commit", async () => {
  const rows = await rowsOf("requests", "--producers", "3", "--pace", "4", "--seconds", "1");
  for (const { writesPerBatch, rankReadsPerBatch } of rows) {
    expect(writesPerBatch).toBeGreaterThanOrEqual(1);
    expect(writesPerBatch).toBeLessThanOrEqual(3);
    expect(rankReadsPerBatch).toBeGreaterThan(1);
  }
});
