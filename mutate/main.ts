/**
 * `npm run mutate`: how many small defects the tests would notice (`--help` lists the options).
 *
 * Property: a test suite that proves something fails when the code is changed. Method: a seeded sample of mutants (docs/design/0008), each
 * tried in a copy of the tree. Those that cannot be noticed, because they change nothing that is promised, are listed with reasons in equivalent.json.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Rng } from "../sim/index.js";
import { Loop } from "./loop.js";
import { keyOf, type Mutant, mutantsOf, numbered } from "./mutants.js";
import { isOf, type Reach, reaching } from "./reach.js";
import { type Catch, simulations, stagesOf, TrialTree, testsOf, type Verdict } from "./trial.js";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const rooms = ["format", "log", "cadence", "producer", "consumer", "lifecycle"];
const goal = 0.95;
const usage = `npm run mutate -- [options]: changes one thing at a time and counts how often a test notices

  --count N          mutants of each language, drawn by the seed (150; "all" for every one)
  --seed N           which ones (1)
  --only LANGUAGE    typescript or python
  --rooms A,B        rooms to change (${rooms.join(",")})
  --files A,B        only files whose path contains one of these
  --tests A,B        only test files whose path contains one of these
  --skip N           leave out the first N of the sample
  --workers N        processes that try mutants of TypeScript at the same time (1)
  --test-ms N        TypeScript: the quickest tests only, as many as take N ms without a mutant
  --tests-only       no simulation for those that all tests let pass: quicker, and a score that is too low rather than too high
  --python PATH      an interpreter with numpy (python3)
  --reach FOLDER     where it is kept which tests come by which place (.cache/mutate)
  --json             one line of JSON for each language
`;

function optionsOf() {
  try {
    return parseArgs({
      options: {
        count: { type: "string", default: "150" },
        seed: { type: "string", default: "1" },
        only: { type: "string" },
        python: { type: "string", default: "python3" },
        rooms: { type: "string", default: rooms.join(",") },
        files: { type: "string", default: "" },
        tests: { type: "string", default: "" },
        skip: { type: "string", default: "0" },
        workers: { type: "string", default: "1" },
        "test-ms": { type: "string" },
        reach: { type: "string", default: join(root, ".cache/mutate") },
        "tests-only": { type: "boolean", default: false },
        json: { type: "boolean", default: false },
        help: { type: "boolean", short: "h", default: false },
      },
    }).values;
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n\n${usage}`);
    process.exit(2);
  }
}

const values = optionsOf();
if (values.help) {
  process.stdout.write(usage);
  process.exit(0);
}
process.chdir(root);
// The processes that try mutants end with this one.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(130));
const wanted = values.rooms.split(",");
const tracked = spawnSync("git", ["ls-files", "-co", "--exclude-standard"], { cwd: root, encoding: "utf8" })
  .stdout.split("\n")
  .filter((file) => file !== "" && existsSync(join(root, file)));
const isIn = (folder: string, ending: string) => (file: string) =>
  file.endsWith(ending) && rooms.some((room) => file.startsWith(`${folder}/${room}/`));
const isWanted = ({ file }: Mutant): boolean =>
  wanted.some((room) => file.includes(`/${room}/`)) && values.files.split(",").some((part) => file.includes(part));

/** Every mutant of every room: a place in this list is a mutant's number. */
function allMutants(language: string): Mutant[] {
  if (language === "typescript") {
    const files = tracked.filter(isIn("src", ".ts")).filter((file) => !file.endsWith("/index.ts"));
    return numbered(files.flatMap((file) => mutantsOf(file, readFileSync(join(root, file), "utf8"))));
  }
  const files = tracked.filter(isIn("python/batchweave", ".py"));
  const { stdout } = spawnSync(values.python, ["mutate/python_mutants.py", ...files], {
    cwd: root,
    encoding: "utf8",
    maxBuffer: 1 << 28,
  });
  return numbered(JSON.parse(stdout) as Mutant[]);
}

function sampleOf<T>(list: readonly T[], name: string): T[] {
  const random = new Rng(Number(values.seed), name);
  const left = [...list];
  const count = values.count === "all" ? left.length : Math.min(Number(values.count), left.length);
  return Array.from({ length: count }, () => left.splice(random.uint32() % left.length, 1)[0] as T);
}

const known = new Map(
  (JSON.parse(readFileSync(join(root, "mutate/equivalent.json"), "utf8")) as { key: string; reason: string }[]).map(
    ({ key, reason }) => [key, reason],
  ),
);

function hashOf(files: readonly string[]): string {
  const hash = createHash("sha256");
  for (const file of files) hash.update(`${file}\0`).update(readFileSync(join(root, file)));
  return hash.digest("hex").slice(0, 16);
}

