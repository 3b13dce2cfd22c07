/**
 * `npm run soak -- --hours N`: simulation seeds that were never run, and real processes that are killed, in turns, for as long as it is told; with
 * `--only suite`, the TypeScript tests again and again.
 *
 * What it did is kept in a folder (`--folder`, default .cache/soak): `state.json` says which seeds are done, so a soak that was stopped or killed goes on
 * where it was, and `found/` has the whole output of every run that failed, with the command that repeats it. A failure does not stop the soak; the
 * closing line counts them, and the exit status is 1.
 */
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const dist = dirname(dirname(fileURLToPath(import.meta.url)));
const { values } = parseArgs({
  options: {
    hours: { type: "string", default: "1" },
    folder: { type: "string", default: join(dist, "../.cache/soak") },
    /** Only kinds whose name contains this. */
    only: { type: "string", default: "" },
    /** What `--only suite` runs of the TypeScript tests; all of them unless told. May be given again. */
    tests: { type: "string", multiple: true, default: [] },
    help: { type: "boolean", default: false },
  },
});
if (values.help) {
  console.log("npm run soak -- [--hours 1] [--folder .cache/soak] [--only TEXT] [--tests test/log]");
  process.exit(0);
}

/** Seeds of one turn: some ten seconds, so that a soak ends soon after its time and loses little when it is killed. */
const seedsPerTurn = 20;
const roundsPerTurn = 3;

/** How often each kind has its turn, and what it runs from a seed on. */
interface Kind {
  readonly name: string;
  readonly turns: number;
  readonly seeds: number;
  args(seed: number): readonly string[];
}

const sim = (scenario: string, turns: number): Kind => ({
  name: `sim-${scenario}`,
  turns,
  seeds: seedsPerTurn,
  args: (seed) => ["sim/main.js", "--scenario", scenario, "--seed", String(seed), "--seeds", String(seedsPerTurn)],
});
const chaos = (name: string, turns: number, ...more: string[]): Kind => ({
  name: `chaos-${name}`,
  turns,
  seeds: 1,
  args: (seed) => ["scripts/chaos.js", "--rounds", String(roundsPerTurn), "--seed", String(seed), ...more],
});
/** The tests themselves, files in another order each time: what fails on a busy machine, or after another test, is found by running them again and again. */
const suite: Kind = {
  name: "suite",
  turns: values.only === "suite" ? 1 : 0,
  seeds: 1,
  args: (seed) => [
    "../node_modules/vitest/vitest.mjs",
    "run",
    "--reporter=dot",
    "--sequence.shuffle.files",
    `--sequence.seed=${seed}`,
    ...values.tests,
  ],
};
const kinds: readonly Kind[] = [
  sim("chaos", 6),
  sim("cooperative", 3),
  sim("hazard-34-lives", 2),
  sim("deep", 3),
  sim("power", 2),
  suite,
  chaos("files", 1),
  chaos("python", 1, "--python"),
  chaos("recreate", 1, "--recreate"),
].filter(({ name, turns }) => turns > 0 && name.includes(values.only));

/** The next seed of each kind, and what was run. */
interface State {
  next: Record<string, number>;
  runs: number;
  seeds: number;
  failures: number;
}

mkdirSync(join(values.folder, "found"), { recursive: true });
const stateFile = join(values.folder, "state.json");
const state: State = existsSync(stateFile)
  ? (JSON.parse(readFileSync(stateFile, "utf8")) as State)
  : { next: {}, runs: 0, seeds: 0, failures: 0 };

/** Whole or not at all: a soak that is killed while it writes goes on from the turn before. */
function saveState(): void {
  writeFileSync(`${stateFile}.new`, `${JSON.stringify(state, null, 2)}\n`);
  renameSync(`${stateFile}.new`, stateFile);
}

function run(args: readonly string[]): Promise<{ readonly code: number | null; readonly output: string }> {
  return new Promise((resolve) => {
    const [script, ...rest] = args as [string, ...string[]];
    const child = spawn(process.execPath, [join(dist, script), ...rest], {
      cwd: join(dist, ".."),
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    const keep = (bytes: Buffer): void => {
      output = (output + bytes.toString("utf8")).slice(-1_000_000);
    };
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    child.once("close", (code) => resolve({ code, output }));
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => child.kill(signal));
  });
}

let isStopped = false;
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => (isStopped = true));
const endMs = performance.now() + Number(values.hours) * 3_600_000;
if (kinds.length === 0 || !(Number(values.hours) > 0)) {
  console.error("Nothing to soak: --only matches no kind, or --hours is not a number above 0.");
  process.exit(2);
}
const turns = kinds.flatMap((kind) => Array.from({ length: kind.turns }, () => kind));
for (let turn = state.runs; performance.now() < endMs && !isStopped; turn++) {
  const kind = turns[turn % turns.length] as Kind;
  const seed = state.next[kind.name] ?? 1_000;
  const args = kind.args(seed);
  const { code, output } = await run(args);
  if (isStopped) break;
  state.runs++;
  state.seeds += kind.seeds;
  state.next[kind.name] = seed + kind.seeds;
  if (code !== 0) {
    state.failures++;
    const file = join(values.folder, "found", `${kind.name}-${seed}.txt`);
    writeFileSync(file, `node dist/${args.join(" ")}\nended with ${code}\n\n${output}`);
    console.log(`FOUND: ${kind.name} from seed ${seed} on; see ${file}`);
  }
  saveState();
  console.log(`${state.runs} runs, ${state.seeds} seeds, ${state.failures} failed; last: ${kind.name} from ${seed}`);
}
const found = readdirSync(join(values.folder, "found"));
if (state.runs === 0) console.log("Not one run came to its end in that time: give it more hours.");
console.log(`${state.runs - state.failures} passed, ${state.failures} failed`);
for (const name of found) console.log(`found/${name}`);
process.exitCode = state.failures > 0 || state.runs === 0 ? 1 : 0;
