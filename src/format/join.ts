/** The slices of a share become one tensor a field, by the rules that they carry (join-rule.ts). Pure. */
import { BatchWeaveError, shown } from "../errors.js";
import { halvesOf, joinAlong, stackable } from "./join-bytes.js";
import { cannot, decodeJoins, type FieldJoin } from "./join-rule.js";
import type { Tensor, TensorFile } from "./safetensors.js";

/** What to join. */
export interface JoinOptions {
  /** The fields wanted; others are not looked at. Default: all. */
  readonly fields?: readonly string[] | undefined;
}

/** Rules of a field by slice; null where one is of a kind to come. */
type RuleFinder = (file: TensorFile, name: string) => FieldJoin | null | undefined;

/**
 * Joins the slices of a share, rows ascending and as many for each of its `rows`: chunks within rows, then rows. A field that no slice holds is
 * absent. The data of a field in one part only are a view.
 */
export function joinTensors(
  files: readonly TensorFile[],
  rows: number,
  options: JoinOptions = {},
): Map<string, Tensor> {
  const joined = new Map<string, Tensor>();
  eachField(files, rows, options, (name, rule, list) => {
    const present = list.flatMap((tensor) => tensor ?? []);
    const isStacked = rule.rows === "stack";
    joined.set(name, joinAlong(name, isStacked ? present.map(stackable) : present, isStacked ? 0 : rule.rows, rule));
  });
  return joined;
}

/** Joins chunks only: of every field one tensor a row, undefined where a row holds none. For rows that a trainer keeps apart. */
export function joinRows(
  files: readonly TensorFile[],
  rows: number,
  options: JoinOptions = {},
): Map<string, (Tensor | undefined)[]> {
  const joined = new Map<string, (Tensor | undefined)[]>();
  eachField(files, rows, options, (name, _, list) => joined.set(name, list));
  return joined;
}

function eachField(
  files: readonly TensorFile[],
  rows: number,
  { fields }: JoinOptions,
  take: (name: string, rule: FieldJoin & { readonly rows: number | "stack" }, list: (Tensor | undefined)[]) => void,
): void {
  if (!Number.isSafeInteger(rows) || rows < 1 || files.length === 0 || files.length % rows !== 0)
    throw new BatchWeaveError("INVALID_ARGUMENT", `${files.length} slices are not those of ${shown(rows)} rows.`);
  const chunks = files.length / rows;
  const names = new Set(files.flatMap(({ tensors }) => [...tensors.keys()]));
  const find = ruleFinder();
  for (const name of fields ?? names) {
    if (!names.has(name)) continue;
    const rule = ruleOf(name, files, chunks, find);
    const list = Array.from({ length: rows }, (_, r) =>
      joinChunks(
        name,
        files.slice(r * chunks, (r + 1) * chunks).flatMap(({ tensors }) => tensors.get(name) ?? []),
        rule,
      ),
    );
    take(name, rule, list);
  }
}

function joinChunks(name: string, parts: readonly Tensor[], rule: FieldJoin): Tensor | undefined {
  const { chunks: axis, fold } = rule;
  if (parts.length === 0) return undefined;
  if (axis === "same" || !fold) return joinAlong(name, parts, axis, rule);
  const halves = parts.map((part) => halvesOf(name, part, axis));
  return joinAlong(name, [...halves.map(([a]) => a), ...halves.reverse().map(([, b]) => b)], axis, rule);
}

/** Slices of a share have the same metadata nearly always: they are read once. */
function ruleFinder(): RuleFinder {
  let known: { readonly text: string; readonly rules: ReturnType<typeof decodeJoins> } | undefined;
  return ({ metadata }, name) => {
    const text = JSON.stringify(metadata);
    if (known?.text !== text) known = { text, rules: decodeJoins(metadata, "A slice") };
    return known.rules.get(name);
  };
}

/** The one rule that all parts agree on. */
function ruleOf(name: string, files: readonly TensorFile[], chunks: number, find: RuleFinder): FieldJoin {
  const present = files.filter(({ tensors }) => tensors.has(name));
  const [first, ...others] = present.map((file) => find(file, name)) as [FieldJoin | null | undefined];
  if (others.some((rule) => ruleText(rule) !== ruleText(first)))
    throw cannot(name, "its slices say different things about how");
  if (first === null) throw cannot(name, "its rule is of a kind that this version does not know");
  const rule = first ?? shapeRule(name, present[0]?.tensors.get(name)?.shape ?? [], chunks);
  if (present.length < files.length && !rule.optional)
    throw cannot(name, `${files.length - present.length} of ${files.length} slices do not hold it`);
  return rule;
}

function ruleText(rule: FieldJoin | null | undefined): string {
  if (!rule) return String(rule);
  const { chunks, rows, fold, ends, pad, optional } = rule;
  return JSON.stringify([chunks, rows, fold, ends, pad, optional]);
}

/** The rule of slices that say nothing: rows in front; chunks only where the shape leaves one axis. */
function shapeRule(name: string, shape: readonly number[], chunks: number): FieldJoin {
  const rows = shape.length < 2 ? "stack" : 0;
  const last = shape.length - 1;
  if (chunks === 1) return { chunks: "same", rows };
  if (last >= 0 && shape.slice(0, last).every((n) => n === 1)) return { chunks: last, rows };
  throw cannot(name, `its slices do not say along which axis chunks are joined, nor does the shape [${shape}]`);
}
