/**
 * Property: a lanes log that was closed with dropWaiting is sound, although the state of its lanes has counted batches that were left out.
 * Method: the public API on a memory store. Found by the simulator (chaos, seed 54).
 */
import { expect, test } from "vitest";
import { createNamespace } from "../../src/index.js";

test("closing with dropWaiting leaves nothing for verify to report", async () => {
  const settings = { grid: { rows: 1, chunks: 1 }, order: "lanes", lanes: 2 } as const;
  const namespace = await createNamespace(`memory:verify-lanes`, settings);
  const cadence = { kind: "interval", intervalMs: 1 } as const;
  for (const [id, batches] of [
    ["lane-0", 1],
    ["lane-1", 3],
  ] as const) {
    const producer = await namespace.producer({ id, cadence });
    for (let i = 0; i < batches; i++) await producer.append([new Uint8Array([i])]);
    await producer.close();
  }
  expect(await namespace.endLog({ dropWaiting: true })).toEqual({ end: 2 });
  const report = await namespace.verify({ level: "bytes" });
  expect(report.problems).toEqual([]);
  expect(report.ok).toBe(true);
});
