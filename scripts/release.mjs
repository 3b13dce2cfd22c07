// Releases one version: the npm package and both Python packages, from a clean clone of its tag; or shows that it could.
//
//   make release                                  checks, builds, tries what was built, publishes
//   make release ARGS=--dry-run                   all of it but publishing, from any clone
//   node scripts/release.mjs --dry-run --quick    what `make test` runs: what is built already, without the network and without the command's wheel
//
// --python PATH: an interpreter with `build`, and `twine` for all but --quick (default python3). Nothing is published before everything was tried.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));
const { values: given } = parseArgs({
  options: {
    "dry-run": { type: "boolean", default: false },
    quick: { type: "boolean", default: false },
    python: { type: "string", default: "python3" },
  },
});
const isReal = !given["dry-run"];
const python = given.python;
if (isReal && given.quick) fail("--quick is for a dry run: a release tries everything.");
/** @type {{ name: string, version: string }} */
const { name, version } = JSON.parse(readFileSync("package.json", "utf8"));

/** @param {string} message @returns {never} */
function fail(message) {
  console.error(`release: ${message}`);
  process.exit(1);
}

/**
 * Runs a program to its end; what it printed on stdout. Whatever it complains about ends the release.
 * @param {string} what
 * @param {string} command
 * @param {string[]} args
 * @param {NodeJS.ProcessEnv} [env]
 */
function must(what, command, args, env = {}) {
  const result = spawnSync(command, args, { encoding: "utf8", maxBuffer: 1 << 28, env: { ...process.env, ...env } });
  if (result.status !== 0) {
    console.error(`${result.stdout ?? ""}${result.stderr ?? ""}${result.error?.message ?? ""}`.trimEnd().slice(-4_000));
    fail(`${what}: failed, see above. Nothing was published.`);
  }
  console.log(`ok: ${what}`);
  return result.stdout;
}

must(`all parts have version ${version}`, python, ["python/tools/build_wheels.py", "--check"]);
const isDescribed = readFileSync("CHANGELOG.md", "utf8").includes(`\n## [${version}]`);
if (isReal) {
  if (must("git can be asked", "git", ["status", "--porcelain"]) !== "")
    fail("the clone has changes. Release from a clean one.");
  const tags = must("tags of this commit", "git", ["tag", "--points-at", "HEAD"]).split("\n");
  if (!tags.includes(`v${version}`)) fail(`this commit has no tag v${version}. Tag it, or check the tag out.`);
  if (!isDescribed) fail(`CHANGELOG.md has no section [${version}]: rename [Unreleased].`);
} else if (!isDescribed) console.log(`note: CHANGELOG.md has no section [${version}] yet; a release needs one.`);

if (!given.quick) {
  // What is left of sources that are gone must not be in a package.
  must("old build removed", "npm", ["run", "-s", "clean"]);
  must("built", "npm", ["run", "-s", "build"]);
}

/** @type {[{ files: { path: string }[] }]} */
const [packed] = JSON.parse(must("npm package packed", "npm", ["pack", "--dry-run", "--json", "--ignore-scripts"]));
const paths = new Set(packed.files.map(({ path }) => path));
for (const path of ["LICENSE", "README.md", "dist/src/index.js", "dist/src/cli/main.js", "dist/dashboard/index.html"]) {
  if (!paths.has(path)) fail(`the npm package has no ${path}.`);
}
const foreign = [...paths].filter((path) =>
  /^(?:test|sim|bench|harness|mutate|dist\/(?!src\/|dashboard\/))/.test(path),
);
if (foreign.length > 0) fail(`the npm package has files that are not for users: ${foreign.slice(0, 5).join(", ")}.`);

const out = mkdtempSync(join(tmpdir(), "batchweave-release-"));
process.on("exit", () => rmSync(out, { recursive: true, force: true }));
const pure = given.quick ? ["--pure"] : [];
must("Python packages built, their files compared with the repository's", python, [
  "python/tools/build_wheels.py",
  "--out",
  out,
  ...pure,
]);
const files = readdirSync(out).map((file) => join(out, file));
if (!given.quick) {
  must("pages and metadata as PyPI wants them", python, ["-m", "twine", "check", "--strict", ...files]);
  const tests = ["-m", "unittest", "discover", "-s", "python/tests", "-p", "test_package.py"];
  must("wheels installed into an empty environment and used, tests of the sdist run", python, tests, {
    BATCHWEAVE_TEST_WHEELS: out,
    PYTHONPATH: "python",
  });
}
if (isReal) {
  // A release that was interrupted in between is completed by running it again.
  const known = spawnSync("npm", ["view", `${name}@${version}`, "version"], { encoding: "utf8" }).stdout.trim();
  if (known !== version) must(`${name} ${version} published on npm`, "npm", ["publish"]);
  must(`batchweave and batchweave-cli ${version} published on PyPI`, python, [
    "-m",
    "twine",
    "upload",
    "--skip-existing",
    ...files,
  ]);
} else
  console.log(
    `${version} could be released${given.quick ? ", as far as can be said without the network" : ""}; nothing was published.`,
  );
