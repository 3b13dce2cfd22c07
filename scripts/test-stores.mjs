// `make test-stores`: every backend against every server that can be had here, and the table in docs/stores.md, which is this run's output.
// Closes with `N passed, M failed[, K skipped]`; whatever was skipped is named with its reason.
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));
const folder = mkdtempSync(join(tmpdir(), "batchweave-stores-"));
const file = join(folder, "results.json");
spawnSync(
  "node_modules/.bin/vitest",
  ["run", "-c", "vitest.stores.config.ts", "--reporter=default", "--reporter=json", `--outputFile=${file}`],
  {
    stdio: ["ignore", "inherit", "inherit"],
  },
);
if (!existsSync(file)) {
  console.log("0 passed, 1 failed");
  process.exit(1);
}
/** @type {{ testResults: { assertionResults: { ancestorTitles: string[], title: string, status: string, meta?: unknown }[] }[] }} */
const results = JSON.parse(readFileSync(file, "utf8"));
rmSync(folder, { recursive: true, force: true });

const tests = results.testResults.flatMap((one) => one.assertionResults);
/** Backend -> case -> status. */
const backends = new Map();
/** Cases in the order of the suite. */
const cases = new Set();
for (const { ancestorTitles, title, status } of tests) {
  const backend = /^(.*): conformance$/.exec(ancestorTitles.find((one) => one !== "") ?? title)?.[1];
  if (backend === undefined) continue;
  if (!backends.has(backend)) backends.set(backend, new Map());
  if (title.endsWith(": conformance")) continue; // the whole suite was skipped
  const name = [...ancestorTitles.filter((one) => one !== "").slice(1), title].join(" ");
  cases.add(name);
  backends.get(backend).set(name, status);
}
const order = ["memory", "file", "s3", "azure", "gcs"];
const rank = (/** @type {string} */ backend) => order.findIndex((name) => backend.startsWith(name));
const columns = [...backends.keys()].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
const sign = (/** @type {string | undefined} */ status) =>
  status === "passed" ? "yes" : status === "failed" ? "**NO**" : "-";
const cell = (/** @type {string} */ text) => text.replaceAll("|", "\\|");
const rows = [...cases].map(
  (name) => `| ${cell(name)} | ${columns.map((backend) => sign(backends.get(backend).get(name))).join(" | ")} |`,
);
const table = [`| case | ${columns.join(" | ")} |`, `|---|${columns.map(() => "---").join("|")}|`, ...rows].join("\n");

const page = "docs/stores.md";
const [begin, end] = ["<!-- table: written by make test-stores -->", "<!-- end of table -->"];
const text = readFileSync(page, "utf8");
const [head, rest] = [text.indexOf(begin), text.indexOf(end)];
if (head < 0 || rest < 0) throw new Error(`${page} has lost the marks of its table`);
const written = `${text.slice(0, head)}${begin}\n\n${table}\n\n${text.slice(rest)}`;
if (written !== text) writeFileSync(page, written);

const of = (/** @type {string} */ status) => tests.filter((one) => one.status === status).length;
const [passed, failed, skipped] = [of("passed"), of("failed"), of("skipped") + of("pending")];
for (const { ancestorTitles, title, status } of tests) {
  if (status === "skipped" || status === "pending")
    console.log(`skipped: ${[...ancestorTitles, title].filter(Boolean).join(" > ")}`);
}
console.log(
  `${page} ${written === text ? "is unchanged" : "was rewritten"}: ${columns.length} backends, ${rows.length} cases`,
);
console.log(`${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
