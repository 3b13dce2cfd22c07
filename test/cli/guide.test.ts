/**
 * Property: the sessions in docs/guide/lifecycle.md and docs/quickstart.md work as they stand there: produce, consume with checkpoints, roll back, ask what a
 * step held, fork with a skip, reclaim, verify. Method: every `sh` block of the page is run, unchanged and in order, by one shell with the built command on
 * its PATH; after each, what it printed is compared with the `text` block below it, in which `…` stands for anything.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readText, root } from "../source-tree.js";
import { buildIfStale, Workspace } from "./command-line.js";

interface Block {
  readonly script: string;
  /** What it must print, `…` standing for anything; undefined: nothing is said. */
  readonly output: string | undefined;
}

const mark = "@@ end of block";
const space = new Workspace();

beforeAll(() => {
  buildIfStale();
  mkdirSync(space.path("bin"));
  mkdirSync(space.path("tmp"));
  symlinkSync(join(root, "dist/src/cli/main.js"), space.path("bin/batchweave"));
});
afterAll(() => space.remove());

function blocksOf(page: string): Block[] {
  const blocks = [...readText(page).matchAll(/^```sh\n([\s\S]*?)^```\n(?:```text\n([\s\S]*?)^```\n)?/gm)];
  return blocks.map(([, script, output]) => ({ script: script as string, output }));
}

/** `…` alone on a line: any lines, or none. Within a line: any characters. Runs of spaces count as one: widths depend on what varies. */
function patternOf(expected: string): RegExp {
  const lines = expected.trimEnd().split("\n");
  const parts = lines.map((line) =>
    line === "…"
      ? "(?:.*\n)*?"
      : `${line
          .replace(/[.*+?^${}()|[\]\\]/g, "\\$&")
          .replace(/ +/g, " +")
          .replaceAll("…", ".*")}\n`,
  );
  return new RegExp(`^${parts.join("")}$`);
}

const pages: readonly (readonly [string, readonly string[]])[] = [
  ["docs/guide/lifecycle.md", ["produce", "consume", "checkpoint", "fork", "inspect", "find", "reclaim", "verify"]],
  [
    "docs/quickstart.md",
    ["create", "produce", "info", "consume", "checkpoint", "close", "reclaim", "verify", "delete"],
  ],
];

test.each(pages)("the session of %s runs, and prints what the page says", (page, commands) => {
  const blocks = blocksOf(page);
  expect(blocks.length).toBeGreaterThan(4);
  const text = blocks.map(({ script }) => script).join("");
  for (const command of commands) expect(text).toContain(`batchweave ${command} `);
  const script = blocks.map((block) => `${block.script}echo "${mark}"\n`).join("");
  const ended = spawnSync("sh", ["-eu", "-c", script], {
    encoding: "utf8",
    env: {
      PATH: [space.path("bin"), join(process.execPath, ".."), process.env["PATH"]].join(":"),
      TMPDIR: space.path("tmp"),
    },
  });
  expect([ended.status, ended.stderr]).toEqual([0, expect.any(String)]);
  const printed = ended.stdout.split(`${mark}\n`);
  expect(printed).toHaveLength(blocks.length + 1);
  blocks.forEach(({ output }, i) => {
    if (output !== undefined) expect(printed[i]).toMatch(patternOf(output));
  });
});

test("the comparison can fail", () => {
  expect("a 1\nb\n").toMatch(patternOf("a …\n…\nb"));
  expect("a 1\nx\ny\nb\n").toMatch(patternOf("a …\n…\nb"));
  expect("a 1\nb\nc\n").not.toMatch(patternOf("a …\nb"));
  expect("a 1\n").not.toMatch(patternOf("a …\nb"));
});
