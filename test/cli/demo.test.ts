/**
 * Property: the demo, with real processes and real kills, ends with nothing lost, repeated or reordered; damaged on purpose it
 * ends with status 1; it leaves no file and no process behind. Method: run it as a user does.
 */
import { readdirSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { buildIfStale, start, Workspace } from "./command-line.js";

// Its own, so that no other demo is taken for what this one left behind.
const space = new Workspace();
const env = { TMPDIR: space.folder };
beforeAll(buildIfStale);
afterAll(() => space.remove());

function leftovers(): string[] {
  return readdirSync(space.folder).filter((name) => name.startsWith("batchweave-demo-"));
}

test("nothing is lost, repeated or reordered", async () => {
  const { status, stdout, stderr, lines } = await start(["demo", "--json"], env).ended;
  expect(stderr).toBe("");
  expect(stdout.trim().split("\n").at(-1)).toContain('"lost":0,"duplicated":0,"outOfOrder":0');
  expect(status).toBe(0);
  const events = lines as { event?: string; producer?: string; rank?: number; tookMs?: number; reread?: number }[];
  const count = (event: string, who: "producer" | "rank"): number =>
    events.filter((line) => line.event === event && line[who] !== undefined).length;
  expect([count("kill", "producer"), count("kill", "rank")]).toEqual([1, 1]);
  expect([count("restart", "producer"), count("restart", "rank")]).toEqual([1, 1]);
  expect(events.at(-1)?.reread).toBeGreaterThan(0);
  expect(events.at(-1)?.tookMs).toBeGreaterThan(0);
  expect(leftovers()).toEqual([]);
});

test("damaged on purpose, it ends with status 1 and says so", async () => {
  const { status, stdout } = await start(["demo", "--sabotage", "swap"], env).ended;
  expect(stdout).toMatch(/proof FAILED, as it must/);
  expect(status).toBe(1);
});

test("SIGINT ends its processes and leaves nothing behind", async () => {
  const { child, ended } = start(["demo", "--json"], env);
  // Its processes are running when they have brought the first batches into the log, at the latest when one is killed.
  await new Promise<void>((resolve) => {
    child.stdout?.on("data", (data: Buffer) => data.toString().includes('"kill"') && resolve());
  });
  child.kill("SIGINT");
  const { status, stderr } = await ended;
  expect([status, stderr]).toEqual([130, ""]);
  expect(leftovers()).toEqual([]);
});
