/** Cases of the conformance suite, changed at random: bytes, numbers, names and structure, under checksums that are right again. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { crc32, crcText } from "../../src/format/index.js";
import type { ConformanceCase } from "../conformance/case-runner.js";
import { root } from "../source-tree.js";

/** Decoders that are fuzzed, by the operation of a conformance case. */
export const targets = [
  "manifest",
  "namespace",
  "segment",
  "node",
  "root",
  "table",
  "boundary",
  "batch",
  "lineage",
  "safetensors",
  "intent",
  "cursor",
] as const;
export type Target = (typeof targets)[number];

/** Chance that follows from a seed alone (mulberry32). */
export class Dice {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** Uniform in [0, 1). */
  roll(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }

  below(n: number): number {
    return Math.floor(this.roll() * n);
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)] as T;
  }
}

/** The whole and the damaged cases of the suite, by target. */
export function seeds(): Map<Target, ConformanceCase[]> {
  const found = new Map<Target, ConformanceCase[]>(targets.map((target) => [target, []]));
  for (const family of ["codecs", "hostile"]) {
    const text = readFileSync(join(root, `test/conformance/fixtures/${family}.jsonl`), "utf8");
    for (const line of text.trimEnd().split("\n")) {
      const { expect: _, ...given } = JSON.parse(line) as ConformanceCase;
      found.get((given.op === "decode" ? given["what"] : given.op) as Target)?.push(given as ConformanceCase);
    }
  }
  return found;
}

const values = [
  "0",
  "-1",
  "1.5",
  "1e400",
  "9007199254740991",
  "9007199254740992",
  "1e15",
  "null",
  "true",
  '""',
  '"__proto__"',
  '"\\u001b[2J"',
  "[]",
  "{}",
  "[[]]",
  '{"a":1,"a":2}',
  '"../../x"',
];

/** Replaces, doubles, drops or moves a piece of JSON text; or just a byte. */
function mutateText(text: string, dice: Dice): string {
  const tokens = [...text.matchAll(/"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|[[\]{},:]/g)];
  const token = tokens.length > 0 ? dice.pick(tokens) : undefined;
  if (!token || dice.below(8) === 0) {
    const at = dice.below(text.length + 1);
    return text.slice(0, at) + String.fromCharCode(dice.below(256)) + text.slice(at + dice.below(3));
  }
  const [from, to] = [token.index, token.index + token[0].length];
  const other = dice.pick(tokens)[0];
  const replacement = dice.pick([dice.pick(values), other, "", token[0] + token[0], `${token[0]},${other}`]);
  return text.slice(0, from) + replacement + text.slice(to);
}

function mutateBytes(bytes: Buffer, dice: Dice): Buffer {
  const copy = Buffer.from(bytes);
  for (let i = dice.below(4); i >= 0 && copy.length > 0; i--)
    copy[dice.below(copy.length)] = dice.pick([0, 1, 0x7f, 0x80, 0xff, dice.below(256)]);
  const kind = dice.below(6);
  if (kind === 0) return copy.subarray(0, dice.below(copy.length + 1));
  if (kind === 1) return Buffer.concat([copy, copy.subarray(0, dice.below(64))]);
  return copy;
}

const endingBytes = 21;

/** Stored JSON, changed and sealed again, so that decoding goes on behind the checksum; now and then not sealed. */
function mutateSealed(bytes: Buffer, dice: Dice): Buffer {
  if (bytes.length <= endingBytes || dice.below(12) === 0) return mutateBytes(bytes, dice);
  let text = bytes.subarray(0, bytes.length - endingBytes).toString("utf8");
  for (let i = dice.below(3); i >= 0; i--) text = mutateText(text, dice);
  const body = Buffer.from(text);
  return Buffer.concat([body, Buffer.from(`,"crc32":"${crcText(crc32(body))}"}\n`)]);
}

/** A changed case. What is not a batch or a tensor file is text. */
export function mutate(given: ConformanceCase, target: Target, dice: Dice): ConformanceCase {
  if (target === "intent")
    return { ...given, key: mutateIntent(given["key"] as string, given["namespace"] as string, dice) };
  if (target === "cursor") {
    const text = typeof given["input"] === "string" ? given["input"] : JSON.stringify(given["input"]);
    return { ...given, input: mutateText(text, dice) };
  }
  const bytes = Buffer.from(given["input"] as string, "base64");
  const isSealed = !["batch", "lineage", "safetensors"].includes(target);
  const changed = isSealed ? mutateSealed(bytes, dice) : mutateBytes(bytes, dice);
  return { ...given, input: changed.toString("base64") };
}

function mutateIntent(key: string, namespace: string, dice: Dice): string {
  const match = /^(intent\/[0-9a-f]\/)(.+)-[0-9a-f]{8}$/.exec(key);
  if (!match || dice.below(8) === 0) return mutateText(key, dice);
  let name = match[2] as string;
  for (let i = dice.below(3); i >= 0; i--) {
    const at = dice.below(name.length + 1);
    name =
      name.slice(0, at) +
      dice.pick(["-", "_", ".", "0", "9007199254740993", "open", "v", "~", ""]) +
      name.slice(at + dice.below(3));
  }
  return `${match[1]}${name}-${crcText(crc32(Buffer.from(`${namespace}/${name}`)))}`;
}
