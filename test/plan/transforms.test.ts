/**
 * Property: transforms run in worker threads give what they give inline; one that throws, hangs, eats memory or ends its thread costs only its
 * own sample, which is skipped, retried or fatal by policy and recorded with the batch. The ready-made ones agree with their packages.
 * Method: a real pool on the built worker, transforms that misbehave, small real inputs; what needs a package or program that is missing is
 * skipped with the reason.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, type TestContext, test } from "vitest";
import { decodeSafetensors, systemEnv, tensorValues } from "../../src/index.js";
import { finishSlice } from "../../src/plan/construct/deferred.js";
import * as image from "../../src/plan/load/image.js";
import type { PreparedImage, PreparedSample } from "../../src/plan/load/prepared-sample.js";
import { placementFigures } from "../../src/plan/load/source-figures.js";
import { tokenizeText } from "../../src/plan/load/tokenize.js";
import { importModule, placed, type Transform, transform } from "../../src/plan/load/transform.js";
import { TransformPool, type TransformPoolSettings } from "../../src/plan/load/transform-pool.js";
import { decodeVideo } from "../../src/plan/load/video.js";
import type { PlannedBatch } from "../../src/plan/run/lane-planner.js";
import { OpenPipeline } from "../../src/plan/run/open-pipeline.js";
import { definePipeline, type Pipeline, type PipelineSpec } from "../../src/plan/run/pipeline.js";
import { iterable, type SourceSettings } from "../../src/plan/source/source.js";
import { dataFolder } from "./data-files.js";

const workerUrl = new URL("../../dist/src/plan/load/transform-worker.js", import.meta.url);
const odd = new URL("./odd-transforms.mjs", import.meta.url);

function needBuild(context: TestContext): void {
  if (!existsSync(fileURLToPath(workerUrl))) context.skip("dist is not built: npm run build");
}

async function needPackage(context: TestContext, name: string): Promise<void> {
  await import(name).catch((error: Error) => context.skip(`${name} cannot be loaded here: ${error.message}`));
}

async function run(
  chain: Transform[],
  values: unknown[],
  settings: TransformPoolSettings = {},
): Promise<(string | unknown)[]> {
  await using pool = new TransformPool(systemEnv, { threads: 2, ...settings }, workerUrl);
  const outputs = await pool.run(
    chain,
    values.map((value, i) => ({ source: "s", id: String(i), value })),
  );
  return outputs.map(({ value, error }) => error ?? value);
}

const numbers = (n: number): { n: number }[] => Array.from({ length: n }, (_, i) => ({ n: i }));

describe("the pool", () => {
  test("gives what inline transforms give, in order", async (context) => {
    needBuild(context);
    const chain = [transform(odd, "letters")];
    const values = ["weave", "batch", ""].map((text) => ({ text }));
    expect(await run(chain, values)).toEqual(await run(chain, values, { threads: 0 }));
  });

  test("a sample that throws fails alone", async (context) => {
    needBuild(context);
    const outputs = await run([transform(odd, "misbehave", { throwAt: [2, 5] })], numbers(8));
    expect(outputs.filter((o) => typeof o === "string")).toEqual(["misbehave: refuses 2", "misbehave: refuses 5"]);
    expect(outputs[7]).toEqual({ tokens: [7, 8] });
  });

  test("a sample that hangs, eats memory or ends its thread fails alone, and the others are run again", async (context) => {
    needBuild(context);
    const limits = { timeoutMs: 4_000, heapMiBMax: 48 };
    const outputs = await run(
      [transform(odd, "misbehave", { hangAt: [1], eatAt: [4], exitAt: [6] })],
      numbers(8),
      limits,
    );
    expect(outputs[1]).toMatch(/hung for more than 4000 ms/);
    expect(outputs[4]).toMatch(/more than 48 MiB of heap/);
    expect(outputs[6]).toMatch(/exit code 3/);
    for (const i of [0, 2, 3, 5, 7]) expect(outputs[i]).toEqual({ tokens: [i, i + 1] });
  });

  test("an array may be given twice; what cannot leave its thread fails alone; what fails later is nobody's fault", async (context) => {
    needBuild(context);
    await using pool = new TransformPool(systemEnv, { threads: 1 }, workerUrl);
    const warnings: string[] = [];
    const hear = (warning: Error): number => warnings.push(warning.message);
    process.on("warning", hear);
    const inputs = numbers(8).map((value, i) => ({ source: "s", id: String(i), value }));
    for (let round = 0; round < 2; round++) {
      const outputs = await pool.run([transform(odd, "same")], inputs);
      for (const { value } of outputs) expect(value).toEqual({ tokens: Int32Array.of(1, 2, 3) });
    }
    for (let round = 0; round < 3; round++) {
      const outputs = await pool.run([transform(odd, "careless")], inputs);
      expect(outputs.flatMap(({ error }, i) => (error === undefined ? [] : [i]))).toEqual([5]);
      expect(outputs[5]?.error).toMatch(/careless: its value cannot leave its thread/);
      await systemEnv.sleep(50);
    }
    process.off("warning", hear);
    expect(warnings.some((text) => text.includes("nobody waits for me"))).toBe(true);
    expect(warnings.some((text) => text.includes("too late"))).toBe(true);
  });

  test("memory outside the heap is watched too", async (context) => {
    needBuild(context);
    const limits = { timeoutMs: 20_000, growthBytesMax: 268_435_456 };
    const outputs = await run([transform(odd, "misbehave", { swellAt: [1] })], numbers(3), limits);
    expect(outputs[1]).toMatch(/made the process grow by more than 268435456 bytes/);
    expect([outputs[0], outputs[2]]).toEqual([{ tokens: [0, 1] }, { tokens: [2, 3] }]);
  });

  test("a module in TypeScript is loaded through tsx", async (context) => {
    await needPackage(context, "tsx/esm/api");
    needBuild(context);
    const file = join(dataFolder(), "typed.ts");
    writeFileSync(
      file,
      "export function double(value: { n: number }): { tokens: number[] } { return { tokens: [2 * value.n] }; }\n",
    );
    expect(await run([transform(`file://${file}`, "double")], numbers(2))).toEqual([{ tokens: [0] }, { tokens: [2] }]);
    expect(await importModule(fileURLToPath(odd))).toHaveProperty("letters");
  });
});

function pipelineOf(settings: SourceSettings, spec: Partial<PipelineSpec> = {}): Pipeline {
  return definePipeline({
    namespace: { uri: "memory:", grid: { rows: 1, chunks: 1 } },
    sources: {
      s: iterable({
        open: function* () {
          for (const value of numbers(20)) yield { value, bytes: 8 };
        },
        epochs: 1,
        shuffle: false,
        ...settings,
      }),
    },
    strategy: (graph) => graph,
    construct: { seqLength: 128 },
    ...spec,
  });
}

async function planAll(pipeline: Pipeline): Promise<{ batches: PlannedBatch[]; open: OpenPipeline }> {
  await using open = await OpenPipeline.open(pipeline, systemEnv, { workerUrl });
  const planner = open.planner(0, 1);
  const batches: PlannedBatch[] = [];
  for (let batch = await planner.next(); batch; batch = await planner.next()) batches.push(batch);
  return { batches, open };
}

describe("policies", () => {
  test("skip: the batch has the others, and says what is missing and why", async (context) => {
    needBuild(context);
    const transforms = [transform(odd, "misbehave", { throwAt: [3], hangAt: [9] })];
    const { batches } = await planAll(pipelineOf({ onFault: "skip", transforms }, { workers: { timeoutMs: 1_000 } }));
    const lineage = batches.flatMap((batch) => batch.lineage);
    expect(lineage.filter(({ row }) => row !== undefined).length).toBe(18);
    expect(lineage.filter(({ row }) => row === undefined).map(({ id }) => id)).toEqual(["0:3", "0:9"]);
    expect(batches.flatMap((batch) => batch.notes.faults ?? []).map(({ reason }) => reason)).toEqual([
      "misbehave: refuses 3",
      "misbehave hung for more than 1000 ms",
    ]);
  });

  test("retry: what works at last is in; what never does is skipped or fatal", async () => {
    const moody = { transforms: [transform(odd, "moody")], onFault: "retry", retryDelayMs: 1 } as const;
    const { batches } = await planAll(pipelineOf(moody, { workers: { threads: 0 } }));
    expect(batches.flatMap(({ lineage }) => lineage).length).toBe(20);
    expect(batches.flatMap(({ faults }) => faults)).toEqual([]);
    const never = {
      transforms: [transform(odd, "misbehave", { throwAt: [3] })],
      onFault: "retry",
      retriesMax: 2,
      retryDelayMs: 1,
    } as const;
    const skipped = await planAll(pipelineOf({ ...never, afterRetries: "skip" }, { workers: { threads: 0 } }));
    expect(skipped.batches[0]?.notes.faults).toMatchObject([{ id: "0:3", attempts: 3 }]);
    await expect(planAll(pipelineOf(never, { workers: { threads: 0 } }))).rejects.toThrow(/3 attempts.*refuses 3/);
  });

  test("stop is the default", async () => {
    const transforms = [transform(odd, "misbehave", { throwAt: [3] })];
    await expect(planAll(pipelineOf({ transforms }, { workers: { threads: 0 } }))).rejects.toThrow(
      /Source s failed at transform 0:3.*onFault/,
    );
    await expect(planAll(pipelineOf({}, { workers: { threads: 0 } }))).rejects.toThrow(
      /no tokens after its transforms/,
    );
  });

  test("a transform placed in the constructor runs after selection; a failure there leaves the batch, recorded", async () => {
    const transforms = [transform(odd, "misbehave"), placed(transform(odd, "choosy"), "constructor")];
    const { batches } = await planAll(pipelineOf({ onFault: "skip", transforms }, { workers: { threads: 0 } }));
    const lineage = batches.flatMap((batch) => batch.lineage);
    expect(lineage.filter(({ row }) => row === undefined).map(({ id }) => id)).toEqual(["0:3", "0:5"]);
    expect(lineage.length).toBe(20);
    expect(batches.flatMap(({ faults }) => faults).map(({ reason }) => reason)).toEqual([
      "choosy: refuses 3",
      "it has 1 tokens after the transforms in the constructor and had 2 before",
    ]);
  });
});

describe("tokenize", () => {
  test("bytes, with begin and end", async () => {
    const out = await tokenizeText({ text: "é!", id: 7 }, { tokenizer: { kind: "bytes" }, begin: 256, end: 257 });
    expect(out).toEqual({ id: 7, tokens: Int32Array.of(256, 0xc3, 0xa9, 33, 257) });
  });

  test("tiktoken: known ids", async (context) => {
    await needPackage(context, "js-tiktoken/lite");
    const out = await tokenizeText(
      { text: "hello world" },
      { tokenizer: { kind: "tiktoken", encoding: "cl100k_base" } },
    );
    expect([...out.tokens]).toEqual([15339, 1917]);
  });

  test("Hugging Face: a tokenizer.json", async (context) => {
    await needPackage(context, "@huggingface/tokenizers");
    const file = join(dataFolder(), "tokenizer.json");
    const vocab = { "[UNK]": 0, weave: 1, the: 2, batch: 3 };
    writeFileSync(
      file,
      JSON.stringify({
        version: "1.0",
        truncation: null,
        padding: null,
        added_tokens: [],
        normalizer: { type: "Lowercase" },
        pre_tokenizer: { type: "Whitespace" },
        post_processor: null,
        decoder: null,
        model: {
          type: "WordPiece",
          vocab,
          unk_token: "[UNK]",
          continuing_subword_prefix: "##",
          max_input_chars_per_word: 100,
        },
      }),
    );
    const out = await tokenizeText({ text: "Weave the batch quickly" }, { tokenizer: { kind: "huggingface", file } });
    expect([...out.tokens]).toEqual([1, 2, 3, 0]);
  });
});

describe("images", () => {
  async function picture(width: number, height: number): Promise<Uint8Array> {
    const { default: sharp } = await import("sharp");
    const data = Uint8Array.from({ length: 3 * width * height }, (_, i) => (i * 7) % 256);
    return Uint8Array.from(
      await sharp(data, { raw: { width, height, channels: 3 } })
        .png()
        .toBuffer(),
    );
  }

  /** Six times the patches of one picture. */
  async function hashOfPatches(file: Uint8Array): Promise<string> {
    const placedImage = await image.placeImageTokens({ image: file, tokens: [] }, { token: 9 });
    const { images } = (await image.patchifyEach(placedImage, {})) as { images: PreparedImage[] };
    const once = images[0]?.data as Uint8Array;
    return createHash("sha256")
      .update(Buffer.concat(new Array<Uint8Array>(6).fill(once)))
      .digest("hex")
      .slice(0, 8);
  }

  test("decode, crop, resize, patchify: pixels arrive where they belong", async (context) => {
    await needPackage(context, "sharp");
    const decoded = await image.decodeField({ image: await picture(8, 6), tokens: [5] }, {});
    const raw = decoded["image"] as image.RawImage;
    expect([raw.width, raw.height, raw.data[3 * (8 * 2 + 3)]]).toEqual([8, 6, (3 * (8 * 2 + 3) * 7) % 256]);
    const cropped = (await image.cropField(decoded, { width: 4, height: 4 }))["image"] as image.RawImage;
    expect(cropped.data[0]).toBe(raw.data[3 * (8 * 1 + 2)]);
    const resized = (await image.resizeField(decoded, { width: 4, height: 2 }))["image"] as image.RawImage;
    expect([resized.width, resized.height, resized.data.length]).toEqual([4, 2, 24]);
    const out = image.patchifyField(decoded, { patch: 2, token: 9 }) as unknown as PreparedSample & {
      images: PreparedImage[];
    };
    expect([...out.tokens]).toEqual([...new Array(12).fill(9), 5]);
    // Patch (1, 2) begins at pixel (4, 2).
    expect(out.images[0]?.data[12 * (1 * 4 + 2)]).toBe(raw.data[3 * (8 * 2 + 4)]);
  });

  test("measured first, decoded later: the length is known before, and fits after", async (context) => {
    await needPackage(context, "sharp");
    const sample = { image: await picture(70, 40), tokens: [1, 2] };
    const placedImage = (await image.placeImageTokens(sample, { patch: 16, patchesMax: 100, token: 9 })) as {
      images: PreparedImage[];
    };
    expect(placedImage.images[0]).toMatchObject({ at: 0, tokens: 8, width: 4, height: 2 });
    const cut = (await image.patchifyEach(placedImage, { patch: 16 })) as { images: PreparedImage[] };
    expect(cut.images[0]?.data.length).toBe(8 * 16 * 16 * 3);
    expect(image.patchGrid(1000, 1000, 16, 64)).toEqual({ across: 8, down: 8 });
    expect(image.patchGrid(10_000, 4, 16, 64).across * image.patchGrid(10_000, 4, 16, 64).down).toBeLessThanOrEqual(64);
  });

  test.each(["loader", "constructor", "consumer"] as const)(
    "placed in the %s: slices hold what is left, and bytes moved are told",
    async (at) => {
      const picked = await picture(64, 32);
      const transforms = [image.placeImage({ token: 9 }), image.patchifyImages({ at })];
      const pipeline = definePipeline({
        namespace: { uri: "memory:", grid: { rows: 2, chunks: 1 } },
        sources: {
          vlm: iterable({
            open: function* () {
              for (let i = 0; i < 6; i++) yield { value: { image: picked, tokens: new Array(i + 1).fill(i) } };
            },
            epochs: 1,
            transforms,
          }),
        },
        strategy: (graph) => ({
          backbone: graph.balance(),
          encoder: graph
            .select("images", (meta) => meta.images !== undefined)
            .distribute("world")
            .balance(),
        }),
        construct: { seqLength: 64 },
        workers: { threads: 0 },
      });
      const { batches, open } = await planAll(pipeline);
      const slices = batches.flatMap((batch) => batch.slices).map((slice) => decodeSafetensors(slice, "slice"));
      const withImages = slices.filter(({ tensors }) => tensors.has("image_target"));
      const targets = withImages.flatMap(({ tensors }) => [
        ...(tensorValues(tensors.get("image_target")!) as Int32Array),
      ]);
      expect(targets.length).toBe(6 * 4);
      const ranks = withImages.flatMap(({ tensors }) => [...(tensorValues(tensors.get("image_rank")!) as Int32Array)]);
      expect(ranks.sort()).toEqual([0, 0, 0, 1, 1, 1]);
      for (const { tensors, metadata } of withImages) {
        expect(tensors.has("pixel_values")).toBe(at !== "consumer");
        expect(tensors.has("image_bytes")).toBe(at === "consumer");
        expect(metadata["deferred"] !== undefined).toBe(at === "consumer");
      }
      // Whoever decodes, the patches are the same.
      const finished = await Promise.all(
        batches.flatMap((batch) => batch.slices).map((slice) => finishSlice(slice, pipeline)),
      );
      const pixels = finished.flatMap(({ tensors }) => [
        ...((tensors.get("pixel_values")?.data as Uint8Array | undefined) ?? []),
      ]);
      expect(pixels.length).toBe(6 * 8 * 16 * 16 * 3);
      expect(createHash("sha256").update(Uint8Array.from(pixels)).digest("hex").slice(0, 8)).toBe(
        await hashOfPatches(picked),
      );
      const [figures] = open.figures;
      const [, moved] = placementFigures(figures!, transforms);
      if (at === "consumer") expect(moved?.consumer.logged).toBeGreaterThan(0);
      else expect(moved!.constructor.buffered).toBeLessThan(moved!.loader.buffered);
    },
  );
});

test("video: frames of a real file", async (context) => {
  const file = join(dataFolder(), "v.mp4");
  try {
    execFileSync("ffmpeg", [
      "-v",
      "error",
      "-f",
      "lavfi",
      "-i",
      "testsrc=duration=2:size=64x48:rate=10",
      "-movflags",
      "frag_keyframe+empty_moov",
      file,
    ]);
  } catch {
    return context.skip("the program ffmpeg is not installed");
  }
  const { readFileSync } = await import("node:fs");
  const out = await decodeVideo(
    { video: Uint8Array.from(readFileSync(file)) },
    { framesPerSecond: 2, width: 32, height: 24 },
  );
  expect(out).toMatchObject({ video: { frames: 4, width: 32, height: 24 } });
});
