/**
 * Property: the example does what the README says: two producers, one killed and replaced, eight ranks that read to the end; the mixture of each
 * phase exact, nothing lost, nothing repeated, the log that of an undisturbed run. Method: runs it, real processes and real kills.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const script = fileURLToPath(new URL("../../dist/examples/multisource/show.js", import.meta.url));

test("examples/multisource", { timeout: 240_000 }, async (context) => {
  if (!existsSync(script)) context.skip("dist is not built: npm run build");
  for (const name of ["sharp", "hyparquet", "hyparquet-writer", "tsx/esm/api"])
    await import(name).catch((error: Error) => context.skip(`${name} cannot be loaded here: ${error.message}`));
  const { stdout } = await promisify(execFile)(process.execPath, [script], { maxBuffer: 2 ** 24 });
  expect(stdout).toMatch(/p1 killed with the log at step \d+/);
  const ranks = [...stdout.matchAll(/^rank (\d): (\d+) iterations, (\d+) tokens/gm)];
  expect(ranks.map(([, rank, iterations]) => `${rank} ${iterations}`)).toEqual(
    Array.from({ length: 8 }, (_, r) => `${r} 40`),
  );
  expect(stdout.match(/^mixture, phase .*, exact$/gm)?.length).toBe(2);
  expect(stdout).toMatch(/^audit of steps 0 to 39: lost 0, repeated 0$/m);
  expect(stdout).toMatch(/the same log, bit for bit/);
});
