/** `batchweave fork`: a new namespace that shares another's batches. */
import { parseSkip } from "../../index.js";
import { invalid } from "../arguments.js";
import type { Call, Command } from "../command.js";
import { counted } from "../terminal.js";

async function run({ args, terminal, open, stopping }: Call): Promise<undefined> {
  const [, target] = args.positionals;
  const release = args.text("release");
  if (release !== undefined && target !== undefined)
    throw invalid("--release takes no second URI: it removes, it makes no fork.");
  if (release === undefined && target === undefined)
    throw invalid("Where to? batchweave fork URI NEW-URI [--at STEP].");
  const skipText = args.text("skip");
  const skip = skipText === undefined ? undefined : parseSkip(skipText);
  const at = args.integer("at");
  const producers = args.word("producers", ["fresh", "inherit"]);
  const ns = await open();
  const { signal } = stopping;
  if (release !== undefined) {
    await ns.releaseFork(release, { signal });
    terminal.result({ uri: ns.uri, released: release }, `${ns.uri} keeps nothing for ${release} any more.`);
    return undefined;
  }
  const fork = await ns.fork(target as string, { at, skip, producers }, { signal });
  const { steps } = await fork.info({ signal });
  terminal.result(
    { uri: fork.uri, uuid: fork.uuid, of: ns.uri, steps },
    `${fork.uri} shares ${counted(steps.end - steps.trim, "batch")} of ${ns.uri}, and goes on by itself at step ${steps.end}. ${ns.uri} keeps them until the fork is deleted.`,
  );
  return undefined;
}

export const command: Command = {
  usage: "URI NEW-URI [--at STEP] [--skip RANGES]",
  about:
    "Makes a new namespace that shares the batches of another below a step, without copying them, leaving out those that are skipped. It has\nproducers and steps of its own from there on; deleting it frees the parent.",
  positionals: ["URI", "[NEW-URI]"],
  options: {
    at: { value: "STEP", help: "The first step that is not shared (default: the end)." },
    skip: { value: "RANGES", help: "Steps to leave out, such as 110-120,300." },
    producers: { value: "HOW", help: "fresh (default): they start anew. inherit: from their state at the fork step." },
    release: {
      value: "UUID",
      help: "Remove what a fork that does not exist any more still holds here (info lists it).",
    },
  },
  examples: ["batchweave fork file:///data/run file:///data/run-b --at 4000 --skip 3110-3120,3300"],
  run,
};
