/**
 * Property: no hazard is without an answer in the code and a proof. Method: docs/hazards.md is read as data; every number from 1 to 55
 * has one row, and each file, test name and scenario that a row names exists.
 */
import { existsSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { scenarios } from "../sim/scenarios/scenario.js";

interface Row {
  readonly number: number;
  readonly answer: string;
  readonly proof: string;
}

const hazards = 55;
const rows: Row[] = readFileSync("docs/hazards.md", "utf8")
  .split("\n")
  .map((line) => line.split("|").map((cell) => cell.trim()))
  .filter((cells) => /^\d+$/.test(cells[1] ?? ""))
  .map((cells) => ({ number: Number(cells[1]), answer: cells[3] ?? "", proof: cells[4] ?? "" }));

test("every hazard has one row", () => {
  expect(rows.map((row) => row.number)).toEqual(Array.from({ length: hazards }, (_, i) => i + 1));
});

test.each(rows)("hazard $number: what answers it exists", ({ answer }) => {
  const files = [...answer.matchAll(/`(src\/[^`]+)`/g)].map((match) => match[1] as string);
  expect(files.length).toBeGreaterThan(0);
  for (const file of files) expect(existsSync(file), file).toBe(true);
});

test.each(rows)("hazard $number: what proves it exists", ({ proof }) => {
  const proofs = proof.split(";").map((each) => each.trim());
  for (const each of proofs) {
    const scenario = /^sim: ([\w-]+)$/.exec(each)?.[1];
    if (scenario !== undefined) {
      expect(scenarios.has(scenario), `scenario ${scenario}`).toBe(true);
      continue;
    }
    const [, file, name] = /^`(test\/[^`]+)` "([^"]+)"$/.exec(each) ?? [];
    expect(file, `not understood: ${each}`).toBeDefined();
    const titles =
      readFileSync(file as string, "utf8").match(/(?:test|describe)(?:\.each\([^)]*\))?\(\s*(["`]).*?\1/gs) ?? [];
    expect(
      titles.some((title) => title.includes(name as string)),
      `${file}: no test is called "${name}"`,
    ).toBe(true);
  }
});
