/** `--tokenizer`: which tokens of the log are which text. */
import { openTokenizer, type Tokenizer, type TokenizerChoice } from "../plan/index.js";
import { invalid } from "./arguments.js";

const encodings = ["gpt2", "r50k_base", "p50k_base", "p50k_edit", "cl100k_base", "o200k_base"] as const;

/** The option, for a command's table. */
export const tokenizerOption = {
  value: "NAME",
  help: "Shows tokens as text: bytes, a tiktoken encoding such as o200k_base, or a tokenizer.json.",
};

/** The tokenizer that the option names. */
export function openNamedTokenizer(name: string): Promise<Tokenizer> {
  return openTokenizer(choiceOf(name));
}

function choiceOf(name: string): TokenizerChoice {
  if (name === "bytes") return { kind: "bytes" };
  const encoding = encodings.find((one) => one === name);
  if (encoding) return { kind: "tiktoken", encoding };
  if (/\.json$/.test(name)) return { kind: "huggingface", file: name };
  throw invalid(
    `--tokenizer must be bytes, ${encodings.join(", ")} or the path of a tokenizer.json, not ${JSON.stringify(name)}.`,
    { tokenizer: name },
  );
}
