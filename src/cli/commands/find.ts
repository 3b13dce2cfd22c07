/** `batchweave find`: which steps held a sample. */
import { invalid } from "../arguments.js";
import type { Call, Command } from "../command.js";
import { stepsText, table } from "../terminal.js";

async function run({ args, terminal, open, stopping }: Call): Promise<number | undefined> {
  const id = args.required("sample");
  if (id === "") throw invalid("--sample needs the id of a sample; this one is empty.");
  const settings = { from: args.integer("from"), to: args.integer("to"), source: args.text("source") };
  const ns = await open();
  const found = await ns.find(id, settings, { signal: stopping.signal });
  const rows = found.matches.map(({ step, index, sample }) => [
    step,
    index,
    sample.source,
    sample.id,
    sample.tokens,
    sample.row ?? "-",
  ]);
  terminal.result({ uri: ns.uri, sample: id, ...found }, () =>
    rows.length === 0
      ? found.from < found.to
        ? `No step of ${stepsText({ trim: found.from, end: found.to })} held ${id}.`
        : `There is no step in that range, so none held ${id}.`
      : table(["step", "place", "source", "sample", "tokens", "row"], rows),
  );
  if (found.stepsWithoutLineage > 0)
    terminal.note(`${found.stepsWithoutLineage} steps have no lineage; it may have been in one of them.`);
  if (found.truncated) terminal.note("There are more; name a range with --from and --to.");
  return undefined;
}

export const command: Command = {
  usage: "URI --sample ID [--source NAME] [--from STEP] [--to STEP]",
  about:
    "Finds the steps whose batches held a sample, or pieces of one that was split, in the lineage that producers recorded. It reads the lineage of every step in the range.",
  positionals: ["URI"],
  options: {
    sample: { value: "ID", help: "The source's own name for the sample." },
    source: { value: "NAME", help: "Only samples of this source." },
    from: { value: "STEP", help: "First step (default: the oldest)." },
    to: { value: "STEP", help: "First step not searched (default: the end)." },
  },
  examples: ["batchweave find file:///data/run --sample doc-1234 --from 1000 --to 2000"],
  run,
};
