/** Cases of joining: what the slices of a share become under every rule, without a rule, and what is refused. */
import { type Dtype, encodeSafetensors, type FieldJoin, pipelineJoins, type Tensor } from "../../src/format/index.js";
import type { ConformanceCase } from "./case-runner.js";

const b64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");

const views = { U8: Uint8Array, I8: Int8Array, I32: Int32Array, F32: Float32Array } as const;

function tensor(dtype: keyof typeof views | "I64" | "BF16", shape: readonly number[], first = 0): Tensor {
  const n = shape.reduce((a, b) => a * b, 1);
  const numbers = Array.from({ length: n }, (_, i) => first + i);
  if (dtype === "I64") return { dtype, shape, data: BigInt64Array.from(numbers, BigInt) };
  if (dtype === "BF16") return { dtype, shape, data: Uint16Array.from(numbers) };
  return { dtype: dtype as Dtype, shape, data: views[dtype].from(numbers) };
}

const numbers = (...list: number[]): Tensor => ({ dtype: "I32", shape: [list.length], data: Int32Array.from(list) });

/** A case of slices, each given by its tensors and its metadata. */
function make(
  name: string,
  rows: number,
  slices: readonly (readonly [Record<string, Tensor>, Record<string, unknown>?])[],
  more: object = {},
): ConformanceCase {
  const encoded = slices.map(([tensors, rules]) => {
    // As any writer might: rules that our own writer would refuse are cases too.
    const metadata: Record<string, string> = rules ? { "batchweave.join": JSON.stringify(rules) } : {};
    return b64(encodeSafetensors(tensors, metadata));
  });
  return { name: `join: ${name}`, op: "join", rows, slices: encoded, ...more };
}

/** The same rule for `x` in as many slices as there are shapes. */
function alike(
  name: string,
  rows: number,
  rule: FieldJoin | Record<string, unknown> | undefined,
  shapes: readonly (readonly number[])[],
  dtype: Parameters<typeof tensor>[0] = "I32",
): ConformanceCase {
  const slices = shapes.map((shape, i) => [{ x: tensor(dtype, shape, 100 * i) }, rule && { x: rule }] as const);
  return make(name, rows, slices as Parameters<typeof make>[2]);
}

function pipelineCases(): ConformanceCase[] {
  const cut = (row: number, chunk: number, bounds: number[]): Record<string, Tensor> => ({
    tokens: tensor("I32", [2, 1, 4], 1000 * row + 100 * chunk),
    loss_mask: tensor("U8", [2, 1, 4], 10 * row + chunk),
    cu_seqlens: { ...numbers(...bounds, ...bounds), shape: [2, 1, bounds.length] },
    max_seqlen: { ...numbers(row, row + 1), shape: [2, 1] },
  });
  const images = (row: number, n: number): Record<string, Tensor> => ({
    pixel_values: tensor("F32", [2 * n, 3], 50 * row),
    image_cu_seqlens: numbers(...Array.from({ length: n + 1 }, (_, i) => 2 * i)),
    image_target: tensor("I32", [n, 4], row),
  });
  const rows = [
    [0, 0, [0, 3, 8]],
    [0, 1, [0, 3, 8]],
    [1, 0, [0, 2, 4, 8]],
    [1, 1, [0, 2, 4, 8]],
  ] as const;
  const cases = (["contiguous", "zigzag", "whole"] as const).flatMap((layout) => {
    const joins = pipelineJoins(layout, 8);
    const slices = rows.map(
      ([r, c, bounds]) => [{ ...cut(r, c, [...bounds]), ...(c === 0 ? images(r, r + 1) : {}) }, joins] as const,
    );
    const old = { microbatches: "2", sequences: "1", seq_length: "8", names: "megatron", layout };
    return [
      make(`a pipeline's slices, ${layout}`, 2, slices),
      make(`a pipeline's slices, ${layout}, rows apart`, 2, slices, { apart: true }),
      make(`a pipeline's slices, ${layout}, one chunk a rank`, 4, slices),
      {
        ...make(`a pipeline's slices, ${layout}, from before rules were written`, 2, slices),
        slices: slices.map(([tensors]) => b64(encodeSafetensors(tensors, old))),
      },
    ];
  });
  const without = make("images that one row has", 2, [
    [images(0, 2), pipelineJoins("whole", 8)],
    [{ image_rank: numbers(3) }, pipelineJoins("whole", 8)],
  ]);
  return [...cases, without, { ...without, name: `${without.name}, rows apart`, apart: true }];
}

