/** `batchweave close`: no batch after the end. */
import type { Call, Command } from "../command.js";

async function run({ args, terminal, open, stopping }: Call): Promise<undefined> {
  const ns = await open();
  const { end } = await ns.endLog({ dropWaiting: args.flag("drop-waiting"), signal: stopping.signal });
  terminal.result({ uri: ns.uri, closed: true, end }, `${ns.uri} is closed at step ${end}; every rank ends there.`);
  return undefined;
}

export const command: Command = {
  usage: "URI [--drop-waiting]",
  about:
    "Closes the log at its end. Producers get CLOSED, ranks stop at the same iteration. It cannot be opened again, but forked.\nIn lanes order it is refused while committed batches wait above a missing step, unless they are dropped.",
  positionals: ["URI"],
  options: { "drop-waiting": { help: "Lanes order: leave out committed batches above the first missing step." } },
  examples: ["batchweave close file:///data/run"],
  run,
};
