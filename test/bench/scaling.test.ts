/**
 * Property: what docs/results/scaling.md claims of the modelled fleet holds for a smaller one too: with the schedule the trainer does not wait, a fixed fleet makes it
 * wait longest, and processes that are bound to no cluster are the fewest. Method: small runs of the real benchmark.
 */
import { expect, test } from "vitest";
import { rowsOf } from "./bench-rows.js";

const small = ["--sources", "40", "--samples", "4096", "--steps", "80"];

test("scaling: one line per way of scaling; predictive never makes the trainer wait", async () => {
  const rows = await rowsOf("scaling", ...small);
  expect(rows).toHaveLength(9);
  const waits = (mode: string): number[] =>
    rows.filter((row) => row["mode"] === mode).map((row) => Number(row["trainerWaitS"]));
  expect(waits("predictive")).toEqual([0, 0, 0]);
  expect(Math.max(...waits("reactive"))).toBeGreaterThan(0);
  expect(waits("fixed")[0]).toBeGreaterThan(Math.max(...waits("reactive")));
});

test("scaling --part clusters: without clusters the fewest processes; --part dear: threads by cost are near the limit", async () => {
  const rows = await rowsOf("scaling", "--part", "clusters", ...small);
  const [none, ...others] = rows.map((row) => Number(row["processesAfter"]));
  for (const processes of others) expect(processes).toBeGreaterThanOrEqual(none as number);
  const dear = await rowsOf("scaling", "--part", "dear");
  expect(dear.map((row) => row["threadsByCost"])).toEqual([0.997, 0.956, 0.128]);
});
