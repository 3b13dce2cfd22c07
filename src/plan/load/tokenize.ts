/** Ready-made transforms: from text to tokens. The tokenizer is loaded once per thread. */
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { BatchWeaveError } from "../../index.js";
import { importPeer } from "../peer.js";
import { checkToken, checkWord } from "../run/spec-check.js";
import type { PreparedSample } from "./prepared-sample.js";
import { fieldOf } from "./sample-field.js";
import { type Placement, type Transform, transform } from "./transform.js";

/** Which tokenizer: a Hugging Face `tokenizer.json`, an encoding of tiktoken, or plain UTF-8 bytes (no package needed). */
export type TokenizerChoice =
  | { readonly kind: "huggingface"; readonly file: string | URL }
  | {
      readonly kind: "tiktoken";
      readonly encoding: "gpt2" | "r50k_base" | "p50k_base" | "p50k_edit" | "cl100k_base" | "o200k_base";
    }
  | { readonly kind: "bytes" };

/** Settings of {@link tokenize}. */
interface TokenizeSettings {
  readonly tokenizer: TokenizerChoice;
  /** Field of the sample that holds the text. Default "text". */
  readonly field?: string | undefined;
  /** Token put before the text, and after it. */
  readonly begin?: number | undefined;
  readonly end?: number | undefined;
  readonly at?: Placement | undefined;
}

/** Text to tokens and back. */
export interface Tokenizer {
  encode(text: string): ArrayLike<number>;
  /** Tokens that it does not know are left out, or shown as it shows them. */
  decode(tokens: ArrayLike<number>): string;
}

const opened = new Map<string, Tokenizer>();

/** Loads a tokenizer, for viewers of tokens; pipelines use {@link tokenize}. */
export async function openTokenizer(choice: TokenizerChoice): Promise<Tokenizer> {
  if (choice.kind === "bytes")
    return {
      encode: (text) => Buffer.from(text, "utf8"),
      decode: (tokens) => Buffer.from(Array.from(tokens).filter((token) => token < 256)).toString("utf8"),
    };
  if (choice.kind === "tiktoken") {
    const { Tiktoken } = await importPeer<typeof import("js-tiktoken/lite")>("js-tiktoken/lite", "tiktoken encodings");
    const ranks = await importPeer<{ default: ConstructorParameters<typeof Tiktoken>[0] }>(
      `js-tiktoken/ranks/${choice.encoding}`,
      "tiktoken encodings",
    );
    const encoding = new Tiktoken(ranks.default);
    return { encode: (text) => encoding.encode(text, [], []), decode: (tokens) => encoding.decode(Array.from(tokens)) };
  }
  const { Tokenizer: HuggingFace } = await importPeer<typeof import("@huggingface/tokenizers")>(
    "@huggingface/tokenizers",
    "Hugging Face tokenizers",
  );
  const file = String(choice.file);
  const path = file.startsWith("file:") ? fileURLToPath(file) : file;
  const text = await readFile(path, "utf8").catch((cause: unknown) =>
    Promise.reject(badTokenizer(path, "cannot be read", cause)),
  );
  // Names of special tokens; a tokenizer without them has none.
  const config = await readFile(join(dirname(path), "tokenizer_config.json"), "utf8").then(
    (text) => JSON.parse(text) as object,
    () => ({}),
  );
  try {
    const tokenizer = new HuggingFace(JSON.parse(text) as never, config as never);
    return {
      encode: (given) => tokenizer.encode(given, { add_special_tokens: false } as never).ids,
      decode: (tokens) => tokenizer.decode(Array.from(tokens) as never, { skip_special_tokens: false } as never),
    };
  } catch (cause) {
    throw badTokenizer(path, "is not a tokenizer.json", cause);
  }
}

function badTokenizer(path: string, what: string, cause: unknown): BatchWeaveError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new BatchWeaveError(
    "INVALID_ARGUMENT",
    `The tokenizer's file ${path} ${what} (${reason}). Check tokenizer.file; a relative path begins at the working directory.`,
    { path },
    cause,
  );
}

/** The function behind {@link tokenize}: keeps the sample's other fields and adds `tokens`. Async only until its tokenizer is loaded. */
export function tokenizeText(
  value: Readonly<Record<string, unknown>>,
  settings: TokenizeSettings,
): PreparedSample | Promise<PreparedSample> {
  const key = keyOf(settings.tokenizer);
  const known = opened.get(key);
  if (known) return tokenizeWith(known, value, settings);
  return openTokenizer(settings.tokenizer).then((tokenizer) => {
    opened.set(key, tokenizer);
    return tokenizeWith(tokenizer, value, settings);
  });
}

function keyOf(choice: TokenizerChoice): string {
  if (choice.kind === "bytes") return "bytes";
  return choice.kind === "tiktoken" ? choice.encoding : String(choice.file);
}

function tokenizeWith(
  tokenizer: Tokenizer,
  value: Readonly<Record<string, unknown>>,
  settings: TokenizeSettings,
): PreparedSample {
  const { field = "text", begin, end } = settings;
  const text = fieldOf(value, field);
  if (typeof text !== "string") throw new TypeError(`the field ${field} is not text`);
  const ids = tokenizer.encode(text);
  const [before, after] = [begin === undefined ? [] : [begin], end === undefined ? [] : [end]];
  // A plain list: an Int32Array would wrap an id that is too large into another token, without a sign of it.
  const tokens = [...before, ...Array.from(ids), ...after];
  const { [field]: _, ...rest } = value;
  return { ...rest, tokens: tokens.every((id) => id === (id | 0)) ? Int32Array.from(tokens) : tokens };
}

/** Text to tokens. */
export function tokenize(settings: TokenizeSettings): Transform {
  const { at, ...options } = settings;
  const { tokenizer, begin, end } = options;
  checkWord("tokenizer.kind", tokenizer?.kind, ["huggingface", "tiktoken", "bytes"]);
  for (const [name, token] of Object.entries({ begin, end })) if (token !== undefined) checkToken(name, token);
  const plain = tokenizer.kind === "huggingface" ? { ...tokenizer, file: String(tokenizer.file) } : tokenizer;
  return transform(new URL("./tokenize.js", import.meta.url), "tokenizeText", { ...options, tokenizer: plain }, { at });
}
