/** `batchweave checkpoint list|release`: what keeps data alive. */
import { invalid } from "../arguments.js";
import type { Call, Command } from "../command.js";
import { table } from "../terminal.js";

async function run(call: Call): Promise<undefined> {
  const [, action, id] = call.args.positionals;
  if (action === "list" && id !== undefined)
    throw invalid(`"list" takes no ID; there is ${JSON.stringify(id)}.`, { id });
  if (action === "list") await list(call);
  else if (action === "release" && id !== undefined) await release(call, id);
  else if (action === "release") throw invalid("Which checkpoint? batchweave checkpoint URI release ID.");
  else
    throw invalid(
      `checkpoint can list or release, not ${JSON.stringify(action)}: batchweave checkpoint URI list, or URI release ID.`,
      { action },
    );
  return undefined;
}

async function list({ args, terminal, open, stopping }: Call): Promise<void> {
  const ns = await open();
  const group = args.text("group");
  const live = (await ns.checkpoints({ signal: stopping.signal })).filter((one) => (group ?? one.group) === one.group);
  if (terminal.isJson) {
    for (const one of live) terminal.result(one, "");
    return;
  }
  if (live.length === 0) {
    terminal.note("There are no live checkpoints: nothing but the trim keeps data from the reclaimer.");
    return;
  }
  const rows = live.map((one) => [one.group, one.id, one.iteration, one.step, one.row]);
  terminal.result(undefined, table(["group", "checkpoint", "iteration", "step", "row"], rows));
}

async function release({ args, terminal, open, stopping }: Call, id: string): Promise<void> {
  const group = args.text("group");
  const ns = await open();
  await ns.releaseCheckpoint(id, { group, signal: stopping.signal });
  terminal.result(
    { uri: ns.uri, group: group ?? "default", released: id },
    `${id} is released; the next reclaim may delete what only it kept.`,
  );
}

export const command: Command = {
  usage: "URI list | URI release ID [--group G]",
  about:
    "Lists the live checkpoints of a namespace, or releases one. A live checkpoint keeps every batch from its cursor on; release it\nwhen the training checkpoint it belongs to is deleted.",
  positionals: ["URI", "ACTION", "[ID]"],
  options: { group: { value: "G", help: "The training run (list: default all; release: default default)." } },
  examples: [
    "batchweave checkpoint file:///data/run list",
    "batchweave checkpoint file:///data/run release iter-500 --group run-1",
  ],
  run,
};
