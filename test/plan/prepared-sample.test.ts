/**
 * Property: what transforms give is checked before it is planned. Garbage among tokens, masks and images is a fault of its sample, recorded
 * with the batch or fatal by policy; image placeholders are never predicted, and loss masks grow with them. Method: pipelines over values of
 * every wrong kind; slices decoded and compared slot by slot.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, type TestContext, test } from "vitest";
import { decodeSafetensors, systemEnv, tensorValues } from "../../src/index.js";
import { packSequence } from "../../src/plan/construct/packed-sequence.js";
import * as image from "../../src/plan/load/image.js";
import { asPrepared, type PreparedSample } from "../../src/plan/load/prepared-sample.js";
import { tokenize } from "../../src/plan/load/tokenize.js";
import type { PlannedBatch } from "../../src/plan/run/lane-planner.js";
import { OpenPipeline } from "../../src/plan/run/open-pipeline.js";
import { definePipeline, type PipelineSpec } from "../../src/plan/run/pipeline.js";
import { iterable, megatron, type Source, type SourceSettings } from "../../src/plan/source/source.js";
import { dataFolder } from "./data-files.js";

const of = (values: readonly unknown[], settings: SourceSettings = {}): Source =>
  iterable({
    open: function* () {
      for (const value of values) yield { value, bytes: 8 };
    },
    epochs: 1,
    shuffle: false,
    onFault: "skip",
    ...settings,
  });

async function planned(source: Source, construct: Partial<PipelineSpec["construct"]> = {}): Promise<PlannedBatch[]> {
  const pipeline = definePipeline({
    namespace: { uri: "memory:", grid: { rows: 1, chunks: 1 } },
    sources: { s: source },
    strategy: (graph) => graph,
    construct: { seqLength: 64, ...construct },
    workers: { threads: 0 },
  });
  await using open = await OpenPipeline.open(pipeline, systemEnv);
  const planner = open.planner(0, 1);
  const batches: PlannedBatch[] = [];
  for (let batch = await planner.next(); batch; batch = await planner.next()) batches.push(batch);
  return batches;
}

const hole: number[] = [1, 2];
hole[3] = 4;
const good = { tokens: [1, 2, 3] };
const garbage: Record<string, readonly [value: unknown, reason: RegExp]> = {
  "not a number": [{ tokens: [1, Number.NaN] }, /token 1 of 2 is NaN, not a whole number from 0 to 2147483647/],
  "a fraction": [{ tokens: [1.5] }, /token 0 of 1 is 1.5/],
  "too large for 32 bits": [{ tokens: [2 ** 40] }, /is 1099511627776/],
  negative: [{ tokens: Int32Array.of(3, -5) }, /token 1 of 2 is -5/],
  "a big integer": [{ tokens: BigInt64Array.of(5n) }, /is 5n/],
  text: [{ tokens: ["7"] }, /is "7"/],
  "a text": [{ tokens: "seven" }, /tokens are "seven", not a list/],
  "a hole": [{ tokens: hole }, /token 2 of 4 is undefined/],
  "a mask too short": [{ tokens: [1, 2, 3], lossMask: [1, 1] }, /loss mask has 2 places and there are 3 tokens/],
  "a mask of yes and no": [{ tokens: [1, 2], lossMask: [true, false] }, /place 0 of its loss mask is true, not 0 or 1/],
  "an image past the end": [
    { tokens: [9, 9], images: [{ at: 1, tokens: 2, height: 1, width: 2, data: new Uint8Array(1) }] },
    /image 0 holds tokens 1 to 2 of 2/,
  ],
  "an image of other patches": [
    { tokens: [9, 9], images: [{ at: 0, tokens: 2, height: 3, width: 2, data: new Uint8Array(1) }] },
    /image 0 has 3 x 2 patches and 2 placeholders/,
  ],
  "two images in one place": [
    {
      tokens: [9, 9],
      images: [0, 1].map((at) => ({ at, tokens: 2 - at, height: 1, width: 2 - at, data: new Uint8Array(1) })),
    },
    /image 1 begins before the end of the one before it/,
  ],
  "an image as a list": [
    { tokens: [9], images: [{ at: 0, tokens: 1, height: 1, width: 1, data: [1, 2, 3] }] },
    /data of its image 0 are of Array, not a Uint8Array or Float32Array/,
  ],
  "an image of half a patch": [
    { tokens: [9, 9], images: [{ at: 0, tokens: 2, height: 1, width: 2, data: new Uint8Array(5), patchValues: 3 }] },
    /image 0 has 5 values, and 2 patches of 3 are 6/,
  ],
};

describe("garbage is a fault of its sample", () => {
  for (const [name, [value, reason]] of Object.entries(garbage)) {
    test(name, async () => {
      const [batch] = await planned(of([good, value, good]));
      expect(batch?.faults).toMatchObject([{ id: "0:1", stage: "transform", reason: expect.stringMatching(reason) }]);
      expect(batch?.lineage.map(({ id, row }) => [id, row])).toEqual([
        ["0:0", 0],
        ["0:2", 0],
        ["0:1", undefined],
      ]);
      await expect(planned(of([good, value], { onFault: "stop" }))).rejects.toThrow(reason);
    });
  }

  test("a token outside the vocabulary", async () => {
    const [batch] = await planned(of([good, { tokens: [99, 100] }]), { vocabSize: 100 });
    expect(batch?.faults).toMatchObject([{ id: "0:1", reason: expect.stringMatching(/is 100, .* from 0 to 99/) }]);
  });

  test("every kind of whole number passes", async () => {
    const kinds = [Int32Array, Uint16Array, Uint8Array, Uint32Array, Float64Array].map((Kind) => Kind.of(1, 2));
    const [batch] = await planned(of([...kinds.map((tokens) => ({ tokens })), good]));
    expect(batch?.faults).toEqual([]);
    expect(batch?.notes.tokens).toBe(13);
  });

  test("a Megatron token that does not fit 32 bits is no zero", async () => {
    const folder = dataFolder();
    const [idx, bin] = [Buffer.alloc(34 + 12 * 2 + 8 * 3), Buffer.alloc(8 * 3)];
    idx.write("MMIDIDX\0\0", 0, "latin1");
    idx.writeBigUInt64LE(1n, 9);
    idx.writeUInt8(5, 17);
    idx.writeBigUInt64LE(2n, 18);
    idx.writeBigUInt64LE(3n, 26);
    for (const [i, length] of [2, 1].entries()) idx.writeInt32LE(length, 34 + 4 * i);
    for (const [i, at] of [0n, 16n].entries()) idx.writeBigInt64LE(at, 42 + 8 * i);
    for (const [i, token] of [7n, 1n << 40n, 8n].entries()) bin.writeBigInt64LE(token, 8 * i);
    writeFileSync(join(folder, "a.idx"), idx);
    writeFileSync(join(folder, "a.bin"), bin);
    const [batch] = await planned(megatron({ shards: join(folder, "a.idx"), epochs: 1, onFault: "skip" }));
    expect(batch?.faults).toMatchObject([{ id: "0:0", reason: expect.stringMatching(/1099511627776/) }]);
    expect(batch?.notes.tokens).toBe(1);
  });

  test("settings that hold tokens are checked when they are written", () => {
    for (const end of [Number.NaN, -1, 1.5, 2 ** 31, 2 ** 32 + 5, 2 ** 40])
      expect(() => tokenize({ tokenizer: { kind: "bytes" }, end })).toThrow(/end must be a whole number/);
    expect(() => image.placeImage({ token: Number.NaN })).toThrow(/token must be a whole number/);
  });
});

async function needSharp(context: TestContext): Promise<Uint8Array> {
  const module = await import("sharp").catch((error: Error) =>
    context.skip(`sharp cannot be loaded: ${error.message}`),
  );
  const raw = { width: 32, height: 32, channels: 3 } as const;
  const file = await module
    .default(new Uint8Array(3 * 32 * 32), { raw })
    .png()
    .toBuffer();
  return Uint8Array.from(file);
}

describe("image placeholders", () => {
  const picture = { tokens: 2, height: 1, width: 2, data: new Uint8Array(1) };

  test("stand for bytes of any kind, for one image in many samples, and for nothing that cannot travel", async () => {
    const shared = { ...picture, at: 0, data: Buffer.from("abc"), note: () => 0 };
    const [batch] = await planned(of([0, 1, 2].map((i) => ({ tokens: [257, 257, i], images: [shared] }))));
    const { tensors } = decodeSafetensors(batch?.slices[0] as Uint8Array, "slice");
    expect(Buffer.from(tensorValues(tensors.get("image_bytes")!) as Uint8Array).toString()).toBe("abcabcabc");
    const data = [Buffer.from("abc"), Uint8ClampedArray.of(7), Float32Array.of(1)];
    const images = data.map((one, i) => ({ ...shared, at: 2 * i, data: one }));
    const own = asPrepared({ tokens: [1, 1, 1, 1, 1, 1], images }, { source: "s", id: "0" }) as PreparedSample;
    expect(own.images?.map((one) => [one.data.constructor, Object.keys(one).includes("note")])).toEqual([
      [Uint8Array, false],
      [Uint8Array, false],
      [Float32Array, false],
    ]);
  });

  test("patches of two sizes in one batch are refused", async () => {
    const patched = (patchValues: number, data: Uint8Array | Float32Array) => ({
      tokens: [257],
      images: [{ at: 0, tokens: 1, height: 1, width: 1, data, patchValues }],
    });
    for (const other of [patched(2, new Uint8Array(2)), patched(3, new Float32Array(3))])
      await expect(planned(of([patched(3, new Uint8Array(3)), other]))).rejects.toThrow(
        /patches of different sizes, or bytes and floats/,
      );
  });

  test("are never predicted; the text after them is", () => {
    const sample: PreparedSample = { tokens: [5, 257, 257, 6, 7], images: [{ ...picture, at: 1 }] };
    const { labels, lossMask } = packSequence([sample], 6);
    expect([...labels]).toEqual([-100, -100, 6, 7, -100, -100]);
    expect([...lossMask]).toEqual([0, 0, 1, 1, 0, 0]);
  });

  test("lengthen the sample's own loss mask and move the images that were there", async (context) => {
    const file = await needSharp(context);
    const sample = { image: file, other: file, tokens: [1, 2, 3], lossMask: [0, 0, 1] };
    const once = await image.placeImageTokens(sample, { token: 257 });
    const twice = (await image.placeImageTokens(once, { token: 258, field: "other" })) as unknown as PreparedSample;
    expect([...twice.tokens]).toEqual([258, 258, 258, 258, 257, 257, 257, 257, 1, 2, 3]);
    expect([...(twice.lossMask ?? [])]).toEqual([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    expect(twice.images?.map(({ at, tokens }) => [at, tokens])).toEqual([
      [0, 4],
      [4, 4],
    ]);
    const { labels } = packSequence([twice], 11);
    expect([...labels]).toEqual([...new Array(9).fill(-100), 3, -100]);
    const cut = image.patchifyField(await image.decodeField(sample, {}), { token: 257 }) as unknown as PreparedSample;
    expect([...(cut.lossMask ?? [])]).toEqual([0, 0, 0, 0, 0, 0, 1]);
  });

  test("in a slice: labels and loss_mask are empty there", async (context) => {
    const file = await needSharp(context);
    const transforms = [image.placeImage({ token: 257 }), image.patchifyImages()];
    const value = { image: file, tokens: [1, 2, 3], lossMask: [0, 0, 1] };
    const [batch] = await planned(of([value], { transforms }), { seqLength: 8 });
    const { tensors } = decodeSafetensors(batch?.slices[0] as Uint8Array, "slice");
    const column = (name: string): number[] => [...(tensorValues(tensors.get(name)!) as Int32Array)];
    expect(column("tokens")).toEqual([257, 257, 257, 257, 1, 2, 3, 0]);
    expect(column("labels")).toEqual([-100, -100, -100, -100, -100, 3, -100, -100]);
    expect(column("loss_mask")).toEqual([0, 0, 0, 0, 0, 1, 0, 0]);
  });
});
