/**
 * Every field of every stored object, changed in every way: missing, of another type, one more, one less, out of range. One case per object; its
 * result names what each change was refused with. So a check that is gone, in either language, is seen.
 */
import type { ConformanceCase } from "./case-runner.js";
import { codecCases } from "./codec-cases.js";

type Json = ReturnType<typeof JSON.parse>;
/** What is put where; a field that becomes `"<gone>"` is left out. */
type Change = readonly [path: readonly (string | number)[], value: Json];

const kinds: readonly string[] = ["manifest", "namespace", "boundary", "segment", "node", "root", "table"];

/** Of longer arrays, whose entries are alike, this many are changed. */
const alikeMax = 2;
const unlikeMax = 8;

export function fieldCases(): ConformanceCase[] {
  return codecCases()
    .filter(({ name, op, what }) => op === "decode" && kinds.includes(what) && /whole|: a fork$/.test(name))
    .map(({ input, ...given }) => {
      const { crc32: _, ...fields } = JSON.parse(Buffer.from(input, "base64").toString());
      return { ...given, op: "fields", fields, changes: changesOf(fields, []) };
    });
}

function changesOf(value: Json, path: Change[0]): Change[] {
  const own = (path.length === 0 ? [] : ["<gone>", ...othersFor(value)]).map((other): Change => [path, other]);
  const children: readonly (string | number)[] = Array.isArray(value)
    ? [...value.keys()].filter((i) => i < alikeMax || value.length <= unlikeMax)
    : value !== null && typeof value === "object"
      ? Object.keys(value)
      : [];
  return [...own, ...children.flatMap((key) => changesOf(value[key], [...path, key]))];
}

function othersFor(value: Json): readonly Json[] {
  if (Array.isArray(value)) return [null, {}, [], value.slice(0, -1), [...value, value.at(-1) ?? 0]];
  if (typeof value === "number") return [null, "1", true, -1, value + 0.5, value + 1, Math.max(0, value - 1), 2 ** 53];
  if (typeof value === "string") return [null, 1, "", "../x", `${value}x`];
  if (typeof value === "boolean") return [null, 1, !value];
  return value === null ? [1, {}, []] : [null, 1, [], {}];
}
