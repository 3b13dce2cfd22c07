/** `batchweave delete`: removes a namespace, after being sure that the user means it. */
import { createInterface } from "node:readline/promises";
import { BatchWeaveError, deleteNamespace } from "../../index.js";
import type { Call, Command } from "../command.js";
import { durabilityOf } from "../run.js";
import { counted } from "../terminal.js";

async function confirm({ args, stopping }: Call): Promise<void> {
  if (args.flag("yes")) return;
  const refuse = (why: string): never => {
    throw new BatchWeaveError(
      "NOT_EMPTY",
      `${args.uri} was not deleted: ${why}. Pass --yes to delete every object of it.`,
      { uri: args.uri },
    );
  };
  if (!process.stdin.isTTY || args.flag("json")) refuse("there is no terminal to confirm it at");
  const prompt = createInterface({ input: process.stdin, output: process.stderr });
  try {
    const question = `This deletes every batch of the namespace; processes that still read or write it stop. Type its URI to go on:\n${args.uri}\n> `;
    const answer = await prompt.question(question, { signal: stopping.signal });
    if (answer.trim() !== args.uri) refuse("what was typed is not its URI");
  } finally {
    prompt.close();
  }
}

async function run(call: Call): Promise<undefined> {
  const { args, terminal, metrics, stopping } = call;
  await confirm(call);
  const { deleted } = await deleteNamespace(args.uri, {
    force: args.flag("force"),
    metrics,
    signal: stopping.signal,
    storeSettings: { durability: durabilityOf(args) },
  });
  terminal.result({ uri: args.uri, deleted }, `${args.uri} is gone: ${counted(deleted, "object")} deleted.`);
  return undefined;
}

export const command: Command = {
  usage: "URI [--yes] [--force]",
  about:
    "Deletes a namespace: every process that still has it open stops with DELETED, then its objects go, namespace.json last. Goes on where an\ninterrupted deletion stopped. Asks for the URI on a terminal; elsewhere it needs --yes. A small marker below life/ stays for good.",
  positionals: ["URI"],
  options: {
    yes: { help: "Do not ask." },
    force: { help: "Also when forks share its batches (they lose them), or when it is damaged." },
  },
  examples: ["batchweave delete file:///data/run", "batchweave delete file:///data/run --yes"],
  run,
};
