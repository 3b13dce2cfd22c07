/**
 * Property: every link of our documents to another file or heading of ours leads there, and what checks the built site finds links that do not. Method: all Markdown
 * files are read and their links followed, as a reader of the repository would; a small site with dead links of each kind is checked.
 */
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, posix } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, test } from "vitest";
import { listFiles, readText, root } from "./source-tree.js";

const top = ["README.md", "ARCHITECTURE.md", "FORMAT.md", "CONTRIBUTING.md", "CHANGELOG.md", "python/README.md"];
const pages = [...top, ...listFiles("docs", [".md"]), ...listFiles("examples", [".md"])];

/** A heading's id as code hosts and the site make it. */
function slug(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[`*]|\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .trim()
    .replace(/\s/g, "-");
}

function withoutCode(text: string): string {
  return text.replace(/^```[\s\S]*?^```$/gm, "").replace(/`[^`\n]*`/g, "");
}

test("every link of the documents leads to a file, and to a heading of it", () => {
  const dead = pages.flatMap((page) =>
    [...withoutCode(readText(page)).matchAll(/\]\(([^)\s]+)\)/g)].flatMap(([, link = ""]) => {
      if (/^[a-z]+:/.test(link)) return [];
      const [path = "", anchor] = link.split("#");
      const target = path === "" ? page : posix.normalize(posix.join(posix.dirname(page), path));
      if (!existsSync(join(root, target))) return [`${page}: ${link}`];
      if (anchor === undefined || !target.endsWith(".md")) return [];
      const headings = [...readText(target).matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) => slug(heading));
      return headings.includes(anchor) ? [] : [`${page}: ${link}`];
    }),
  );
  expect(pages.length).toBeGreaterThan(30);
  expect(dead).toEqual([]);
});

test("the site's own check finds a missing page, a missing heading and a missing picture, and nothing else", async () => {
  const checker: string = pathToFileURL(join(root, "docs/site/check-links.mjs")).href;
  const { deadLinks } = (await import(checker)) as { deadLinks(folder: string): { page: string; link: string }[] };
  const folder = mkdtempSync(join(tmpdir(), "batchweave-site-"));
  try {
    mkdirSync(join(folder, "guide"));
    writeFileSync(join(folder, "guide/index.html"), '<h2 id="one">One</h2><img src="../missing.svg">');
    writeFileSync(
      join(folder, "index.html"),
      '<a href="/guide/">a</a><a href="guide/#one">b</a><a href="./guide/#two">c</a><a href="/gone.html">d</a><a href="#x">e</a><a href="https://example.org/">f</a>',
    );
    const found = deadLinks(folder).map(({ page, link }) => `${page} ${link}`);
    expect(found.sort()).toEqual([
      "guide/index.html ../missing.svg",
      "index.html #x",
      "index.html ./guide/#two",
      "index.html /gone.html",
    ]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
