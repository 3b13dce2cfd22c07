/** Cases of sample blocks: tables whole, of every kind of column, and damaged; Python must also make the very same bytes. */
import { type BlockSample, encodeSafetensors, encodeSampleBlock, type Tensor } from "../../src/format/index.js";
import type { ConformanceCase } from "./case-runner.js";

const b64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");
const samples: readonly BlockSample[] = [
  { id: "0:12", tokens: 7, bytes: Buffer.from("seven") },
  { id: "é/😀", tokens: 0, bytes: Buffer.alloc(0), images: [4, 16], features: { cost: 1.5 } },
  { id: "", tokens: 0xffff_ffff, bytes: Buffer.from([0, 255]), images: [], features: { frames: 3 } },
];
const u32 = (...values: number[]): Tensor => ({ dtype: "U32", shape: [values.length], data: Uint32Array.from(values) });
const text = (value: string): Tensor => ({ dtype: "U8", shape: [value.length], data: Buffer.from(value, "latin1") });

export function blockCases(): ConformanceCase[] {
  const make = (name: string, table: Uint8Array, payloadBytes: number): ConformanceCase => ({
    name: `samples: ${name}`,
    op: "decode",
    what: "samples",
    payloadBytes,
    input: b64(table),
  });
  const whole = encodeSampleBlock("web", samples);
  const plain = { length: u32(2, 3), crc: u32(1, 2), tokens: u32(5, 6), id_length: u32(1, 1), ids: text("ab") };
  const bent = (name: string, change: Record<string, Tensor>, metadata: Record<string, string> = { source: "s" }) =>
    make(name, encodeSafetensors({ ...plain, ...change }, metadata), 5);
  return [
    make("whole", whole.table, whole.payload.length),
    make("one plain sample", encodeSampleBlock("s", samples.slice(0, 1)).table, 5),
    make("no sample", encodeSampleBlock("s", []).table, 0),
    make(
      "faults",
      encodeSampleBlock("s", samples.slice(0, 1), [
        [0, { id: "é" }],
        [1, { id: "y" }],
      ]).table,
      5,
    ),
    bent("faults that are no list", {}, { source: "s", faults: "{}" }),
    bent("a fault behind the end", {}, { source: "s", faults: '[[3,{"id":"x"}]]' }),
    bent("faults that are no JSON", {}, { source: "s", faults: "[" }),
    make("another payload", whole.table, whole.payload.length + 1),
    bent("an unknown column", { later: u32(1) }),
    bent("no source", {}, { other: "s" }),
    bent("ids of another length", { ids: text("abc") }),
    bent("ids that are not UTF-8", { ids: text("\u00ffb") }),
    bent("a short column", { tokens: u32(5) }),
    bent("a column of another type", { crc: { dtype: "I32", shape: [2], data: Int32Array.of(1, 2) } }),
    bent("lengths that wrap around 2^32", { length: u32(0xffff_ffff, 6) }),
    bent("images without all their patches", { image_count: u32(1, 2), images: u32(4, 4) }),
    bent("a feature of two", { "feature/x": { dtype: "F64", shape: [2], data: Float64Array.of(Number.NaN, -0.5) } }),
    {
      name: "samples: made alike",
      op: "block",
      source: "web",
      samples: samples.map(({ bytes, ...sample }) => ({ ...sample, bytes: b64(bytes) })),
      faults: [[1, { source: "web", id: "é", stage: "sample", reason: 'no "text"', attempts: 1 }]],
    },
  ];
}
