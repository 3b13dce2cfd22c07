// Builds the documentation site into dist/site from what is in the repository:
//   the pages as they are, in their folders; a reference of the TypeScript API by typedoc; one of Python by pdoc where that can be had.
// A link that leads nowhere fails the build: check-links.mjs follows every one of the finished pages.
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, posix, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vitepress";
import { deadLinks, slugOf } from "./check-links.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));
const root = join(here, "../..");
const stage = join(root, ".cache/site");
const out = join(root, "dist/site");

/** Pages at the top, besides everything in docs. */
const topPages = ["README.md", "ARCHITECTURE.md", "FORMAT.md", "CONTRIBUTING.md", "CHANGELOG.md", "python/README.md"];

/**
 * @param {string} command
 * @param {string[]} args
 * @param {import("node:child_process").SpawnSyncOptions} [options]
 */
function run(command, args, options = {}) {
  const { status, error } = spawnSync(command, args, { stdio: "inherit", ...options });
  if (status !== 0) throw new Error(`${command} ${args[0]} ended with ${status ?? error?.message}`);
}

/**
 * @param {string} folder
 * @returns {string[]}
 */
function filesBelow(folder) {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(root, join(entry.parentPath, entry.name)).split(sep).join("/"))
    .filter((path) => !path.startsWith("docs/site/"));
}

/** The first heading of a page. @param {string} text */
function titleOf(text) {
  return /^# (.+)$/m.exec(text)?.[1]?.replaceAll("`", "") ?? "";
}

/** @type {Map<string, string>} pages by their path in the repository */
const pages = new Map();
/** Files that pages link to and that are no pages: they are put beside them. @type {Set<string>} */
const linked = new Set();

