/**
 * `npm run mutate [-- --count 150] [--seed 1] [--only typescript|python] [--rooms log,cadence] [--python PATH] [--skip N] [--reach FOLDER] [--tests-only] [--json]`: how many small defects the tests would notice.
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
import { keyOf, type Mutant, mutantsOf } from "./mutants.js";
import { isOf, type Reach, reaching } from "./reach.js";
import { type Catch, stagesOf, TrialTree, testsOf, type Verdict } from "./trial.js";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const rooms = ["format", "log", "cadence", "producer", "consumer", "lifecycle"];
const goal = 0.95;

const { values } = parseArgs({
  options: {
    count: { type: "string", default: "150" },
    seed: { type: "string", default: "1" },
    only: { type: "string" },
    python: { type: "string", default: "python3" },
    rooms: { type: "string", default: rooms.join(",") },
    skip: { type: "string", default: "0" },
    reach: { type: "string", default: join(root, ".cache/mutate") },
    // No simulation: quicker, and a score that is too low rather than too high.
    "tests-only": { type: "boolean", default: false },
    json: { type: "boolean", default: false },
  },
});
process.chdir(root);
const wanted = values.rooms.split(",");
const tracked = spawnSync("git", ["ls-files", "-co", "--exclude-standard"], { cwd: root, encoding: "utf8" })
  .stdout.split("\n")
  .filter((file) => file !== "" && existsSync(join(root, file)));
const isIn = (folder: string, ending: string) => (file: string) =>
  file.endsWith(ending) && wanted.some((room) => file.startsWith(`${folder}/${room}/`));

function allMutants(language: string): Mutant[] {
  if (language === "typescript")
    return tracked
      .filter(isIn("src", ".ts"))
      .filter((file) => !file.endsWith("/index.ts"))
      .flatMap((file) => mutantsOf(file, readFileSync(join(root, file), "utf8")));
  const files = tracked.filter(isIn("python/batchweave", ".py"));
  const { stdout } = spawnSync(values.python, ["mutate/python_mutants.py", ...files], {
    cwd: root,
    encoding: "utf8",
    maxBuffer: 1 << 28,
  });
  return JSON.parse(stdout) as Mutant[];
}

function sampleOf<T>(list: readonly T[], count: number, name: string): T[] {
  const random = new Rng(Number(values.seed), name);
  const left = [...list];
  return Array.from(
    { length: Math.min(count, left.length) },
    () => left.splice(random.uint32() % left.length, 1)[0] as T,
  );
}

const known = new Map(
  (JSON.parse(readFileSync(join(root, "mutate/equivalent.json"), "utf8")) as { key: string; reason: string }[]).map(
    ({ key, reason }) => [key, reason],
  ),
);

/** Which lines each test executes: measured, and kept for the next run. After a change of a test alone, only that one is measured again. */
async function reachesOf(tree: TrialTree, language: string): Promise<Reach[]> {
  const hashOf = (files: readonly string[]): string => {
    const hash = createHash("sha256");
    for (const file of files) hash.update(`${file}\0`).update(readFileSync(join(root, file)));
    return hash.digest("hex").slice(0, 16);
  };
  const tests = testsOf(language, tracked);
  const isOther = (path: string) => /^(src|test|python)\//.test(path) && !/\btest_\w+\.py$|\.test\.ts$/.test(path);
  const path = join(values.reach, `${language}-${hashOf(tracked.filter(isOther))}.json`);
  const known: Record<string, Reach[]> = existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : {};
  const keys = new Map(tests.map((test) => [test, `${test} ${hashOf([test])}`]));
  const unknown = tests.filter((test) => !((keys.get(test) as string) in known));
  if (unknown.length > 0) {
    const found = await tree.reaches(language, values.python, unknown);
    for (const test of unknown) known[keys.get(test) as string] = found.filter((reach) => isOf(reach, test));
    mkdirSync(values.reach, { recursive: true });
    writeFileSync(path, JSON.stringify(known));
  }
  return [...keys.values()].flatMap((key) => known[key] as Reach[]);
}

/** Tries the sample; a score leaves out what is known to be equivalent. */
async function score(language: string): Promise<number> {
  const all = allMutants(language);
  const sample = sampleOf(all, Number(values.count), language);
  using tree = new TrialTree(root, tracked);
  const reaches = await reachesOf(tree, language);
  using python = language === "python" ? tree.pythonTrials(values.python) : undefined;
  const verdicts: Verdict[] = [];
  for (const [i, mutant] of sample.entries()) {
    if (i < Number(values.skip) || known.has(keyOf(mutant))) continue;
    let caught: Catch | undefined;
    if (python) caught = await python.try(mutant, reaching(reaches, mutant));
    else {
      const stages = stagesOf(mutant, reaches);
      const tests = stages.filter(({ name }) => name === "quick" || name === "slow");
      caught = await tree.try(mutant, values["tests-only"] ? tests : stages);
    }
    verdicts.push({ mutant, caught });
    const how = caught ? `${caught.stage}${caught.isTimeout ? " (timeout)" : ""}, ${caught.proof}` : "SURVIVED";
    process.stderr.write(`${i + 1}/${sample.length} ${mutant.file}:${mutant.line} ${mutant.what}: ${how}\n`);
  }
  const survivors = verdicts.filter(({ caught }) => caught === undefined).map(({ mutant }) => mutant);
  const timeouts = verdicts.filter(({ caught }) => caught?.isTimeout).length;
  const caught = verdicts.length - survivors.length;
  const share = verdicts.length === 0 ? 0 : caught / verdicts.length;
  const equivalent = sample.filter((mutant) => known.has(keyOf(mutant))).length;
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
      `${language}: ${caught} of ${verdicts.length} caught (${(100 * share).toFixed(1)} %), ${timeouts} of them by the clock, ${equivalent} known to be equivalent, of ${all.length} possible\n`,
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
