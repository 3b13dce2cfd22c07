/** `batchweave preview`: what a slice holds. */
import { sliceTexts, type TextView } from "../../dashboard/index.js";
import { previewSlice, type SlicePreview } from "../../index.js";
import { invalid } from "../arguments.js";
import type { Call, Command } from "../command.js";
import { formatBytes, table } from "../terminal.js";
import { openNamedTokenizer, tokenizerOption } from "../tokenizer-option.js";

async function run({ args, terminal, open, stopping }: Call): Promise<undefined> {
  const step = args.requiredInteger("step");
  const [row, chunk] = args.pair("slice") ?? [0, 0];
  const name = args.text("tokenizer");
  const tokenizer = name === undefined ? undefined : await openNamedTokenizer(name);
  const ns = await open();
  const { signal } = stopping;
  const { contentType } = await ns.inspect(step, { signal });
  const bytes = await ns.readSlice({ step, row, chunk }, { signal });
  const where = `Slice ${row},${chunk} of step ${step}`;
  const preview = previewSlice(bytes, args.text("as") ?? contentType, where);
  const texts = tokenizer && preview.kind === "tensors" ? sliceTexts(bytes, where, tokenizer) : undefined;
  if (tokenizer && !texts?.length)
    throw invalid(`${where} holds no tensor "tokens" or "input_ids": --tokenizer has nothing to show. Leave it out.`);
  terminal.result({ step, row, chunk, contentType, bytes: bytes.length, ...preview, texts }, () =>
    [
      `step ${step}, slice ${row},${chunk}: ${formatBytes(bytes.length)} of ${contentType}`,
      describe(preview),
      ...(texts ?? []).map(describeText),
    ].join("\n"),
  );
  return undefined;
}

/** A document as text; as numbers where the tokenizer does not know them. */
function describeText({ sequence, tokens, ids, text, truncated }: TextView): string {
  const shown = text === undefined ? `not of this tokenizer: ${ids.join(" ")}` : JSON.stringify(text);
  return `sequence ${sequence}, ${tokens} tokens: ${shown}${truncated ? " …" : ""}`;
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
  usage: "URI --step N [--slice ROW,CHUNK] [--as TYPE] [--tokenizer NAME]",
  about:
    "Reads one slice, checks it and shows its content: tensors with shapes and first values when the batch's content type is\napplication/vnd.safetensors, else text or hex.",
  positionals: ["URI"],
  options: {
    step: { value: "N", help: "Which batch." },
    slice: { value: "ROW,CHUNK", help: "Which slice (default 0,0)." },
    as: { value: "TYPE", help: "Take this content type instead of the batch's own." },
    tokenizer: tokenizerOption,
  },
  examples: [
    "batchweave preview file:///data/run --step 0",
    "batchweave preview file:///data/run --step 7 --slice 3,1",
    "batchweave preview file:///data/run --step 7 --tokenizer gpt2",
  ],
  run,
};
