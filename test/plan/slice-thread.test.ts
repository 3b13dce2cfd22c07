/**
 * Property: a batch has the same slices whether they are built where it was planned, from its message, or in the thread, at once or one by one;
 * what the constructor refuses is refused in the same words; a thread that is lost
 * ends the wait, and so does a signal.
 * Method: fast-check over samples with masks, next tokens and images, with and without a plan for the encoder; the built worker.
 */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import fc from "fast-check";
import { beforeEach, describe, expect, test } from "vitest";
import { systemEnv } from "../../src/index.js";
import { type ConstructInput, DataConstructor } from "../../src/plan/construct/data-constructor.js";
import { decodeSliceMessage, encodeSliceMessage, movable } from "../../src/plan/construct/slice-message.js";
import { SliceThread } from "../../src/plan/construct/slice-thread.js";
import { ClientPlaceTree } from "../../src/plan/graph/place-tree.js";
import { orAborted } from "../../src/plan/load/or-aborted.js";
import type { PreparedSample } from "../../src/plan/load/prepared-sample.js";
import { LanePlanner } from "../../src/plan/run/lane-planner.js";
import { OpenPipeline } from "../../src/plan/run/open-pipeline.js";
import { definePipeline } from "../../src/plan/run/pipeline.js";
import { iterable } from "../../src/plan/source/source.js";

const workerUrl = new URL("../../dist/src/plan/construct/slice-worker.js", import.meta.url);
const mesh = { dp: 2, cp: 2 };
const tree = new ClientPlaceTree(mesh);
const grid = { rows: 2, chunks: 2 };

const texts = (slices: readonly Uint8Array[]) => slices.map((slice) => Buffer.from(slice).toString("base64"));

const sampleArb: fc.Arbitrary<PreparedSample> = fc
  .record({
    tokens: fc.array(fc.nat(50_000), { minLength: 4, maxLength: 20 }),
    masked: fc.boolean(),
    nextToken: fc.option(fc.nat(9), { nil: undefined }),
    hasImage: fc.boolean(),
  })
  .map(({ tokens, masked, nextToken, hasImage }) => ({
    tokens: Int32Array.from(tokens),
    nextToken,
    lossMask: masked ? Uint8Array.from(tokens, (token) => token % 2) : undefined,
    images: hasImage
      ? [
          {
            at: 1,
            tokens: 2,
            height: 1,
            width: 2,
            data: new Uint8Array(64).fill(tokens.length).subarray(8, 14),
            patchValues: 3,
          },
        ]
      : undefined,
  }));

/** Samples dealt to two buckets; with `isBalanced`, each image goes to another rank than its sample. */
function contentOf(values: readonly PreparedSample[], isBalanced: boolean): ConstructInput {
  const bucket = (rank: number, samples: number[]) => ({ ranks: [rank], bins: [{ samples }] });
  const numbers = (count: number, rest: number) => [...Array(count).keys()].filter((i) => i % 2 === rest);
  const units = values.flatMap(({ images = [] }) => images.map((image) => ({ tokens: [], images: [image] })));
  return {
    plan: {
      axis: "dp",
      samples: values.map((_, i) => ({ source: `source-${i % 3}` })),
      buckets: [bucket(0, numbers(values.length, 0)), bucket(2, numbers(values.length, 1))],
    },
    values,
    encoder: isBalanced
      ? {
          plan: {
            axis: "world",
            samples: units.map(() => ({ source: "image" })),
            buckets: [bucket(3, numbers(units.length, 0)), bucket(1, numbers(units.length, 1))],
          },
          values: units,
        }
      : undefined,
    deferred: { "source-0": [{ name: "crop" }] },
  };
}

test("a batch that was sent has the slices that it would have had", () => {
  const construct = new DataConstructor(grid, tree, { seqLength: 256 });
  fc.assert(
    fc.property(fc.array(sampleArb, { maxLength: 12 }), fc.boolean(), (values, isBalanced) => {
      const content = contentOf(values, isBalanced);
      const message = encodeSliceMessage(content);
      const sent = structuredClone(message, { transfer: movable(message) });
      expect(texts(construct.build(decodeSliceMessage(sent)))).toEqual(texts(construct.build(content)));
    }),
  );
});

