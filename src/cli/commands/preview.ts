/** `batchweave preview`: what a slice holds. */
import { previewSlice, type SlicePreview } from "../../index.js";
import type { Call, Command } from "../command.js";
import { formatBytes, table } from "../terminal.js";

async function run({ args, terminal, open, stopping }: Call): Promise<undefined> {
  const step = args.requiredInteger("step");
  const [row, chunk] = args.pair("slice") ?? [0, 0];
  const ns = await open();
  const { signal } = stopping;
  const { contentType } = await ns.inspect(step, { signal });
  const bytes = await ns.readSlice({ step, row, chunk }, { signal });
  const preview = previewSlice(bytes, args.text("as") ?? contentType, `Slice ${row},${chunk} of step ${step}`);
  terminal.result(
    { step, row, chunk, contentType, bytes: bytes.length, ...preview },
    () => `step ${step}, slice ${row},${chunk}: ${formatBytes(bytes.length)} of ${contentType}\n${describe(preview)}`,
  );
  return undefined;
}

function describe(preview: SlicePreview): string {
  if (preview.kind === "text") return preview.truncated ? `${preview.text}…` : preview.text.trimEnd();
  if (preview.kind === "bytes") return `${preview.hex.replace(/(..)(?=.)/g, "$1 ")}${preview.truncated ? " …" : ""}`;
  const rows = preview.tensors.map((t) => [
    t.name,
    t.dtype,
    `[${t.shape.join(", ")}]`,
    `${t.min ?? "-"} … ${t.max ?? "-"}`,
    `${t.first.join(" ")} …`,
  ]);
  const metadata = Object.entries(preview.metadata).map(([key, value]) => `${key}: ${value}`);
  return [table(["tensor", "dtype", "shape", "range", "first values"], rows), ...metadata].join("\n");
}

export const command: Command = {
  usage: "URI --step N [--slice ROW,CHUNK] [--as TYPE]",
  about:
    "Reads one slice, checks it and shows its content: tensors with shapes and first values when the batch's content type is\napplication/vnd.safetensors, else text or hex.",
  positionals: ["URI"],
  options: {
    step: { value: "N", help: "Which batch." },
    slice: { value: "ROW,CHUNK", help: "Which slice (default 0,0)." },
    as: { value: "TYPE", help: "Take this content type instead of the batch's own." },
  },
  examples: [
    "batchweave preview file:///data/run --step 0",
    "batchweave preview file:///data/run --step 7 --slice 3,1",
  ],
  run,
};