function readPages() {
  const found = [...topPages, ...filesBelow("docs").filter((path) => path.endsWith(".md"))];
  // Pages of examples that others link to come along.
  for (let path = found.shift(); path !== undefined; path = found.shift()) {
    if (pages.has(path)) continue;
    const text = readFileSync(join(root, path), "utf8").replace(/^<!--.*?-->\n/gms, "");
    pages.set(path, text);
    for (const [, link] of text.matchAll(/\]\(([^)\s#]+)(?:#[^)\s]*)?\)/g)) {
      if (/^[a-z]+:/.test(/** @type {string} */ (link))) continue;
      const target = posix.normalize(posix.join(posix.dirname(path), /** @type {string} */ (link)));
      if (target.endsWith(".md")) found.push(target);
      else if (/\.[a-z]+$/.test(target)) linked.add(target);
    }
  }
}

/** A list of the pages of a folder, where it has none of its own. @param {string} folder @param {string} title */
function addIndex(folder, title) {
  if (pages.has(`${folder}/README.md`)) return;
  const inside = [...pages].filter(([path]) => posix.dirname(path) === folder).sort(([a], [b]) => (a < b ? -1 : 1));
  const list = inside.map(([path, text]) => `- [${titleOf(text)}](${posix.basename(path)})`);
  pages.set(`${folder}/index.md`, `# ${title}\n\n${list.join("\n")}\n`);
}

function writeStage() {
  rmSync(stage, { recursive: true, force: true });
  for (const [path, text] of pages) {
    const to = join(stage, path.replace(/README\.md$/, "index.md"));
    mkdirSync(dirname(to), { recursive: true });
    const isFolder = (/** @type {string} */ link) => {
      const target = join(root, dirname(path), link);
      return existsSync(target) && statSync(target).isDirectory();
    };
    const staged = text
      .replaceAll(/(\]\([^)\s]*)README\.md/g, "$1index.md")
      .replaceAll(/\]\(([^)\s#:]+)\)/g, (whole, link) => (isFolder(link) ? `](${link.replace(/\/$/, "")}/)` : whole));
    writeFileSync(to, staged);
  }
  for (const path of linked) {
    const to = join(stage, /\.(svg|png)$/.test(path) ? "" : "public", path);
    mkdirSync(dirname(to), { recursive: true });
    if (existsSync(join(root, path))) cpSync(join(root, path), to);
  }
  // The stored figures are linked to as a folder: a page that names them leads there.
  const data = filesBelow("docs/results/data");
  for (const path of data) {
    mkdirSync(join(stage, "public/docs/results/data"), { recursive: true });
    cpSync(join(root, path), join(stage, "public", path));
  }
  mkdirSync(join(stage, "docs/results/data"), { recursive: true });
  const list = data.map((path) => `- ${posix.basename(path)}`).join("\n");
  writeFileSync(
    join(stage, "docs/results/data/index.md"),
    `# Stored figures\n\nAs the commands printed them.\n\n${list}\n`,
  );
}

/** The TypeScript API as pages of the site, so that its search finds them. */
function makeReference() {
  run(join(here, "node_modules/.bin/typedoc"), [
    "--tsconfig",
    join(here, "tsconfig.json"),
    "--plugin",
    "typedoc-plugin-markdown",
    "--out",
    join(stage, "reference/typescript"),
    "--readme",
    "none",
    "--disableSources",
    "--excludeInternal",
    "--hideBreadcrumbs",
    "--hidePageHeader",
    "--entryFileName",
    "index",
    "--router",
    "module",
    "--logLevel",
    "Error",
    "--name",
    "TypeScript API",
    join(root, "src/index.ts"),
    join(root, "src/plan/index.ts"),
  ]);
}

/** Names the modules as programs import them, and mends links that count headings which are not there. */
function nameModules() {
  const folder = join(stage, "reference/typescript");
  const renamed = { "index.md": "index.md", "index-1.md": "batchweave.md", "plan.md": "batchweave-plan.md" };
  const found = Object.entries(renamed).map(([from, to]) => ({
    from,
    to,
    text: readFileSync(join(folder, from), "utf8"),
  }));
  for (const { from, to, text } of found) {
    const headings = [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading]) => slugOf(/** @type {string} */ (heading)));
    const named = text
      .replaceAll("(index-1.md", "(batchweave.md")
      .replaceAll("(plan.md", "(batchweave-plan.md")
      .replaceAll("[index](", "[batchweave](")
      .replaceAll("[plan](", "[batchweave/plan](")
      .replace(/^# index$/m, "# batchweave")
      .replace(/^# plan$/m, "# batchweave/plan")
      .replaceAll(/\(#([\w-]+)-(\d+)\)/g, (whole, name, number) =>
        headings.filter((one) => one === name).length > Number(number) || headings.includes(`${name}-${number}`)
          ? whole
          : `(#${name})`,
      );
    rmSync(join(folder, from));
    writeFileSync(join(folder, to), named);
  }
}

/** The Python API as pdoc writes it; where pdoc cannot be had, a page says so. @returns {boolean} */
function makePythonReference() {
  const to = join(stage, "public/reference/python");
  const environment = join(root, ".cache/pdoc-16");
  const python = join(environment, "bin/python");
  const install = [
    ["python3", ["-m", "venv", environment]],
    [python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pdoc==16.0.0"]],
  ];
  for (const [command, args] of existsSync(join(environment, ".installed")) ? [] : install) {
    const { status } = spawnSync(/** @type {string} */ (command), /** @type {string[]} */ (args), { timeout: 240_000 });
    if (status === 0) continue;
    rmSync(environment, { recursive: true, force: true });
    console.log("skipped: reference of Python (pdoc 16.0.0 could not be installed)");
    return false;
  }
  writeFileSync(join(environment, ".installed"), "");
  mkdirSync(to, { recursive: true });
  const env = { ...process.env, PYTHONPATH: join(root, "python"), PYTHONDONTWRITEBYTECODE: "1" };
  // Names that the package imports only when they are asked for are asked for.
  const program = `
import sys, typing, pathlib, batchweave, batchweave.consumer.reader, pdoc, pdoc.render
for name in batchweave.__all__: setattr(batchweave, name, getattr(batchweave, name))
batchweave.consumer.reader.Any = typing.Any
pdoc.render.configure(footer_text="BatchWeave")
pdoc.pdoc("batchweave", "!batchweave.__main__", output_directory=pathlib.Path(sys.argv[1]))`;
  run(python, ["-c", program, to], { env });
  return true;
}

readPages();
addIndex("docs/guide", "Guide");
addIndex("docs/design", "Decisions");
if ([...pages.keys()].some((path) => path.startsWith("docs/operate/"))) addIndex("docs/operate", "Operate");
writeStage();
makeReference();
nameModules();
const hasPython = makePythonReference();
process.env.BATCHWEAVE_SITE = JSON.stringify({
  stage,
  out,
  hasPython,
  pages: [...pages].map(([path, text]) => ({ path, title: titleOf(text) })),
});
await build(here);
const dead = deadLinks(out);
for (const { page, link } of dead) console.error(`dead link in ${page}: ${link}`);
if (dead.length > 0) process.exit(1);
console.log(`the site is in ${relative(process.cwd(), out) || "."}: ${pages.size} pages, no dead link`);
