/**
 * Checks what a pipeline's file says. Such a file is not type-checked when it is run (tsx only strips types), so a slip would otherwise be an
 * option that silently does nothing. Every refusal names the place and what would be right. Pure.
 */
import { BatchWeaveError } from "../../index.js";

/** What a value must be, or undefined when it is that. */
type Check = (value: unknown) => string | undefined;
type Shape = Readonly<Record<string, Check>>;

const whole =
  (min: number): Check =>
  (value) =>
    Number.isSafeInteger(value) && (value as number) >= min ? undefined : `a whole number of at least ${min}`;
const word =
  (...words: readonly string[]): Check =>
  (value) =>
    words.includes(value as string) ? undefined : words.map((one) => JSON.stringify(one)).join(" or ");
const kind =
  (type: "boolean" | "number" | "string" | "function" | "object", what: string): Check =>
  (value) =>
    typeof value === type && value !== null ? undefined : what;
const either =
  (...checks: readonly Check[]): Check =>
  (value) =>
    checks.some((check) => check(value) === undefined) ? undefined : checks.map((check) => check(value)).join(" or ");
const positive: Check = (value) => (typeof value === "number" && value > 0 ? undefined : "a number above 0");
const atLeastZero: Check = (value) => (typeof value === "number" && value >= 0 ? undefined : "a number of at least 0");
const share: Check = (value) =>
  typeof value === "number" && value >= 0 && value <= 1 ? undefined : "a number from 0 to 1";
const flag = kind("boolean", "true or false");
const list: Check = (value) => (Array.isArray(value) ? undefined : "a list");
const table = kind("object", "an object");

/** The parts of a pipeline that have options. */
type SpecPart =
  | "pipeline"
  | "namespace"
  | "grid"
  | "construct"
  | "batch"
  | "workers"
  | "buffers"
  | "source"
  | "exchange"
  | "transform";

const shapes: Readonly<Record<SpecPart, Shape>> = {
  pipeline: {
    namespace: table,
    sources: table,
    strategy: kind("function", 'a function of the graph, such as (graph) => graph.balance("greedy")'),
    construct: table,
    batch: table,
    steps: whole(1),
    rehearsal: flag,
    mesh: table,
    seed: either(kind("number", "a number"), kind("string", "text")),
    metrics: kind("function", "a function"),
    workers: table,
    buffers: table,
    storeSettings: table,
    exchange: either(word("direct", "log"), table),
  },
  namespace: {
    uri: kind("string", "a URI"),
    grid: table,
    order: word("commit", "lanes"),
    lanes: whole(1),
    parts: whole(1),
  },
  grid: { rows: whole(1), chunks: whole(1) },
  construct: {
    seqLength: whole(1),
    microbatches: whole(1),
    sequences: whole(1),
    names: word("megatron", "torchtitan"),
    layout: word("contiguous", "zigzag"),
    memoryMax: positive,
    packing: word("none", "naive", "first-fit", "best-fit"),
    tooLong: word("split", "truncate", "skip", "stop"),
    droppedShareMax: share,
    padToken: whole(0),
    ignoreLabel: whole(-(2 ** 31)),
    vocabSize: whole(1),
  },
  batch: { samples: whole(1), fill: word("tokens"), lookahead: whole(0) },
  workers: { threads: whole(0), timeoutMs: positive, heapMiBMax: positive, growthBytesMax: positive },
  buffers: { samplesMax: whole(1), bytesMax: whole(1), openShardsMax: whole(1), windowBytesMax: whole(1) },
  source: {
    weight: atLeastZero,
    epochs: either(whole(1), (value) => (value === Number.POSITIVE_INFINITY ? undefined : "Infinity")),
    shuffle: flag,
    windowSamplesMax: whole(1),
    windowBytesMax: whole(1),
    transforms: list,
    inFlightMax: whole(1),
    lanes: whole(1),
    onFault: word("skip", "retry", "stop"),
    retriesMax: whole(0),
    retryDelayMs: atLeastZero,
    afterRetries: word("skip", "stop"),
    faultShareMax: share,
  },
  exchange: {
    kind: word("log"),
    uri: kind("string", "a URI"),
    blockBytes: whole(1),
    blockSamples: whole(1),
    aheadBlocks: whole(1),
    keep: word("checkpoints", "forever"),
  },
  transform: {
    module: kind("string", "the address of a module"),
    name: kind("string", "the name of a function"),
    options: () => undefined,
    at: word("loader", "constructor", "consumer"),
  },
};

const needed: Readonly<Partial<Record<SpecPart, readonly string[]>>> = {
  pipeline: ["namespace", "sources", "strategy", "construct"],
  namespace: ["uri", "grid"],
  grid: ["rows", "chunks"],
  construct: ["seqLength"],
  exchange: ["kind"],
};

/** Refuses an object with a key that is unknown, missing, or has a wrong value. `place`: what it is called in messages. */
export function checkShape(which: SpecPart, place: string, value: unknown): void {
  const shape = shapes[which];
  const refuse = (what: string): never => {
    throw new BatchWeaveError("INVALID_ARGUMENT", `${what} Mend the pipeline's file.`, { place });
  };
  const named = (key: string): string => (place === "" ? key : `${place}.${key}`);
  if (typeof value !== "object" || value === null) refuse(`${place || "A pipeline"} must be an object.`);
  const given = value as Readonly<Record<string, unknown>>;
  for (const key of needed[which] ?? [])
    if (given[key] === undefined)
      refuse(`${named(key)} is missing${shape[key]?.(undefined) ? `: ${shape[key]?.(undefined)}` : ""}.`);
  for (const [key, item] of Object.entries(given)) {
    if (item === undefined) continue;
    const check = Object.hasOwn(shape, key) ? shape[key] : undefined;
    if (!check)
      refuse(`There is no option ${named(key)}; ${place || "a pipeline"} has ${Object.keys(shape).join(", ")}.`);
    const wanted = check?.(item);
    if (wanted !== undefined) refuse(`${named(key)} must be ${wanted}, not ${shown(item)}.`);
  }
}

function shown(value: unknown): string {
  return typeof value === "function" ? "a function" : (JSON.stringify(value) ?? String(value));
}

/** A token: a whole number from 0 to 2^31 - 1. */
export function checkToken(what: string, value: unknown): void {
  const wanted = whole(0)(value) ?? ((value as number) < 2 ** 31 ? undefined : "a whole number below 2^31");
  if (wanted === undefined) return;
  throw new BatchWeaveError("INVALID_ARGUMENT", `${what} must be ${wanted}, not ${String(value)}.`, {
    value: shown(value),
  });
}

/** One of several words, for primitives that take one. */
export function checkWord(what: string, value: unknown, words: readonly string[]): void {
  const wanted = word(...words)(value);
  if (wanted === undefined) return;
  throw new BatchWeaveError("INVALID_ARGUMENT", `${what} takes ${wanted}, not ${shown(value)}.`, {
    value: shown(value),
  });
}
