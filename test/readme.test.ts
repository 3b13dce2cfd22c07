/**
 * Property: the code in README.md is code that is type-checked and works; the command-line reference is what the command says. Method: every
 * TypeScript block must stand in an example, word for word; the examples are run; help texts are compared with the file.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { commands } from "../src/cli/command-list.js";
import { commandHelp, generalHelp } from "../src/cli/help.js";
import { buildIfStale } from "./cli/command-line.js";
import { readText, root } from "./source-tree.js";

const folder = mkdtempSync(join(tmpdir(), "batchweave-readme-"));
const uri = pathToFileURL(join(folder, "run")).href;

beforeAll(buildIfStale);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function example(name: string, ...args: string[]): string[] {
  const script = join(root, `dist/examples/${name}.js`);
  return execFileSync(process.execPath, [script, ...args], { encoding: "utf8" })
    .trim()
    .split("\n");
}

test("every TypeScript block of README.md stands in the example that it names", () => {
  const blocks = [...readText("README.md").matchAll(/<!-- from (examples\/[\w-]+\.ts) -->\n```ts\n([\s\S]*?)```/g)];
  expect(blocks).toHaveLength(2);
  expect([...readText("README.md").matchAll(/^```ts$/gm)]).toHaveLength(blocks.length);
  for (const [, path, block] of blocks) {
    const region = /\/\/ #region readme\n([\s\S]*?)\/\/ #endregion/.exec(readText(path as string))?.[1];
    expect(region).toBe(block);
  }
});

test("README.md and CONTRIBUTING.md ask for the Node that package.json asks for", () => {
  const { engines } = JSON.parse(readText("package.json")) as { engines: { node: string } };
  const least = engines.node.replace(">=", "");
  expect(readText("README.md")).toContain(`Needs Node ${least} or newer`);
  expect(readText("CONTRIBUTING.md")).toContain(`users of the package: ${least}`);
  const own = /You need Node ([\d.]+) or newer/.exec(readText("CONTRIBUTING.md"))?.[1] as string;
  expect(readText("README.md")).toContain(`a clone is built and tested with ${own} or newer`);
  expect(readText("Makefile")).toContain(`Needs Node ${own} or newer`);
});

test("what the first example writes, the second reads: every rank its own, all ranks everything, from a saved cursor too", () => {
  expect(example("write", uri)).toEqual([`32 batches are in ${uri}`]);
  const ranks = [0, 1, 2, 3].map((rank) => example("read", uri, String(rank), "2"));
  const all = ranks.flat().sort();
  expect(all).toHaveLength(32 * 4 * 2);
  expect(new Set(all).size).toBe(all.length);
  expect(ranks[0]?.slice(0, 3)).toEqual([
    "batch 0, row 0, chunk 0",
    "batch 0, row 2, chunk 0",
    "batch 1, row 0, chunk 0",
  ]);
  const cursor = join(folder, "cursor.json");
  example("read", uri, "0", "2", cursor);
  // 64 iterations: the last checkpoint was after the 60th, and it was read on another mesh from there.
  expect(example("read", uri, "0", "4", cursor)).toEqual(["batch 30, row 0, chunk 0", "batch 31, row 0, chunk 0"]);
});

test("docs/guide/cli-reference.md is what the command says (after a wanted change: npx vitest run test/readme -u)", async () => {
  const helps = await Promise.all(
    Object.entries(commands).map(async ([name, { load }]) => {
      const { command } = await load();
      return `## ${name}\n\n\`\`\`\n${commandHelp(name, command)}\n\`\`\`\n`;
    }),
  );
  const text = `# Command-line reference\n\nMade from the command's own help; see [cli.md](cli.md) for what is common to all.\n\n\`\`\`\n${generalHelp()}\n\`\`\`\n\n${helps.join("\n")}`;
  await expect(text).toMatchFileSnapshot(join(root, "docs/guide/cli-reference.md"));
});