/** What was measured of each test: kept for the next run. After a change of a test alone, only that one is measured again. */
async function measured<T>(
  language: string,
  measure: (tests: readonly string[]) => Promise<(test: string) => T>,
): Promise<Record<string, T>> {
  const isAsked = (path: string) => values.tests.split(",").some((part) => path.includes(part));
  const tests = testsOf(language, tracked).filter(isAsked);
  const others = language === "python" ? /^(test\/(conformance|fuzz)\/|python\/)/ : /^(src\/|test\/|mutate\/mutants)/;
  const isOther = (path: string) => others.test(path) && !/\btest_\w+\.py$|\.test\.ts$/.test(path);
  // An interpreter without numpy skips what needs it.
  const who = language === "python" ? `python-${values.python.replaceAll(/\W+/g, "_")}` : language;
  const path = join(values.reach, `${who}-${hashOf(tracked.filter(isOther))}.json`);
  const stored: Record<string, T> = existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : {};
  const keys = tests.map((test) => [test, `${test} ${hashOf([test])}`] as const);
  const unknown = keys.filter(([, key]) => !(key in stored));
  if (unknown.length > 0) {
    const of = await measure(unknown.map(([test]) => test));
    for (const [test, key] of unknown) stored[key] = of(test);
    mkdirSync(values.reach, { recursive: true });
    writeFileSync(path, JSON.stringify(stored));
  }
  return Object.fromEntries(keys.map(([test, key]) => [test, stored[key] as T]));
}

/** Tells each verdict as it comes. */
class Verdicts {
  readonly list: Verdict[] = [];
  readonly #total: number;

  constructor(total: number) {
    this.#total = total;
  }

  add(mutant: Mutant, caught: Catch | undefined): void {
    this.list.push({ mutant, caught });
    const how = caught ? `${caught.stage}${caught.isTimeout ? " (timeout)" : ""}, ${caught.proof}` : "SURVIVED";
    const { file, line, what, source } = mutant;
    process.stderr.write(
      `${this.list.length}/${this.#total} ${file}:${line} ${what}: ${how}${caught ? "" : ` | ${source}`}\n`,
    );
  }
}

async function tryPython(sample: readonly Mutant[], verdicts: Verdicts): Promise<void> {
  using tree = new TrialTree(root, tracked);
  const reaches = await measured("python", async (tests) => {
    const found = await tree.reaches(values.python, tests);
    return (test): Reach[] => found.filter((reach) => isOf(reach, test));
  });
  using python = tree.pythonTrials(values.python);
  for (const mutant of sample)
    verdicts.add(mutant, await python.try(mutant, reaching(Object.values(reaches).flat(), mutant)));
}

async function tryTypeScript(sample: readonly Mutant[], verdicts: Verdicts, all: readonly Mutant[]): Promise<void> {
  using tree = new TrialTree(root, tracked);
  using loop = new Loop(root, tracked, all);
  const tests = await measured("typescript", (unknown) => loop.measure(unknown));
  const atLoad = new Set(Object.values(tests).flatMap(({ imports }) => imports.map((id) => all[id - 1])));
  const left: Mutant[] = [];
  const hear = (mutant: Mutant, caught: Catch | undefined): void => {
    if (caught || values["tests-only"]) verdicts.add(mutant, caught);
    else left.push(mutant);
  };
  const limits = { workers: Number(values.workers), msMax: Number(values["test-ms"] ?? 1e9) };
  await loop.try(
    sample.filter((mutant) => !atLoad.has(mutant)),
    tests,
    limits,
    hear,
  );
  for (const mutant of sample.filter((one) => atLoad.has(one)))
    hear(mutant, await tree.try(mutant, stagesOf(mutant, Loop.reaches(tests, all, mutant))));
  for (const mutant of left) verdicts.add(mutant, await tree.try(mutant, simulations));
}

/** Tries the sample; a score leaves out what is known to be equivalent. */
async function score(language: string): Promise<number> {
  const every = allMutants(language);
  const all = every.filter(isWanted);
  const sample = sampleOf(all, language).slice(Number(values.skip));
  const unknown = sample.filter((mutant) => !known.has(keyOf(mutant)));
  const verdicts = new Verdicts(unknown.length);
  await (language === "python" ? tryPython : tryTypeScript)(unknown, verdicts, every);
  const survivors = verdicts.list.filter(({ caught }) => caught === undefined).map(({ mutant }) => mutant);
  const timeouts = verdicts.list.filter(({ caught }) => caught?.isTimeout).length;
  const caught = unknown.length - survivors.length;
  const share = unknown.length === 0 ? 0 : caught / unknown.length;
  const equivalent = sample.length - unknown.length;
  const row = {
    bench: "mutate",
    language,
    seed: Number(values.seed),
    mutants: all.length,
    tried: sample.length,
    equivalent,
    caught,
    timeouts,
    score: Number(share.toFixed(3)),
    survivors: survivors.map((mutant) => keyOf(mutant)),
  };
  if (values.json) process.stdout.write(`${JSON.stringify(row)}\n`);
  else {
    process.stdout.write(
      `${language}: ${caught} of ${unknown.length} caught (${(100 * share).toFixed(1)} %), ${timeouts} of them by the clock, ${equivalent} known to be equivalent, of ${all.length} possible\n`,
    );
    for (const mutant of survivors)
      process.stdout.write(`  survived: ${mutant.file}:${mutant.line} ${mutant.what}: ${mutant.source}\n`);
  }
  return share;
}

const languages = values.only === undefined ? ["typescript", "python"] : [values.only];
const scores: number[] = [];
for (const language of languages) scores.push(await score(language));
process.exitCode = scores.every((share) => share >= goal) ? 0 : 1;
