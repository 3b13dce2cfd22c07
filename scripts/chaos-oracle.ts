/** `npm run chaos -- --python --oracle`: Python processes on a served simulated store, every write of theirs judged by the simulation's oracle. */
import { pythonBugs, runPythonBug } from "../sim/served/planted-python.js";
import { roughFaults } from "../sim/served/rough-store.js";
import { runServed } from "../sim/served/served-run.js";

/** What was asked for. */
export interface OracleCommand {
  readonly root: string;
  readonly rounds: number;
  readonly seed: number;
  readonly roughMs: number;
  readonly json: boolean;
}

/** In so many rounds everything that can happen must have happened. */
const completeRounds = 5;
const happenings = [...roughFaults, "killed", "stopped", "fenced", "zombieManifests", "reclaimed", "checkpoints"];

/** A round is a namespace of its own, with the next seed. Resolves to the exit status. */
export async function runOracle({ root, rounds, seed, roughMs, json }: OracleCommand): Promise<number> {
  const totals: Record<string, number> = {};
  const failures: { seed: number; message: string }[] = [];
  for (let round = 0; round < rounds; round++) {
    const result = await runServed({ root, seed: seed + round, roughMs });
    for (const [name, count] of Object.entries(result.counters)) totals[name] = (totals[name] ?? 0) + count;
    if (result.failure === undefined) process.stderr.write(`seed ${result.seed}: clean\n`);
    else {
      failures.push({ seed: result.seed, message: result.failure.message });
      process.stderr.write(`seed ${result.seed} FAILED: ${result.failure.message}\n`);
      process.stderr.write(`  likely again: npm run chaos -- --python --oracle --rounds 1 --seed ${result.seed}\n`);
    }
  }
  const missing = rounds < completeRounds ? [] : happenings.filter((name) => !totals[name]);
  if (json) console.log(JSON.stringify({ rounds, seed, failures, missing, totals }));
  else {
    console.log(
      Object.entries(totals)
        .map(([name, count]) => `${name} ${count}`)
        .join(", "),
    );
    for (const name of missing) console.log(`FAILED: "${name}" never happened, so nothing shows that it is survived`);
    console.log(`${rounds - failures.length} passed, ${failures.length + (missing.length > 0 ? 1 : 0)} failed`);
  }
  return failures.length === 0 && missing.length === 0 ? 0 : 1;
}

/** Every planted bug must be caught within so many seeds. Resolves to the exit status. */
export async function runOraclePlanted({ root, rounds, seed, roughMs }: OracleCommand): Promise<number> {
  let caught = 0;
  for (const bug of pythonBugs) {
    const result = await runPythonBug(bug, { root, seed, seedsMax: rounds, roughMs });
    if (result) caught++;
    console.log(
      result ? `CAUGHT   ${bug.name} by seed ${result.seed}: ${result.failure?.message}` : `MISSED   ${bug.name}`,
    );
  }
  console.log(`${caught} passed, ${pythonBugs.length - caught} failed`);
  return caught === pythonBugs.length ? 0 : 1;
}
