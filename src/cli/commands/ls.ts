/** `batchweave ls`: namespaces below a URI, or the batches of one. */
import {
  type BatchListing,
  isBatchWeaveError,
  listNamespaces,
  type Namespace,
  type NamespaceListing,
  type NamespaceOptions,
  openNamespace,
} from "../../index.js";
import type { Call, Command } from "../command.js";
import { durabilityOf } from "../run.js";
import { counted, formatBytes, stepsText, table } from "../terminal.js";
import { orderText } from "./create.js";

const batchesDefault = 20;

async function run(call: Call): Promise<undefined> {
  let ns: Namespace | undefined;
  try {
    ns = await call.open();
  } catch (error) {
    if (!isBatchWeaveError(error, "NO_NAMESPACE")) throw error;
  }
  await (ns ? listSteps(call, ns) : listBelow(call));
  return undefined;
}

async function listBelow({ args, terminal, stopping }: Call): Promise<void> {
  const found: (NamespaceListing & Size)[] = [];
  const storeSettings = { durability: durabilityOf(args) };
  const { signal } = stopping;
  for await (const listing of listNamespaces(args.uri, { signal, storeSettings })) {
    const one = {
      ...listing,
      ...(listing.problem === undefined ? await sizeOf(listing.uri, { signal, storeSettings }) : {}),
    };
    if (terminal.isJson) terminal.result(one, "");
    else found.push(one);
  }
  if (terminal.isJson) return;
  if (found.length === 0) {
    terminal.note(`There is no namespace at or below ${args.uri}.`);
    return;
  }
  const rows = found.map(({ uri, grid, order, problem, steps, aboutBytes, closed }) => [
    uri,
    grid ? `${grid.rows} x ${grid.chunks}` : "?",
    order ? orderText(order) : "?",
    steps ? stepsText(steps) : "?",
    aboutBytes === undefined ? "?" : formatBytes(aboutBytes),
    problem ?? (closed ? "closed" : ""),
  ]);
  terminal.result(undefined, table(["namespace", "grid", "order", "steps", "about", ""], rows));
}

/** What a log holds; nothing when it cannot be opened. */
interface Size {
  readonly steps?: { readonly trim: number; readonly end: number };
  readonly aboutBytes?: number;
  readonly closed?: boolean;
  readonly problem?: string | undefined;
}

async function sizeOf(uri: string, options: NamespaceOptions): Promise<Size> {
  try {
    const ns = await openNamespace(uri, options);
    const { steps, closed } = await ns.info({ signal: options.signal });
    return { steps, closed, aboutBytes: await ns.aboutBytes({ signal: options.signal }) };
  } catch (error) {
    if (!isBatchWeaveError(error)) throw error;
    return { problem: error.message };
  }
}

async function listSteps({ args, terminal, stopping }: Call, ns: Namespace): Promise<void> {
  const { steps } = await ns.info({ signal: stopping.signal });
  const limit = args.integer("limit", { min: 1 }) ?? batchesDefault;
  const from = args.integer("from") ?? Math.max(steps.trim, steps.end - limit);
  const batches: BatchListing[] = [];
  for await (const batch of ns.batches({ from, to: from + limit }, { signal: stopping.signal })) {
    if (terminal.isJson) terminal.result(batch, "");
    else batches.push(batch);
  }
  const header = ["step", "producer", "epoch", "seq", "stored", "objects", ""];
  const rows = batches.map((b) => [
    b.step,
    b.producer,
    b.epoch,
    b.seq,
    formatBytes(b.storedBytes),
    b.objects,
    b.origin === undefined ? "" : `of ${b.origin}`,
  ]);
  if (!terminal.isJson && rows.length > 0) terminal.result(undefined, table(header, rows));
  const bytes = await ns.aboutBytes({ signal: stopping.signal });
  terminal.note(
    `${ns.uri} holds ${steps.trim < steps.end ? `steps ${stepsText(steps)} (${counted(steps.end - steps.trim, "batch")}, about ${formatBytes(bytes)})` : `no steps (${stepsText(steps)}; the next is ${steps.end})`}.`,
  );
}

export const command: Command = {
  usage: "URI [--from STEP] [--limit N]",
  about:
    "Lists the namespaces at or below a URI. If the URI itself is a namespace, lists its batches, the newest by default.",
  positionals: ["URI"],
  options: {
    from: { value: "STEP", help: "Batches from this step on (default: the newest)." },
    limit: { value: "N", help: `Batches at most (default ${batchesDefault}).` },
  },
  examples: ["batchweave ls file:///data", "batchweave ls file:///data/run --from 0 --limit 100"],
  run,
};
