/**
 * Properties: a planted bug is an edit of a copy, applied exactly once or loudly refused; caught, escaped and broken are told apart;
 * nothing of it can be in the package. Method: a tiny build made up here, and the package's own file list.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { parseCommand } from "../../sim/command-line.js";
import { editedFiles, type PlantedBug, plant, runPlanted } from "../../sim/planted/planted.js";
import { plantedBugs } from "../../sim/planted/planted-bugs.js";

let root = "";
let dist = "";

beforeAll(() => {
  root = mkdtempSync(join(tmpdir(), "batchweave-test-"));
  // What plant() leaves behind must be seen, whoever else plants on this machine.
  process.env.TMPDIR = root;
  dist = join(root, "dist");
  mkdirSync(join(dist, "sim"), { recursive: true });
  mkdirSync(join(dist, "src"), { recursive: true });
  writeFileSync(join(root, "package.json"), '{ "type": "module" }');
  writeFileSync(join(dist, "src/rule.js"), "export const safe = () => true;\nexport const a = 1, b = 1;\n");
  const main = `import { safe } from "../src/rule.js";
console.log(JSON.stringify(safe() ? { passed: 500, failed: 0 } : { passed: 16, failed: 1, seed: 17, property: "exactly-once" }));`;
  writeFileSync(join(dist, "sim/main.js"), main);
});

const tmpdirBefore = process.env.TMPDIR;

afterAll(() => {
  if (tmpdirBefore === undefined) delete process.env.TMPDIR;
  else process.env.TMPDIR = tmpdirBefore;
  rmSync(root, { recursive: true, force: true });
});

const bug = (find: string, replace: string): PlantedBug => ({
  name: find,
  hazard: 1,
  edits: [{ file: "src/rule.js", find, replace }],
});

test("caught, escaped, broken", async () => {
  const bugs = [
    bug("safe = () => true", "safe = () => false"),
    bug("a = 1,", "a = 2,"),
    bug("safe = () =>", "safe = (("),
    bug(" = 1", " = 2"),
    bug("not there", ""),
  ];
  const results = await runPlanted(bugs, { dist, seedsMax: 500, workers: 1 });
  expect(results.map(({ verdict, seed }) => [verdict, seed])).toEqual([
    ["caught", 17],
    ["escaped", undefined],
    ["broken", undefined],
    ["broken", undefined],
    ["broken", undefined],
  ]);
  expect(readdirSync(tmpdir()).filter((name) => name.startsWith("batchweave-planted-"))).toEqual([]);
});

test("the edit is in the copy only, and a text that does not occur exactly once is refused", () => {
  const folder = plant(dist, bug("safe = () => true", "safe = () => false"));
  expect(readFileSync(join(folder, "dist/src/rule.js"), "utf8")).toContain("safe = () => false");
  expect(readFileSync(join(dist, "src/rule.js"), "utf8")).toContain("safe = () => true");
  rmSync(folder, { recursive: true });
  expect(() => plant(dist, bug(" = 1", ""))).toThrow(/occurs 2 times/);
  expect(() => plant(dist, bug("nowhere", ""))).toThrow(/occurs 0 times/);
});

test("the package holds compiled product code only, and that knows nothing of planted bugs", () => {
  // Scripts would build anew under the other tests' feet; what is packed depends on the file list alone.
  const told = execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], { encoding: "utf8" });
  const packed = (JSON.parse(told) as { files: { path: string }[] }[])[0]?.files.map(({ path }) => path) ?? [];
  expect(packed).toContain("package.json");
  // The documents are in it, so that their links work; of the Python package only its page.
  expect(packed.filter((path) => /^(dist\/)?(sim|test|bench|scripts|python)\//.test(path))).toEqual([
    "python/README.md",
  ]);
  const sources = readdirSync("src", { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"));
  expect(sources.length).toBeGreaterThan(0);
  for (const file of sources) {
    const text = readFileSync(join("src", file), "utf8");
    // A switch would have to be named or imported; there is neither, and nothing of the simulator.
    expect(text, file).not.toMatch(/planted|\bmutant|safetyRules/i);
    expect(text, file).not.toMatch(/from "(\.\.\/)+sim\//);
  }
});

test("planted bugs have names of their own and files that can exist", () => {
  expect(new Set(plantedBugs.map((each) => each.name)).size).toBe(plantedBugs.length);
  for (const each of plantedBugs) {
    for (const { file, find, replace } of each.edits) {
      expect(existsSync(file.replace(/\.js$/, ".ts")), `${each.name}: ${file}`).toBe(true);
      expect(find).not.toBe(replace);
    }
  }
});

test.skipIf(!existsSync("dist/src/index.js"))("every planted bug's text occurs exactly once in the build", () => {
  for (const each of plantedBugs) expect(editedFiles("dist", each).size).toBeGreaterThan(0);
});

test("arguments", () => {
  expect(parseCommand([])).toMatchObject({ scenario: "chaos", seeds: 100, firstSeed: 1, twice: true, planted: false });
  expect(parseCommand(["--planted"]).seeds).toBe(500);
  expect(parseCommand(["--replay", "7", "--only", "a,b"]).only).toEqual(new Set(["a", "b"]));
  expect(() => parseCommand(["--seeds", "many"])).toThrow(/--seeds/);
  expect(() => parseCommand(["--trace", "x"])).toThrow(/--replay/);
  expect(() => parseCommand(["--sedes", "1"])).toThrow(/sedes/);
});
