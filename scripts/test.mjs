// Runs everything that must hold before a change lands, and closes with one line: `N passed, M failed[, K skipped]`.
// Plain Node, so that it can also report a build that does not compile. Every step runs even when one before it failed;
// a step that is not a suite of tests counts as one. What failed and what was skipped is named with its reason before the
// closing line, so that the end of a log tells it.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
process.chdir(root);
const bin = (/** @type {string} */ name) => join(root, "node_modules/.bin", name);

let passed = 0;
/** @type {{ name: string, reason: string }[]} */
const skipped = [];
/** @type {{ name: string, reason: string }[]} */
const failed = [];

/**
 * @param {string} title
 * @param {string} command
 * @param {string[]} args
 */
function step(title, command, args) {
  console.log(`\n== ${title}`);
  if (spawnSync(command, args, { stdio: ["ignore", "inherit", "inherit"] }).status === 0) passed++;
  else failed.push({ name: title, reason: "see above" });
}

/**
 * Runs a program beside others; what it printed is told when it ends.
 * @param {string} command
 * @param {string[]} args
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {Promise<{ status: number | null, output: string }>}
 */
function runBeside(command, args, env = {}) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...env } });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text) => {
        output += text;
      });
    }
    child.on("error", (error) => resolve({ status: null, output: error.message }));
    child.on("close", (status) => resolve({ status, output }));
  });
}

/** vitest, with a reporter of ours that leaves counts and reasons in a file. */
async function runVitest() {
  const folder = mkdtempSync(join(tmpdir(), "batchweave-test-"));
  const file = join(folder, "summary.json");
  const reporters = ["--reporter=default", `--reporter=${join(root, "scripts/summary-reporter.mjs")}`];
  console.log("\n== tests");
  const child = spawn(bin("vitest"), ["run", ...reporters], {
    stdio: ["ignore", "inherit", "inherit"],
    env: { ...process.env, BATCHWEAVE_TEST_SUMMARY: file },
  });
  const status = await new Promise((resolve) => {
    child.on("error", (error) => resolve(error.message));
    child.on("close", resolve);
  });
  const summary = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : { passed: 0, failures: [], skipped: [] };
  rmSync(folder, { recursive: true, force: true });
  passed += summary.passed;
  failed.push(...summary.failures);
  skipped.push(...summary.skipped);
  if (summary.failures.length > 0) return;
  // An error outside every test, or a runner that died, has no failed test to count.
  if (status !== 0) failed.push({ name: "tests", reason: `vitest ended with ${status}; see above` });
  else if (summary.passed === 0) failed.push({ name: "tests", reason: "none ran" });
}

/** Python's own unittest, beside vitest: both wait a lot. Its totals are in its closing lines. */
function startPython() {
  const args = ["-m", "unittest", "discover", "-v", "-s", "python/tests"];
  return runBeside("python3", args, { PYTHONPATH: join(root, "python"), PYTHONDONTWRITEBYTECODE: "1" });
}

/** @param {{ status: number | null, output: string }} result */
function countPython({ status, output }) {
  console.log(`\n== python tests\n${output.trimEnd()}`);
  const ran = Number(/^Ran (\d+) tests? in/m.exec(output)?.[1] ?? 0);
  const closing = /^(?:OK|FAILED)(?: \((.*)\))?$/m.exec(output)?.[1] ?? "";
  const of = (/** @type {string} */ word) => Number(new RegExp(`(?:^|, )${word}=(\\d+)`).exec(closing)?.[1] ?? 0);
  for (const [, name, reason] of output.matchAll(/^(.*?) \.\.\. skipped (.*)$/gm)) {
    skipped.push({ name: `python: ${name}`, reason: /** @type {string} */ (reason) });
  }
  const unsuccessful = of("failures") + of("errors") + of("unexpected successes");
  passed += Math.max(0, ran - unsuccessful - of("skipped"));
  const names = [...output.matchAll(/^(?:FAIL|ERROR|UNEXPECTED SUCCESS): (.*)$/gm)].map(([, name]) => name);
  for (let i = 0; i < unsuccessful; i++) failed.push({ name: `python: ${names[i] ?? "?"}`, reason: "see above" });
  if (unsuccessful > 0) return;
  if (status !== 0) failed.push({ name: "python tests", reason: `ended with ${status}; see above` });
  else if (ran === 0) failed.push({ name: "python tests", reason: "none ran" });
}

/** mypy and what builds packages, in a virtual environment below `.cache` (ignored by git); where they cannot be had, that is said. */
function checkPythonPackage() {
  const tools = ["mypy==2.4.1", "build==1.6.1", "setuptools==84.2.1"];
  const folder = join(root, ".cache", tools.join("-").replaceAll("==", "-"));
  const done = join(folder, ".installed");
  const install = [
    ["python3", "-m", "venv", folder],
    [join(folder, "bin/pip"), "install", "--quiet", "--disable-pip-version-check", ...tools],
  ];
  for (const [command, ...args] of existsSync(done) ? [] : install) {
    const result = spawnSync(/** @type {string} */ (command), args, { encoding: "utf8", timeout: 240_000 });
    if (result.status === 0) continue;
    rmSync(folder, { recursive: true, force: true });
    const why = `${result.stderr ?? ""}${result.error?.message ?? ""}`.trim().split("\n").at(-1)?.slice(0, 200);
    for (const name of ["types of python", "release (dry run)"])
      skipped.push({ name, reason: `${tools.join(", ")} could not be installed: ${why}` });
    return;
  }
  writeFileSync(done, "");
  const python = join(root, "python");
  const args = ["--strict", "--config-file", join(python, "pyproject.toml"), "--cache-dir", join(folder, "cache")];
  step("types of python", join(folder, "bin/mypy"), [...args, join(python, "batchweave")]);
  const release = ["scripts/release.mjs", "--dry-run", "--quick", "--python", join(folder, "bin/python")];
  step("release (dry run)", process.execPath, release);
}

step("build", process.execPath, [bin("tsc")]);
step("own command", process.execPath, ["scripts/link-bin.mjs"]);
step("page", process.execPath, ["scripts/build-page.mjs"]);
step("types of the page", process.execPath, [bin("tsc"), "-p", "dashboard/tsconfig.json"]);
step("lint", bin("biome"), ["check", "--error-on-warnings"]);
step("types of the tests", process.execPath, [bin("tsc"), "-p", "tsconfig.test.json"]);
if (existsSync("dist/src/index.js")) step("package", bin("publint"), ["--strict"]);
else skipped.push({ name: "package", reason: "src/index.ts is not there yet" });
step("figures", process.execPath, ["scripts/plots.mjs", "--check"]);
const python = startPython();
await runVitest();
countPython(await python);
checkPythonPackage();

console.log("");
for (const { name, reason } of skipped) console.log(`skipped: ${name} (${reason})`);
for (const { name, reason } of failed) console.log(`failed: ${name} (${reason})`);
const tail = skipped.length > 0 ? `, ${skipped.length} skipped` : "";
console.log(`${passed} passed, ${failed.length} failed${tail}`);
process.exitCode = failed.length > 0 ? 1 : 0;
