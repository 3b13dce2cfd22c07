/** `batchweave inspect`: one batch, or one slice of it. */
import { createHash } from "node:crypto";
import type { BatchInfo, LineageSample, Namespace, SliceInfo } from "../../index.js";
import type { Call, Command } from "../command.js";
import { formatBytes, table } from "../terminal.js";

const slicesShownMax = 64;

async function run({ args, terminal, open, stopping }: Call): Promise<undefined> {
  const step = args.requiredInteger("step");
  const slice = args.pair("slice");
  const ns = await open();
  const { signal } = stopping;
  if (slice) {
    const found = await sliceDetails(ns, step, slice, signal);
    terminal.result(found, () => Object.entries(found).map(line).join("\n"));
    return undefined;
  }
  const batch = await ns.inspect(step, { signal });
  if (!args.flag("samples")) {
    terminal.result(batch, () => describe(batch).join("\n"));
    return undefined;
  }
  const samples = await ns.samples(step, { signal });
  terminal.result({ ...batch, samples: samples ?? null }, () => describe(batch, samples ?? []).join("\n"));
  return undefined;
}

async function sliceDetails(
  ns: Namespace,
  step: number,
  [row, chunk]: readonly [number, number],
  signal: AbortSignal,
): Promise<SliceInfo & { step: number; sha256: string }> {
  const bytes = await ns.readSlice({ step, row, chunk }, { signal });
  const { slices } = await ns.inspect(step, { signal });
  const info = slices[row * ns.grid.chunks + chunk] as SliceInfo;
  return { step, ...info, sha256: createHash("sha256").update(bytes).digest("hex") };
}

function line([name, value]: readonly [string, unknown]): string {
  return `  ${name.padEnd(12)} ${typeof value === "string" ? value : JSON.stringify(value)}`;
}

function describe(batch: BatchInfo, samples?: readonly LineageSample[]): string[] {
  const { slices, keys, step, ...facts } = batch;
  const shown = slices.slice(0, slicesShownMax);
  const rows = shown.map((s) => [s.row, s.chunk, s.bytes, s.storedBytes, s.encoding, s.offset]);
  const bytes = slices.reduce((sum, slice) => sum + slice.bytes, 0);
  const lines = [
    `step ${step}: ${slices.length} slices, ${formatBytes(bytes)}`,
    ...Object.entries(facts)
      .filter(([, value]) => value !== undefined)
      .map(line),
    ...keys.map((key) => line(["object", key])),
    "",
    ...table(["row", "chunk", "bytes", "stored", "encoding", "offset"], rows).split("\n"),
  ];
  if (samples) {
    const list = samples.map(({ source, id, tokens, row }) => [source, id, tokens, row ?? "-"]);
    const none = "its producer recorded no samples";
    lines.push("", list.length === 0 ? none : table(["source", "sample", "tokens", "row"], list));
    return lines;
  }
  if (slices.length > shown.length) lines.push(`and ${slices.length - shown.length} more (--json lists all)`);
  return lines;
}

export const command: Command = {
  usage: "URI --step N [--slice ROW,CHUNK] [--samples]",
  about:
    "Shows what the batch at a step is: who made it, its resume point, its objects and slices. With --slice it reads that slice,\nchecks it and prints its sha256.",
  positionals: ["URI"],
  options: {
    step: { value: "N", help: "Which batch." },
    slice: { value: "ROW,CHUNK", help: "Only this slice, read and checked." },
    samples: { help: "The samples that it was made of, if its producer recorded them." },
  },
  examples: [
    "batchweave inspect file:///data/run --step 12",
    "batchweave inspect file:///data/run --step 12 --slice 3,0 --json",
  ],
  run,
};
