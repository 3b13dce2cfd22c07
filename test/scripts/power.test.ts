/**
 * Property: whatever was acknowledged on a file store survives a power cut, in both languages; and a cut takes what was not synced. Method:
 * `npm run chaos -- --power` itself, short; it is its own control. Skipped, with the reason, where no disk can be cut.
 */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";
import { buildIfStale } from "../cli/command-line.js";
import { root } from "../source-tree.js";

test("one cut loses nothing that was acknowledged; without syncs it does", async (context) => {
  buildIfStale();
  const args = [join(root, "dist/scripts/chaos.js"), "--power", "--rounds", "1", "--seed", "3", "--json"];
  const { stdout, stderr } = await new Promise<{ stdout: string; stderr: string }>((resolve) =>
    execFile(process.execPath, args, (_, out, err) => resolve({ stdout: out, stderr: err })),
  );
  const report = JSON.parse(stdout || JSON.stringify({ problems: [stderr] }));
  if (report.skipped !== undefined) context.skip(report.skipped);
  expect(report.problems).toEqual([]);
  expect(report.acknowledged).toBeGreaterThanOrEqual(12);
  expect(report.control.lost).toBeGreaterThan(0);
});