describe("in a thread", () => {
  beforeEach((context) => {
    if (!existsSync(fileURLToPath(workerUrl))) context.skip("dist is not built: npm run build");
  });
  const settings = { seqLength: 32_768 };
  const construct = new DataConstructor(grid, tree, settings);
  const shape = { grid, mesh, settings };
  const large = contentOf(fc.sample(sampleArb, { numRuns: 40, seed: 7 }), true);

  test("a batch of a megabyte has the same slices, at once, one by one, and when others are left in the middle", async () => {
    await using thread = new SliceThread(construct, shape, false, workerUrl);
    const expected = texts(construct.build(large));
    const [whole, again] = await Promise.all([thread.build(large), thread.build(large)]);
    expect(texts(whole)).toEqual(expected);
    expect(texts(again)).toEqual(expected);
    for await (const slice of thread.slices(large)) {
      expect(texts([slice])).toEqual(expected.slice(0, 1));
      break;
    }
    const streamed: Uint8Array[] = [];
    for await (const slice of thread.slices(large)) streamed.push(slice);
    expect(texts(streamed)).toEqual(expected);
  });

  test("what cannot be built is refused as it is without a thread, and the thread goes on", async () => {
    await using thread = new SliceThread(construct, shape, false, workerUrl);
    const wrong = { ...large, plan: { ...large.plan, axis: "world" as const } };
    const refusal = {
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining('cannot be distributed over "world"'),
    };
    await expect(thread.build(wrong)).rejects.toMatchObject(refusal);
    expect(await thread.build(large)).toHaveLength(4);
  });

  test("threads start from a program that was given as text", () => {
    const program = `import { definePipeline, iterable, runPipeline, transform } from "../../dist/src/plan/index.js";
      const source = iterable({ open: () => [{ value: { tokens: [1, 2] } }], transforms: [transform("data:text/javascript,export const same = (value) => value", "same")] });
      const pipeline = definePipeline({ namespace: { uri: "memory:text", grid: { rows: 1, chunks: 1 }, lanes: 1 }, sources: { source }, strategy: (graph) => graph, construct: { seqLength: 65536 }, batch: { samples: 1 }, steps: 1 });
      console.log((await runPipeline(pipeline)).end);`;
    const cwd = fileURLToPath(new URL(".", import.meta.url));
    expect(String(execFileSync(process.execPath, ["--input-type=module", "-e", program], { cwd }))).toBe("1\n");
  });

  test("a thread that cannot start is an error, now and for every batch after it", async () => {
    await using thread = new SliceThread(construct, shape, false, new URL("./no-such-worker.js", workerUrl));
    const refusal = {
      code: "LIMIT",
      message: expect.stringMatching(/that builds slices ended .*beside it, or do without threads/),
    };
    await expect(thread.build(large)).rejects.toMatchObject(refusal);
    await expect(thread.build(large)).rejects.toMatchObject(refusal);
  });
});

test("a signal ends the wait for a batch that is being built, and what was begun fails unheard", async () => {
  const pipeline = definePipeline({
    namespace: { uri: "memory:", grid: { rows: 1, chunks: 1 } },
    sources: { s: iterable({ open: () => [{ value: { tokens: [1, 2] } }] }) },
    strategy: (graph) => graph,
    construct: { seqLength: 65_536 },
    batch: { samples: 1 },
  });
  await using open = await OpenPipeline.open(pipeline, systemEnv);
  const stop = new AbortController();
  const shape = { grid: { rows: 1, chunks: 1 }, mesh: { dp: 1 }, settings: pipeline.spec.construct };
  // It never answers, as one that takes long.
  const busy = "import('node:worker_threads').then(({ parentPort }) => parentPort.on('message', () => {}))";
  await using builder = new (class extends SliceThread {
    override build(content: ConstructInput) {
      setImmediate(() => stop.abort(new Error("told to stop")));
      return super.build(content);
    }
  })(open.resolved.construct, shape, false, new URL(`data:text/javascript,${busy}`));
  const planner = new LanePlanner({ ...open.parts, builder }, { lane: 0, lanes: 1 });
  await expect(planner.next({ signal: stop.signal })).rejects.toThrow("told to stop");
  const late = builder.build({ plan: { axis: "dp", samples: [], buckets: [] }, values: [] });
  await expect(orAborted(late, stop.signal)).rejects.toThrow("told to stop");
});
