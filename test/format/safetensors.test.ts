/**
 * Properties of the tensor codec: tensors come back as views of the very same bytes, aligned; the layout is the published one; whatever bytes come
 * in, the answer is tensors that lie within them or CORRUPT. Method: random tensors, damaged headers, a file written by hand.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { BatchWeaveError, isBatchWeaveError } from "../../src/errors.js";
import {
  type Dtype,
  decodeSafetensors,
  dtypeBytes,
  encodeSafetensors,
  type Tensor,
  tensorValues,
} from "../../src/format/index.js";

const where = "slice 0,0 of step 3";
const dtypes: Dtype[] = "BOOL U8 I8 F8_E4M3 F8_E5M2 F8_E8M0 U16 I16 F16 BF16 U32 I32 F32 U64 I64 F64 C64".split(
  " ",
) as Dtype[];

const tensor: fc.Arbitrary<Tensor> = fc
  .tuple(fc.constantFrom(...dtypes), fc.array(fc.nat({ max: 4 }), { maxLength: 3 }))
  .chain(([dtype, shape]) => {
    const length = shape.reduce((a, b) => a * b, 1) * dtypeBytes(dtype);
    return fc.uint8Array({ minLength: length, maxLength: length }).map((data) => ({ dtype, shape, data }));
  });
const name = fc.oneof(fc.string(), fc.constantFrom("__proto__", "0", "input_ids")).filter((s) => s !== "__metadata__");
const tensors = fc.array(fc.tuple(name, tensor), { maxLength: 5 }).map((entries) => new Map(entries));

function file(header: string, dataBytes = 0): Uint8Array {
  const bytes = Buffer.alloc(8 + Buffer.byteLength(header) + dataBytes);
  bytes.writeBigUInt64LE(BigInt(Buffer.byteLength(header)));
  bytes.write(header, 8);
  return bytes;
}

const plain = (map: ReadonlyMap<string, Tensor>): unknown =>
  [...map]
    .map(([key, t]) => [
      key,
      t.dtype,
      t.shape,
      Buffer.from(t.data.buffer, t.data.byteOffset, t.data.byteLength).toString("hex"),
    ])
    .sort();

describe("safetensors", () => {
  test("come back without a copy, aligned for their dtype", () => {
    fc.assert(
      fc.property(tensors, fc.dictionary(fc.string(), fc.string()), (map, metadata) => {
        const bytes = encodeSafetensors(map, metadata);
        const read = decodeSafetensors(bytes, where);
        expect(plain(read.tensors)).toEqual(plain(map));
        expect(Object.entries(read.metadata)).toEqual(Object.entries(metadata));
        for (const t of read.tensors.values()) {
          expect(t.data.buffer).toBe(bytes.buffer);
          expect((t.data.byteOffset - bytes.byteOffset) % dtypeBytes(t.dtype)).toBe(0);
        }
      }),
    );
  });

  test("values are views where aligned, copies where not, equal either way", () => {
    const data = new Float32Array([1.5, -2, 3e9]);
    const bytes = encodeSafetensors({ x: { dtype: "F32", shape: [3], data } });
    const aligned = new Uint8Array(new ArrayBuffer(bytes.length));
    aligned.set(bytes);
    const shifted = new Uint8Array(new ArrayBuffer(bytes.length + 1), 1);
    shifted.set(bytes);
    for (const copy of [aligned, shifted]) {
      const values = tensorValues(decodeSafetensors(copy, where).tensors.get("x") as Tensor);
      expect(values).toEqual(data);
      expect(values.buffer === copy.buffer).toBe(copy === aligned);
    }
    const ids = tensorValues({ dtype: "I64", shape: [1], data: new BigInt64Array([-5n]) });
    expect(ids).toEqual(new BigInt64Array([-5n]));
  });

  test("the layout is the published one", () => {
    const bytes = Buffer.from(
      encodeSafetensors({ a: { dtype: "U8", shape: [2], data: new Uint8Array([7, 8]) } }, { k: "v" }),
    );
    const header = '{"__metadata__":{"k":"v"},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}';
    const padded = header.padEnd(Math.ceil(header.length / 8) * 8);
    expect(bytes.readBigUInt64LE(0)).toBe(BigInt(padded.length));
    expect(bytes.toString("latin1", 8, 8 + padded.length)).toBe(padded);
    expect([...bytes.subarray(8 + padded.length)]).toEqual([7, 8]);
  });

  test("any bytes give tensors that lie within them, or CORRUPT", () => {
    fc.assert(
      fc.property(tensors, fc.nat(), fc.nat({ max: 255 }), fc.boolean(), (map, where_, value, cut) => {
        const bytes = Uint8Array.from(encodeSafetensors(map));
        const at = where_ % bytes.length;
        bytes[at] = value;
        const damaged = cut ? bytes.subarray(0, at) : bytes;
        try {
          let total = 0;
          for (const t of decodeSafetensors(damaged, where).tensors.values()) {
            expect(t.data.byteLength).toBe(t.shape.reduce((a, b) => a * b, 1) * dtypeBytes(t.dtype));
            total += t.data.byteLength;
          }
          expect(total).toBeLessThanOrEqual(damaged.length);
        } catch (error) {
          if (!(error instanceof BatchWeaveError)) throw error;
          expect(error.code).toBe("CORRUPT");
          expect(error.message).toContain(where);
        }
      }),
      { numRuns: 1000 },
    );
  });

  const entry = (begin: number, end: number): string =>
    `{"dtype":"U8","shape":[${end - begin}],"data_offsets":[${begin},${end}]}`;
  test.each([
    ["nothing", new Uint8Array(0)],
    ["a header longer than the bytes", Buffer.from("ffffffffffffffff7b7d", "hex")],
    ["no JSON", file("{]")],
    ["a list", file("[]")],
    ["an overlap", file(`{"a":${entry(0, 4)},"b":${entry(2, 6)}}`, 6)],
    ["a hole", file(`{"a":${entry(0, 2)},"b":${entry(3, 4)}}`, 4)],
    ["bytes that belong to nothing", file(`{"a":${entry(0, 2)}}`, 3)],
    ["a tensor beyond the end", file(`{"a":${entry(0, 9)}}`, 8)],
    ["a shape that is not its bytes", file('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', 4)],
    [
      "a shape that overflows",
      file('{"a":{"dtype":"U8","shape":[9007199254740991,9007199254740991],"data_offsets":[0,1]}}', 1),
    ],
    ["a negative shape", file('{"a":{"dtype":"U8","shape":[-1,-1],"data_offsets":[0,1]}}', 1)],
    ["an unknown dtype", file('{"a":{"dtype":"toString","shape":[1],"data_offsets":[0,1]}}', 1)],
    ["metadata that is not strings", file('{"__metadata__":{"a":1}}')],
    ["a tensor that is null", file('{"a":null}')],
  ])("%s is refused", (_, bytes) => {
    expect(() => decodeSafetensors(bytes, where)).toThrow(/does not hold tensors/);
  });

  test("tensors that do not fit their shape are refused before they are stored", () => {
    const bad = (t: unknown): void => {
      let code: unknown = "accepted";
      try {
        encodeSafetensors({ x: t as Tensor });
      } catch (error) {
        code = isBatchWeaveError(error) ? error.code : error;
      }
      expect(code).toBe("INVALID_ARGUMENT");
    };
    bad({ dtype: "F32", shape: [2], data: new Uint8Array(4) });
    bad({ dtype: "X", shape: [2], data: new Uint8Array(2) });
    bad({ dtype: "U8", shape: [-1], data: new Uint8Array(1) });
  });
});
