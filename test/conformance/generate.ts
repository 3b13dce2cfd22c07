/**
 * Makes the conformance cases: `npx tsx test/conformance/generate.ts`. Every case is plain JSON (binary as base64) with the result that the
 * TypeScript code gives; vitest and Python's unittest both run them, so that neither language can drift. Everything follows from fixed
 * seeds: running it again changes nothing unless the code does.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { blockCases } from "./block-cases.js";
import { runCase } from "./case-runner.js";
import { codecCases } from "./codec-cases.js";
import { fieldCases } from "./field-cases.js";
import { headCases } from "./head-cases.js";
import { hostileCases } from "./hostile-cases.js";
import { joinCases } from "./join-cases.js";
import { namespaceCases } from "./namespace-cases.js";
import { projectionCases } from "./projection-cases.js";
import { stageCases } from "./stage-cases.js";

const folder = join(dirname(fileURLToPath(import.meta.url)), "fixtures");
mkdirSync(folder, { recursive: true });
const families = {
  codecs: codecCases(),
  blocks: blockCases(),
  fields: fieldCases(),
  heads: headCases(),
  hostile: hostileCases(),
  joins: joinCases(),
  projections: projectionCases(),
  stages: stageCases(),
  namespaces: await namespaceCases(),
};
for (const [family, cases] of Object.entries(families)) {
  const lines: string[] = [];
  for (const given of cases) lines.push(JSON.stringify({ ...given, expect: await runCase(given) }));
  writeFileSync(join(folder, `${family}.jsonl`), `${lines.join("\n")}\n`);
  process.stdout.write(`${family}: ${lines.length} cases\n`);
}
