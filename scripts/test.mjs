// Runs everything that must hold before a change lands, and closes with one line: `N passed, M failed[, K skipped]`.
// Plain Node, so that it can also report a build that does not compile. Every step runs even when one before it failed;
// a step that is not a suite of tests counts as one. What was skipped is named with its reason, never dropped.
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
process.chdir(root);
const bin = (/** @type {string} */ name) => join(root, "node_modules/.bin", name);

const total = { passed: 0, failed: 0 };
/** @type {{ name: string, reason: string }[]} */
const skipped = [];
/** @type {string[]} */
const failedSteps = [];

/**
 * @param {string} title
 * @param {string} command
 * @param {string[]} args
 * @param {NodeJS.ProcessEnv} [env]
 */
function start(title, command, args, env = {}) {
  console.log(`\n== ${title}`);
  return spawnSync(command, args, { stdio: ["ignore", "inherit", "inherit"], env: { ...process.env, ...env } }).status;
}

/**
 * @param {string} title
 * @param {string} command
 * @param {string[]} args
 */
function step(title, command, args) {
  count(title, start(title, command, args) === 0 ? { passed: 1, failed: 0 } : { passed: 0, failed: 1 });
}

/**
 * @param {string} title
 * @param {{ passed: number, failed: number }} result
 */
function count(title, result) {
  total.passed += result.passed;
  total.failed += result.failed;
  if (result.failed > 0) failedSteps.push(title);
}

/** vitest, with a reporter of ours that leaves counts and reasons in a file. */
function runVitest() {
  const folder = mkdtempSync(join(tmpdir(), "batchweave-test-"));
  const file = join(folder, "summary.json");
  const reporters = ["--reporter=default", `--reporter=${join(root, "scripts/summary-reporter.mjs")}`];
  const status = start("tests", bin("vitest"), ["run", ...reporters], { BATCHWEAVE_TEST_SUMMARY: file });
  const summary = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : { passed: 0, failed: 0, skipped: [] };
  rmSync(folder, { recursive: true, force: true });
  // An error outside every test, or a runner that died, has no failed test to count.
  if (status !== 0 && summary.failed === 0) summary.failed = 1;
  if (summary.passed + summary.failed === 0) summary.failed = 1;
  count("tests", summary);
  skipped.push(...summary.skipped);
}

/** Python's own unittest; its totals are read from the closing lines, which it writes to stderr. */
function runPython() {
  if (!existsSync("python/tests")) return;
  console.log("\n== python tests");
  const args = ["-m", "unittest", "discover", "-v", "-s", "python/tests"];
  const env = { ...process.env, PYTHONPATH: join(root, "python"), PYTHONDONTWRITEBYTECODE: "1" };
  const result = spawnSync("python3", args, { encoding: "utf8", env, maxBuffer: 1 << 28 });
  const output = `${result.stdout ?? ""}${result.stderr ?? ""}${result.error?.message ?? ""}`;
  console.log(output.trimEnd());
  const ran = Number(/^Ran (\d+) tests? in/m.exec(output)?.[1] ?? 0);
  const closing = /^(?:OK|FAILED)(?: \((.*)\))?$/m.exec(output)?.[1] ?? "";
  const of = (/** @type {string} */ word) => Number(new RegExp(`(?:^|, )${word}=(\\d+)`).exec(closing)?.[1] ?? 0);
  let failed = of("failures") + of("errors") + of("unexpected successes");
  if ((result.status !== 0 || ran === 0) && failed === 0) failed = 1;
  for (const [, name, reason] of output.matchAll(/^(.*?) \.\.\. skipped (.*)$/gm)) {
    skipped.push({ name: `python: ${name}`, reason: /** @type {string} */ (reason) });
  }
  count("python tests", { passed: Math.max(0, ran - failed - of("skipped")), failed });
}

step("build", process.execPath, [bin("tsc")]);
step("own command", process.execPath, ["scripts/link-bin.mjs"]);
step("lint", bin("biome"), ["check", "--error-on-warnings"]);
step("types of the tests", process.execPath, [bin("tsc"), "-p", "tsconfig.test.json"]);
if (existsSync("dist/src/index.js")) step("package", bin("publint"), ["--strict"]);
else skipped.push({ name: "package", reason: "src/index.ts is not there yet" });
runVitest();
runPython();

console.log("");
for (const { name, reason } of skipped) console.log(`skipped: ${name} (${reason})`);
for (const title of failedSteps) console.log(`failed: ${title}`);
const tail = skipped.length > 0 ? `, ${skipped.length} skipped` : "";
console.log(`${total.passed} passed, ${total.failed} failed${tail}`);
process.exitCode = total.failed > 0 ? 1 : 0;
