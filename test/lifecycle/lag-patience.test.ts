/**
 * Property: a rank calls it a deadlock after ten seconds when the next checkpoint is further away than the log may grow, and only after a minute when it
 * may be on its way. Method: the watch itself, told how long the rank has waited.
 */
import { expect, test } from "vitest";
import { commitMaxLag, registerCheckpoint, starvationWatch } from "../../src/lifecycle/index.js";
import { cursorAt, SmallWorld, Writer } from "./small-world.js";

/** How long a rank at the end of twelve steps waits, with checkpoints at these rows and maxLag as far as the newest. */
async function patienceMs(rows: readonly number[]): Promise<number> {
  const log = await new SmallWorld().create("memory:a");
  await new Writer(log, "p").write(12);
  for (const row of rows) await registerCheckpoint(log, { id: `at-${row}`, cursor: cursorAt(log, row) });
  await commitMaxLag(log, 12 - (rows.at(-1) ?? 0));
  const watch = starvationWatch(log);
  for (const waitedMs of [9_999, 10_000, 59_999, 60_000]) {
    const failure = await watch({ step: 12, waitedMs }).catch((error: unknown) => error);
    if (failure !== undefined) {
      expect(failure).toMatchObject({ code: "LAG_DEADLOCK" });
      return waitedMs;
    }
  }
  return Number.POSITIVE_INFINITY;
}

test("as long as the checkpoints so far say", async () => {
  expect(await patienceMs([2, 10]), "the next is expected at 18, the log ends at 12").toBe(10_000);
  expect(await patienceMs([8, 10]), "the next is expected at 12").toBe(60_000);
  expect(await patienceMs([9, 10]), "the next is overdue").toBe(60_000);
  expect(await patienceMs([10]), "nothing is known of the next").toBe(60_000);
});
