/**
 * Property: the one command of the example does what its header says: two producers, one killed and replaced, eight ranks that read to the end; the
 * mixture of each phase exact, nothing lost, nothing repeated, the log that of an undisturbed run. What the ranks saw is judged by a function
 * that notices each kind of damage. Method: runs it, real processes and real kills; damaged readings for the judge.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { compareReadings } from "../../src/cli/rehearsal-ranks.js";

const cli = fileURLToPath(new URL("../../dist/src/cli/main.js", import.meta.url));
const pipeline = fileURLToPath(new URL("../../examples/multisource/pipeline.ts", import.meta.url));

test("examples/multisource", async (context) => {
  if (!existsSync(cli)) context.skip("dist is not built: npm run build");
  for (const name of ["sharp", "hyparquet", "hyparquet-writer", "tsx/esm/api"])
    await import(name).catch((error: Error) => context.skip(`${name} cannot be loaded here: ${error.message}`));
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [cli, "run", pipeline], {
    maxBuffer: 2 ** 24,
  });
  expect(stderr).toMatch(/kill -9 of p1 with the log at step \d+; a replacement takes over/);
  expect(stdout.match(/^mixture, phase .*, exact$/gm)?.length).toBe(2);
  expect(stdout).toMatch(/^balance: max\/mean cost over ranks \d/m);
  expect(stdout).toMatch(/^packing: \d/m);
  expect(stdout).toMatch(/^audit of steps 0 to 39: lost 0, repeated 0$/m);
  expect(stdout).toMatch(/^8 ranks read 40 iterations each: lost 0, repeated 0$/m);
  expect(stdout).toMatch(/the same log, bit for bit/);
});

test("what ranks saw is compared with the log, slice by slice", () => {
  const grid = { rows: 2, chunks: 1 };
  const expected = ["a", "b", "c", "d"];
  type Slice = [number, number, number, string];
  const judge = (...ranks: Slice[][]) =>
    compareReadings(
      ranks.map((slices) => slices.map((slice) => ({ slices: [slice] }))),
      expected,
      grid,
    );
  const good: Slice[][] = [
    [
      [0, 0, 0, "a"],
      [1, 0, 0, "c"],
    ],
    [
      [0, 1, 0, "b"],
      [1, 1, 0, "d"],
    ],
  ];
  const [first = [], second = []] = good;
  expect(judge(...good)).toEqual({ ranks: 2, iterations: [2, 2], lost: 0, repeated: 0, differing: 0 });
  expect(judge(first, second.slice(1))).toMatchObject({ lost: 1, repeated: 0, differing: 0 });
  expect(judge(first, [...second, [1, 1, 0, "d"]])).toMatchObject({ lost: 0, repeated: 1, differing: 0 });
  expect(judge(first, [second[0] as Slice, [1, 1, 0, "x"]])).toMatchObject({ lost: 0, repeated: 0, differing: 1 });
  expect(judge(first, [...second, [2, 0, 0, "a"]])).toMatchObject({ differing: 1 });
});