function ruleCases(): ConformanceCase[] {
  return [
    alike("along the middle axis, rows along the last", 2, { chunks: 1, rows: 2 }, new Array(4).fill([2, 3, 2])),
    alike("rows stacked, one slice", 1, { chunks: 0, rows: "stack" }, [[3]]),
    alike("rows stacked, chunks of unequal length", 1, { chunks: 0, rows: "stack" }, [[3], [5]]),
    alike("numbers without an axis, stacked", 3, { chunks: "same", rows: "stack" }, [[], [], []]),
    alike("four chunks folded", 1, { chunks: 1, rows: 0, fold: true }, new Array(4).fill([2, 4]), "I64"),
    alike("a fold of an odd length", 1, { chunks: 0, rows: 0, fold: true }, [[3], [3]]),
    alike(
      "padded along two axes",
      2,
      { chunks: 0, rows: 0, pad: -1 },
      [
        [1, 2, 3],
        [2, 1, 4],
      ],
      "I64",
    ),
    alike(
      "padded floats",
      2,
      { chunks: 0, rows: "stack", pad: 0.5 },
      [
        [1, 2],
        [3, 1],
      ],
      "F32",
    ),
    alike(
      "padded halves with 0",
      2,
      { chunks: 0, rows: 0, pad: 0 },
      [
        [1, 2],
        [1, 3],
      ],
      "BF16",
    ),
    alike("unequal and no padding", 2, { chunks: 0, rows: 0 }, [
      [1, 2],
      [1, 3],
    ]),
    alike("nothing in one part", 2, { chunks: 0, rows: 0 }, [
      [0, 2],
      [1, 2],
    ]),
    alike("an axis that is not there", 2, { chunks: 0, rows: 2 }, [
      [1, 2],
      [1, 2],
    ]),
    alike("shapes of unequal depth", 2, { chunks: 0, rows: 0 }, [[1, 2], [2]]),
    alike("a rule of a kind to come", 2, { chunks: 0, rows: 0, mirror: true }, [[1], [1]]),
    alike("an axis that is text", 1, { chunks: "0", rows: 0 }, [[1]]),
    alike("a negative axis", 1, { chunks: 0, rows: -1 }, [[1]]),
    alike("the same that is not", 1, { chunks: "same", rows: 0 }, [[2], [2]]),
    make("ends", 2, [
      [{ x: numbers(0, 2, 5) }, { x: { chunks: 0, rows: 0, ends: true } }],
      [{ x: numbers(0) }, { x: { chunks: 0, rows: 0, ends: true } }],
      [{ x: numbers(0, 1) }, { x: { chunks: 0, rows: 0, ends: true } }],
      [{ x: numbers(0, 1, 1, 9) }, { x: { chunks: 0, rows: 0, ends: true } }],
    ]),
    make("ends that do not begin with 0", 1, [
      [{ x: numbers(0, 2) }, { x: { chunks: 0, rows: 0, ends: true } }],
      [{ x: numbers(1, 2) }, { x: { chunks: 0, rows: 0, ends: true } }],
    ]),
    make(
      "ends too large for their dtype",
      1,
      [0, 1].map(() => [
        { x: { dtype: "I8", shape: [2], data: Int8Array.of(0, 100) } },
        { x: { chunks: 0, rows: 0, ends: true } },
      ]),
    ),
    make("dtypes that differ", 2, [
      [{ x: tensor("I32", [2]) }, { x: { chunks: 0, rows: 0 } }],
      [{ x: tensor("I64", [2]) }, { x: { chunks: 0, rows: 0 } }],
    ]),
    make("rules that differ", 2, [
      [{ x: tensor("I32", [2]) }, { x: { chunks: 0, rows: 0 } }],
      [{ x: tensor("I32", [2]) }, { x: { chunks: 0, rows: "stack" } }],
    ]),
    make("a rule and none", 2, [
      [{ x: tensor("I32", [2]) }, { x: { chunks: 0, rows: "stack" } }],
      [{ x: numbers(1, 2) }],
    ]),
    make("rules that are a list", 1, [[{ x: numbers(1) }, [] as unknown as Record<string, unknown>]]),
    {
      ...make("rules that are not JSON", 1, [[{ x: numbers(1) }]]),
      slices: [b64(encodeSafetensors({ x: numbers(1) }, { "batchweave.join": "{x}" }))],
    },
  ];
}

function bareCases(): ConformanceCase[] {
  const shapes: Record<string, readonly number[]> = { "[T]": [3], "[1, T]": [1, 3], "[1, 1, T]": [1, 1, 3] };
  return [
    ...Object.entries(shapes).map(([name, shape]) => alike(`no rule, ${name}`, 2, undefined, new Array(4).fill(shape))),
    alike("no rule, rows of [2, 3]", 2, undefined, new Array(2).fill([2, 3])),
    alike("no rule, chunks of [2, 3]", 1, undefined, new Array(2).fill([2, 3])),
    alike("no rule, chunks of [2, 1, 16], as a pipeline's were", 2, undefined, new Array(4).fill([2, 1, 16])),
    alike("no rule, chunks without an axis", 1, undefined, [[], []]),
    alike("no rule, rows of unequal length", 2, undefined, [[3], [4]]),
    alike("no rule, one slice", 1, undefined, [[3]]),
    make("no rule, and a field that one slice lacks", 2, [[{ x: numbers(1), y: numbers(2) }], [{ x: numbers(3) }]]),
    make(
      "a field that one slice lacks and nobody asked for",
      2,
      [[{ x: numbers(1), y: numbers(2) }], [{ x: numbers(3) }]],
      {
        fields: ["x", "z"],
      },
    ),
  ];
}

/** All of them. */
export function joinCases(): ConformanceCase[] {
  return [...pipelineCases(), ...ruleCases(), ...bareCases()];
}
