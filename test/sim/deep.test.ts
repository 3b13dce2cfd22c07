/**
 * Properties: what only large logs reach (nodes of nodes, lines of forks, lanes at their limit, listings of many pages) keeps every promise, on a
 * store that lists late, damages what is read and runs full; the shipped sizes are edited in a copy only. Method: a few seeds of the scenario
 * `deep` on a build whose sizes are small; `npm run sim -- --scenario deep --seeds 300` runs more.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { expect, test } from "vitest";
import { parseCommand } from "../../sim/command-line.js";
import { isOwnShape, ownShape, shapeEdits, shippedShape } from "../../sim/planted/build-shape.js";
import { editedFiles } from "../../sim/planted/planted.js";
import { SimStore } from "../../sim/store/sim-store.js";

const isBuilt = existsSync("dist/sim/main.js");

test("the shipped sizes are the ones that run here, and no others by accident", () => {
  expect(ownShape).toEqual(shippedShape);
  expect(isOwnShape({ fanout: 4, laneAhead: 4, listPage: 3 })).toBe(false);
  expect(shapeEdits(shippedShape)).toEqual([]);
  expect(parseCommand(["--shape", "4,4,3"]).shape).toEqual({ fanout: 4, laneAhead: 4, listPage: 3 });
  expect(() => parseCommand(["--shape", "1,4,3"])).toThrow(/--shape/);
  expect(() => parseCommand(["--shape", "4,4"])).toThrow(/--shape/);
});

test.skipIf(!isBuilt)("every size is written once in the build", () => {
  const edits = shapeEdits({ fanout: 4, laneAhead: 5, listPage: 3 });
  expect(edits).toHaveLength(5);
  const edited = editedFiles("dist", { name: "sizes", hazard: "sizes", edits });
  expect(edited.get("src/format/index-node.js")).toContain("indexFanout = 4;");
  expect(edited.get("src/log/stage.js")).toContain("laneAheadMax = 5;");
});

test.skipIf(!isBuilt)("deep, two seeds: every promise holds", () => {
  const args = ["dist/sim/main.js", "--scenario", "deep", "--seeds", "2", "--once", "--workers", "0", "--json"];
  const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  expect(stderr, "npm run sim -- --scenario deep").toBe("");
  expect(JSON.parse(stdout.trim().split("\n").at(-1) ?? "{}")).toMatchObject({ passed: 2, failed: 0 });
});

test("a stale listing shows some names as they were: some new ones are missing, some deleted ones still listed, page by page", () => {
  const store = new SimStore({ remembersMs: 10_000 });
  let nowMs = 0;
  store.clock = () => nowMs;
  const write = (key: string): void => void store.create(key, store.pack(key, new Uint8Array(3)));
  const old = Array.from({ length: 20 }, (_, i) => `a/old-${i}`);
  const fresh = Array.from({ length: 20 }, (_, i) => `a/new-${i}`);
  for (const key of [...old, "a/stays"]) write(key);
  nowMs = 1000;
  for (const key of old) store.delete(key);
  for (const key of fresh) write(key);
  const names = (limit: number, after: string, asOf?: number): string[] =>
    store.list("a/", after, limit, asOf).objects.map(({ key }) => key);
  expect(names(50, "")).toEqual([...fresh.sort(), "a/stays"]);
  const late = names(50, "", 500);
  expect(late).toContain("a/stays");
  for (const changed of [old, fresh]) {
    const listed = late.filter((key) => changed.includes(key)).length;
    expect(listed).toBeGreaterThan(0);
    expect(listed).toBeLessThan(20);
  }
  expect(names(2, late[0] as string, 500)).toEqual(late.slice(1, 3));
  expect(store.list("a/", "", 2, 500).more).toBe(true);
});
