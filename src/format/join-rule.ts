/**
 * What the fields of slices are joined along (FORMAT.md 13): over the chunks of a row, over rows. The maker of the slices writes it into
 * their metadata. A reader never guesses an axis. Pure.
 */
import { BatchWeaveError, shown } from "../errors.js";
import { parseJson } from "./json-text.js";
import type { Tensor, TensorFile } from "./safetensors.js";
import { corrupt } from "./shape.js";

/** How the parts of one field become one tensor. */
export interface FieldJoin {
  /** Over the chunks of a row: along this axis, in the order of the chunks; `"same"`: every chunk holds it whole, and it is taken once. */
  readonly chunks: number | "same";
  /** Over rows: along this axis; `"stack"`: along a new one in front. */
  readonly rows: number | "stack";
  /** Each part is two halves along the chunks' axis: the first halves in the order of the chunks, then the second ones in reverse. */
  readonly fold?: true | undefined;
  /** The field is running ends that begin with 0: a later part goes on from the last end before it. */
  readonly ends?: true | undefined;
  /** Parts may differ along the other axes; the shorter ones end in this number. */
  readonly pad?: number | undefined;
  /** A slice without it holds none of it. */
  readonly optional?: true | undefined;
}

/** Rules by the name of the field. */
export type Joins = Readonly<Record<string, FieldJoin>>;

/** Name of the rules in a slice's metadata. */
export const joinsName = "batchweave.join";

/** The rules as they are written into metadata. Refuses what does not fit the tensors. */
export function encodeJoins(joins: Joins, tensors: ReadonlyMap<string, Tensor>): string {
  for (const [name, join] of Object.entries(joins)) {
    const { shape, dtype } = tensors.get(name) ?? {};
    if (!shape) throw cannot(name, "it is not among the tensors");
    if (!isJoin(join)) throw cannot(name, `its rule is ${JSON.stringify(join)}, which no reader knows`);
    for (const axis of [join.chunks, join.rows])
      if (typeof axis === "number" && axis >= shape.length) throw cannot(name, `it has no axis ${axis}`);
    if (join.pad && !/^([UI]\d+|F32|F64)$/.test(dtype as string))
      throw cannot(name, `${join.pad} cannot fill up ${dtype}`);
    if (join.ends && (shape.length !== 1 || join.rows !== 0)) throw cannot(name, "running ends have the axis 0 alone");
  }
  return JSON.stringify(joins);
}

const flags = ["fold", "ends", "optional"] as const;
const known = new Set<string>(["chunks", "rows", "pad", ...flags]);

function isJoin(value: unknown): value is FieldJoin {
  if (typeof value !== "object" || value === null) return false;
  const { chunks, rows, pad } = value as Record<string, unknown>;
  const isAxis = (axis: unknown): boolean => Number.isSafeInteger(axis) && (axis as number) >= 0;
  return (
    (isAxis(chunks) || chunks === "same") &&
    (isAxis(rows) || rows === "stack") &&
    (pad === undefined || Number.isFinite(pad)) &&
    flags.every((flag) => [undefined, true].includes((value as Record<string, true | undefined>)[flag])) &&
    Object.keys(value).every((key) => known.has(key))
  );
}

/** The rules of a slice's metadata by field. A rule of a kind to come is null: its field is not joined. */
export function decodeJoins(metadata: TensorFile["metadata"], where: string): ReadonlyMap<string, FieldJoin | null> {
  const text = metadata[joinsName];
  if (text === undefined) return new Map(Object.entries(pipelineJoinsOf(metadata)));
  let rules: unknown;
  try {
    rules = parseJson(Buffer.from(text));
  } catch {
    // Said below.
  }
  if (typeof rules !== "object" || rules === null || Array.isArray(rules))
    return corrupt(where, `its ${joinsName} is not rules by name`);
  return new Map(Object.entries(rules).map(([name, rule]) => [name, isJoin(rule) ? rule : null]));
}

const slotFields = ["tokens", "input_ids", "labels", "position_ids", "segment_ids", "loss_mask"];
const imageFields = ["pixel_values", "image_bytes", "image_grid", "image_rank", "image_target"];

/**
 * The rules of a pipeline's fields. Of a sequence that is cut into chunks, slots are joined along the last axis and what describes the whole
 * sequence is taken once; chunks with sequences of their own are joined as rows are, along the microbatches.
 */
export function pipelineJoins(layout: "contiguous" | "zigzag" | "whole", seqLength: number): Joins {
  const isCut = layout !== "whole";
  const slots: FieldJoin = { chunks: isCut ? 2 : 0, rows: 0, ...(layout === "zigzag" ? { fold: true } : {}) };
  const once: FieldJoin = { chunks: isCut ? "same" : 0, rows: 0 };
  const images: FieldJoin = { chunks: 0, rows: 0, optional: true };
  return {
    ...Object.fromEntries(slotFields.map((name) => [name, slots])),
    // Shorter lists end in empty segments, which change nothing.
    cu_seqlens: { ...once, pad: seqLength },
    max_seqlen: once,
    ...Object.fromEntries(imageFields.map((name) => [name, images])),
    image_cu_seqlens: { ...images, ends: true },
    image_byte_ends: { ...images, ends: true },
  };
}

/** Slices of pipelines from before rules were written say what they are in other words. */
function pipelineJoinsOf(metadata: TensorFile["metadata"]): Joins {
  const { microbatches, sequences, seq_length: seqLength, layout } = metadata;
  if (microbatches === undefined || sequences === undefined || !/^\d+$/.test(seqLength ?? "")) return {};
  if (layout !== "contiguous" && layout !== "zigzag" && layout !== "whole") return {};
  return pipelineJoins(layout, Number(seqLength));
}

/** INVALID_ARGUMENT: a field that cannot be joined. */
export function cannot(name: string, why: string): BatchWeaveError {
  return new BatchWeaveError(
    "INVALID_ARGUMENT",
    `The parts of ${shown(name)} cannot be joined: ${why}. Take its slices one by one, leave it out of \`fields\`, or write its rule with the slices.`,
    { field: name },
  );
}
