/** `batchweave probe`: does a store keep the rules that exactly-once depends on? */
import { assertSafe, openStore, type ProbeReport, probeStore } from "../../index.js";
import type { Call, Command } from "../command.js";
import { durabilityOf } from "../run.js";
import { table } from "../terminal.js";

async function run({ args, terminal, env, stopping }: Call): Promise<undefined> {
  const rounds = args.integer("rounds", { min: 1, max: 10_000 });
  const writers = args.integer("writers", { min: 2, max: 256 });
  const processes = args.integer("processes", { min: 1, max: 32 }) ?? 4;
  const store = await openStore(args.uri, { durability: durabilityOf(args) }, env);
  const { uri, cases: own } = await probeStore(store, env, { rounds, writers }, { signal: stopping.signal });
  const cases = [...own];
  // A memory store is another one in every process.
  if (processes > 1 && !/^memory:/i.test(args.uri)) {
    const race = { processes, rounds: rounds ?? 10, writersEach: Math.ceil((writers ?? 32) / processes) };
    const { raceProcesses } = await import("../probe-race.js");
    cases.push(await raceProcesses(args.uri, store, env, race, stopping.signal));
  }
  const report: ProbeReport = { uri, safe: cases.every((one) => one.ok), cases };
  const rows = report.cases.map(({ name, ok, detail }) => [ok ? "ok" : "BROKEN", name, detail]);
  terminal.result(
    report,
    () => `${table(["", "rule", "seen"], rows)}\n${report.uri} is ${report.safe ? "safe" : "UNSAFE"}`,
  );
  assertSafe(report);
  return undefined;
}

export const command: Command = {
  usage: "URI [--rounds N] [--writers N] [--processes N]",
  about:
    "Checks a store's rules under a throwaway prefix and removes what it wrote: one winner among many simultaneous conditional\ncreates, in this process and among several, read after write, order of listings, ranges, deletes. Exits 2 (UNSAFE_STORE) when one does not hold.",
  positionals: ["URI"],
  options: {
    rounds: { value: "N", help: "Races to run (default 3, and 10 among processes)." },
    writers: { value: "N", help: "Simultaneous creators in each race (default 32)." },
    processes: { value: "N", help: "Processes that race against each other (default 4; 1: only this one)." },
  },
  examples: ["batchweave probe file:///data", "batchweave probe s3://bucket/runs --rounds 100"],
  run,
};
