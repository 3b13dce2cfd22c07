/**
 * Property: an id that a process holds is not taken over while it is not quiet, however many producers there are. Method: forty producers, the crowd
 * in which openings are left to a carrier, and a second process that wants one of their ids.
 */
import { expect, test } from "vitest";
import { createNamespace, isBatchWeaveError, MemoryStore } from "../../src/index.js";

test("in a crowd, too, a held id is refused instead of taken over", async () => {
  const ns = await createNamespace("memory:", { grid: { rows: 1, chunks: 1 } }, { store: new MemoryStore() });
  const producers = [];
  for (let i = 0; i < 40; i++) producers.push(await ns.producer({ id: `p${i}`, cadence: { kind: "naive" } }));
  await expect(ns.producer({ id: "p7", takeover: "when-quiet" })).rejects.toSatisfy((e) =>
    isBatchWeaveError(e, "FENCED"),
  );
  await producers[7]?.append([new Uint8Array(1)]);
  await producers[7]?.flush();
  await Promise.all(producers.map((producer) => producer.close()));
});
