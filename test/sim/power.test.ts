/**
 * Properties: on a file store whose power goes, all that a process was told stays, and nothing is wrong with what is left; a simulated disk takes back
 * exactly what was not synced. Method: two seeds of the scenario `power`, on small sizes; a store that is cut by hand. `npm run sim -- --scenario power` runs
 * more, and `--planted` takes the syncs out.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { expect, test } from "vitest";
import { SimStore } from "../../sim/store/sim-store.js";
import { Rng } from "../../sim/world/random.js";

test.skipIf(!existsSync("dist/sim/main.js"))("power, two seeds: all that was told is there", () => {
  const args = ["dist/sim/main.js", "--scenario", "power", "--seeds", "2", "--once", "--workers", "0", "--json"];
  const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  expect(stderr, "npm run sim -- --scenario power").toBe("");
  expect(JSON.parse(stdout.trim().split("\n").at(-1) ?? "{}")).toMatchObject({ passed: 2, failed: 0 });
});

test("a cut takes what nobody synced, last changes first, and leaves every synced folder as it is", () => {
  let taken = 0;
  for (let seed = 0; seed < 50; seed++) {
    const store = new SimStore({ isDisk: true, inParts: (key) => key.startsWith("big/") });
    const create = (key: string): void => void store.create(key, store.pack(key, Buffer.from(key)));
    create("a/1");
    create("b/1");
    store.sync("a/1");
    create("a/2");
    create("a/3");
    store.delete("a/1");
    store.beginUpload("big/1");
    expect(store.keys()).toEqual(["a/2", "a/3", "b/1"]);
    store.cut(new Rng(seed, "cut"));
    const left = store.keys("a/").join(" ");
    // Prefixes of what happened in that folder.
    expect(["a/1", "a/1 a/2", "a/1 a/2 a/3", "a/2 a/3"]).toContain(left);
    if (left === "a/1") taken++;
    expect(store.get("big/1")?.length ?? 0, "no bytes of what was being written").toBe(0);
    expect(store.list("", "", 10).objects.map(({ key }) => key)).toEqual(store.keys());
    const before = store.keys();
    store.cut(new Rng(seed, "again"));
    expect(store.keys(), "what was left is on the disk").toEqual(before);
  }
  expect(taken).toBeGreaterThan(20);
});
