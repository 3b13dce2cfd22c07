/**
 * Property: a namespace that is deleted and made again under running producers, ranks and reclaimers of both languages loses nothing that was
 * acknowledged, and no life touches another. Method: `npm run chaos -- --recreate` itself, short.
 */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";
import { buildIfStale } from "../cli/command-line.js";
import { root } from "../source-tree.js";

test("two rounds are clean, and everybody of the old lives was told so", async () => {
  buildIfStale();
  const args = [join(root, "dist/scripts/chaos.js"), "--recreate", "--rounds", "2", "--seed", "3", "--json"];
  const { stdout, stderr } = await new Promise<{ stdout: string; stderr: string }>((resolve) =>
    execFile(process.execPath, args, (_, out, err) => resolve({ stdout: out, stderr: err })),
  );
  const report = JSON.parse(stdout || JSON.stringify({ problems: [stderr] }));
  expect(report.problems).toEqual([]);
  expect(report).toMatchObject({ rounds: 2, lives: 3 });
  // Four producers were told of a batch in each life; most of eight processes met both deletions awake.
  expect(report.acknowledged).toBeGreaterThanOrEqual(12);
  expect(report.evicted).toBeGreaterThanOrEqual(4);
});
