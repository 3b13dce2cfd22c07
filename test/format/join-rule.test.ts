/** Property: rules are written only if they fit the tensors they are about, and are read back as they were. Method: one rule on each side of every limit. */
import { expect, test } from "vitest";
import { decodeJoins, encodeJoins, type FieldJoin, joinsName } from "../../src/format/join-rule.js";
import type { Tensor } from "../../src/format/safetensors.js";

const tensor = (dtype: string, shape: readonly number[]): Tensor =>
  ({ dtype, shape, data: new Uint8Array() }) as Tensor;
const tensors = new Map([
  ["ids", tensor("I64", [2, 3])],
  ["flat", tensor("U8", [4])],
  ["half", tensor("BF16", [4])],
]);

test("a rule that fits is read back", () => {
  const joins: Record<string, FieldJoin> = {
    ids: { chunks: 1, rows: 0, fold: true, pad: -1 },
    flat: { chunks: "same", rows: 0, ends: true, optional: true },
    half: { chunks: 0, rows: "stack" },
  };
  const text = encodeJoins(joins, tensors);
  expect(Object.fromEntries(decodeJoins({ [joinsName]: text }, "here"))).toEqual(joins);
});

test("a rule that does not fit is refused and says why", () => {
  for (const [name, join, why] of [
    ["none", { chunks: 0, rows: 0 }, "not among the tensors"],
    ["ids", { chunks: 2, rows: 0 }, "no axis 2"],
    ["ids", { chunks: 0, rows: 2 }, "no axis 2"],
    ["ids", { chunks: -1, rows: 0 }, "no reader knows"],
    ["ids", { chunks: 0, rows: "other" }, "no reader knows"],
    ["ids", { chunks: 0, rows: 0, more: true }, "no reader knows"],
    ["half", { chunks: 0, rows: 0, pad: 1 }, "cannot fill up BF16"],
    ["ids", { chunks: 0, rows: 0, ends: true }, "axis 0 alone"],
    ["flat", { chunks: 0, rows: "stack", ends: true }, "axis 0 alone"],
  ] as const)
    expect(() => encodeJoins({ [name]: join as FieldJoin }, tensors), `${name} ${JSON.stringify(join)}`).toThrow(why);
});
