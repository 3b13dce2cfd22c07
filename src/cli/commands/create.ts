/** `batchweave create`: a new namespace. */
import { createNamespace, type Namespace } from "../../index.js";
import { invalid } from "../arguments.js";
import type { Call, Command } from "../command.js";
import { durabilityOf } from "../run.js";
import { counted } from "../terminal.js";

/** Order of a namespace as a person writes it. */
export function orderText(order: Namespace["order"]): string {
  return order.kind === "lanes" ? `lanes (${order.lanes})` : "commit";
}

async function run({ args, terminal, metrics, stopping }: Call): Promise<undefined> {
  const grid = { rows: args.requiredInteger("rows", { min: 1 }), chunks: args.integer("chunks", { min: 1 }) ?? 1 };
  const order = args.word("order", ["commit", "lanes"]);
  const lanes = args.integer("lanes");
  if (lanes !== undefined && order !== "lanes") throw invalid("--lanes goes with --order lanes only.", { lanes });
  if (order === "lanes" && lanes === undefined) throw invalid("--order lanes needs --lanes K, the number of lanes.");
  const ns = await createNamespace(
    args.uri,
    { grid, order, lanes },
    { metrics, signal: stopping.signal, storeSettings: { durability: durabilityOf(args) } },
  );
  terminal.result(
    { uri: ns.uri, uuid: ns.uuid, grid: ns.grid, order: ns.order },
    `${ns.uri} is ready: ${counted(grid.rows, "row")} x ${counted(grid.chunks, "chunk")}, order ${orderText(ns.order)}, uuid ${ns.uuid}`,
  );
  return undefined;
}

export const command: Command = {
  usage: "URI --rows R [--chunks C] [--order lanes --lanes K]",
  about:
    "Creates a namespace. Its grid is fixed: R rows (data-parallel grain) by C chunks (context-parallel grain) make the\nslices of every batch. An existing namespace with the same grid and order is adopted; with another it is refused.",
  positionals: ["URI"],
  options: {
    rows: { value: "R", help: "Rows of a batch: data-parallel sizes need not divide it." },
    chunks: { value: "C", help: "Chunks of a row (default 1): context-parallel sizes must divide it." },
    order: { value: "ORDER", help: "commit (default): steps in commit order. lanes: a fixed order of K producers." },
    lanes: { value: "K", help: "With --order lanes: how many lanes; producers are lane-0 to lane-(K-1)." },
  },
  examples: [
    "batchweave create file:///data/run --rows 8 --chunks 2",
    "batchweave create file:///data/run --rows 64 --order lanes --lanes 4",
  ],
  run,
};
