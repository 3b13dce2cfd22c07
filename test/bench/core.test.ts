/**
 * Property: each core benchmark prints one JSON line per row, of the agreed shape and nothing else, and what can be counted keeps to
 * its target on any machine: bytes written and read, requests, the size of a manifest. Times are not judged here. Method: small runs
 * of the real benchmarks.
 */
import { expect, test, vi } from "vitest";

type Row = Record<string, number | string>;

async function rowsOf(name: string, ...args: string[]): Promise<Row[]> {
  const lines: string[] = [];
  const log = vi.spyOn(console, "log").mockImplementation((line: string) => void lines.push(line));
  const { run } = (await import(`../../bench/${name}.ts`)) as { run(args: string[]): Promise<void> };
  try {
    await run([...args, "--json"]);
  } finally {
    log.mockRestore();
  }
  const rows = lines.map((line) => JSON.parse(line) as Row);
  expect(rows.map((row) => row["bench"])).toEqual(rows.map(() => name));
  return rows;
}

function expectShape(rows: readonly Row[], fields: string): void {
  expect(rows.length).toBeGreaterThan(0);
  for (const row of rows) {
    expect(Object.keys(row)).toEqual(["bench", ...fields.split(" ")]);
    for (const value of Object.values(row)) if (typeof value === "number") expect(value).toBeGreaterThan(0);
  }
}

test("ingest: at most 1.1 bytes are written per payload byte at 1 MB", { timeout: 60_000 }, async () => {
  const rows = await rowsOf("ingest", "--payloads", "1e6", "--producers", "1,2", "--rounds", "1", "--seconds", "0.01");
  expectShape(rows, "payloadBytes producers mbPerS bareMbPerS ratio bytesPerByte");
  expect(rows.map((row) => [row["payloadBytes"], row["producers"]])).toEqual([
    [1_000_000, 1],
    [1_000_000, 2],
  ]);
  for (const row of rows) expect(row["bytesPerByte"]).toBeLessThanOrEqual(1.1);
});

test("read: a rank reads its slice and little more; dense reads everybody's", { timeout: 60_000 }, async () => {
  const rows = await rowsOf("read", "--ranks", "8,32", "--slices", "1e5,1e6", "--megabytes", "16");
  expectShape(rows, "mode ranks sliceBytes amplification requestsPerSlice p50Ratio p95Ratio");
  expect(rows).toHaveLength(8);
  for (const { mode, ranks, sliceBytes, amplification, requestsPerSlice } of rows) {
    if (mode === "dense") expect(amplification).toBeGreaterThanOrEqual(Number(ranks));
    else expect(amplification).toBeLessThanOrEqual(sliceBytes === 1_000_000 ? 1.02 : 1.1);
    expect(requestsPerSlice).toBeLessThan(6);
  }
});

test("history: manifest, open and old steps stay bounded", { timeout: 60_000 }, async () => {
  const rows = await rowsOf("history", "--steps", "1e3,1.5e5", "--commits", "64", "--probes", "4");
  expectShape(rows, "steps producers manifestBytes commitRatio openRequests oldStepRequests");
  for (const { manifestBytes, openRequests, oldStepRequests } of rows) {
    expect(manifestBytes).toBeLessThanOrEqual(128 * 1024);
    expect(openRequests).toBeLessThanOrEqual(40);
    expect(oldStepRequests).toBeLessThanOrEqual(6);
  }
});
