/** `batchweave probe`: does a store keep the rules that exactly-once depends on? */
import { assertSafe, openStore, probeStore } from "../../index.js";
import type { Call, Command } from "../command.js";
import { durabilityOf } from "../run.js";
import { table } from "../terminal.js";

async function run({ args, terminal, env, stopping }: Call): Promise<undefined> {
  const settings = {
    rounds: args.integer("rounds", { min: 1 }),
    writers: args.integer("writers", { min: 2, max: 256 }),
  };
  const store = await openStore(args.uri, { durability: durabilityOf(args) }, env);
  const report = await probeStore(store, env, settings, { signal: stopping.signal });
  const rows = report.cases.map(({ name, ok, detail }) => [ok ? "ok" : "BROKEN", name, detail]);
  terminal.result(
    report,
    () => `${table(["", "rule", "seen"], rows)}\n${report.uri} is ${report.safe ? "safe" : "UNSAFE"}`,
  );
  assertSafe(report);
  return undefined;
}

export const command: Command = {
  usage: "URI [--rounds N] [--writers N]",
  about:
    "Checks a store's rules under a throwaway prefix and removes what it wrote: one winner among many simultaneous conditional\ncreates, read after write, order of listings, ranges, deletes. Exits 2 (UNSAFE_STORE) when one does not hold.",
  positionals: ["URI"],
  options: {
    rounds: { value: "N", help: "Races to run (default 3)." },
    writers: { value: "N", help: "Simultaneous creators in each race (default 32)." },
  },
  examples: ["batchweave probe file:///data"],
  run,
};
