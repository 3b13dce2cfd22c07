/**
 * Property: verify's work is bounded by what is stored, whatever numbers a manifest holds; what an index object covered is said once, with its
 * steps; and a slice that this platform cannot decode is called unchecked, not damaged.
 * Method: manifests whose steps end near 2^53, with and without references that cover them, an index node taken away, and a batch whose slice
 * table says zstd.
 */
import { describe, expect, test } from "vitest";
import {
  asStep,
  availableEncodings,
  decodeManifest,
  encodeExtent,
  encodeManifest,
  indexFanout,
  type Manifest,
  manifestKey,
  stepsPerNode,
} from "../../src/format/index.js";
import { createNamespace, isBatchWeaveError, type Namespace } from "../../src/index.js";
import { verifyLog } from "../../src/lifecycle/index.js";
import type { Log } from "../../src/log/index.js";
import { keysOf, rows, SmallWorld, Writer } from "./small-world.js";

/** Puts a changed copy of the newest manifest in its place, with a valid checksum: what a hostile writer can do. */
async function tamper(log: Log, change: (manifest: Manifest) => Manifest): Promise<void> {
  const { version } = await log.head.jump();
  const key = manifestKey(version);
  const bytes = (await log.store.get(key)) as Uint8Array;
  await log.store.put(key, encodeManifest(change(decodeManifest(bytes, key, log.spec.uuid, version))));
}

/** The last steps whose rows can be counted. */
const lastStep = Math.floor(Number.MAX_SAFE_INTEGER / rows);
const farEnd = lastStep - (lastStep % indexFanout) - indexFanout;

describe("an absurd end", () => {
  const ref = { base: 1, commitId: "v0u1t2s3r4q5", k: 0, check: 7 } as never;
  const levels = Array.from({ length: 8 }, (_, level) => ({
    start: Math.max(0, Math.floor(farEnd / stepsPerNode(level)) - (indexFanout - 1)),
    refs: Array.from({ length: indexFanout - 1 }, () => ref),
  }));
  test.each([
    ["without references", []],
    ["with references to objects that are not there", levels],
  ])("%s is refused after a bounded number of requests", async (_, index) => {
    const world = new SmallWorld();
    const log = await world.create("memory:a");
    await new Writer(log).write(3);
    await tamper(log, (m) => ({
      ...m,
      index,
      tail: { ...m.tail, start: asStep(farEnd) },
      steps: { ...m.steps, end: asStep(farEnd + m.tail.batches.length) },
    }));
    const report = await verifyLog(world.open("memory:a", log.spec));
    expect(report.ok).toBe(false);
    expect(report.problems.length).toBeLessThan(1_000);
    expect(report.problems[0]?.message).toMatch(/^Steps 0 to \d{9,} cannot be found: /);
  });
});

test("an end whose rows cannot be counted exactly is refused as soon as it is read", async () => {
  const world = new SmallWorld();
  const log = await world.create("memory:a");
  await new Writer(log).write(3);
  const start = asStep(farEnd + 2 * indexFanout);
  await tamper(log, (m) => ({ ...m, tail: { ...m.tail, start }, steps: { ...m.steps, end: asStep(start + 3) } }));
  const failure = await world
    .open("memory:a", log.spec)
    .head.jump()
    .catch((e: unknown) => e);
  expect(isBatchWeaveError(failure, "CORRUPT") && failure.message).toContain("beyond the last row that can be counted");
});

test("an index object that is gone is said once, with the steps it held", async () => {
  const world = new SmallWorld();
  const log = await world.create("memory:a");
  await new Writer(log).write(3 * indexFanout + 5, { perCommit: indexFanout });
  const segments = await keysOf(world.store("memory:a"), "index/");
  await world.store("memory:a").delete([segments[1] as string]);
  const { problems, counts } = await verifyLog(world.open("memory:a", log.spec));
  const about = problems.filter(({ step }) => step !== undefined);
  expect(about.map(({ message }) => message)).toEqual([
    expect.stringContaining(`Steps ${indexFanout} to ${2 * indexFanout - 1} cannot be found: `),
  ]);
  expect(counts.steps).toBe(2 * indexFanout + 5);
});

describe("slices that cannot be decoded here", () => {
  /** A batch whose only slice says that it is zstd. */
  async function withZstd(uri: string): Promise<Namespace> {
    const namespace = await createNamespace(uri, { grid: { rows: 1, chunks: 1 } });
    const encoding = availableEncodings.includes("zstd") ? "zstd" : "none";
    const producer = await namespace.producer({ id: "p", encoding, cadence: { kind: "interval", intervalMs: 1 } });
    await producer.append([Buffer.alloc(1_000)]);
    await producer.close();
    return namespace;
  }
  test.skipIf(availableEncodings.includes("zstd"))(
    "are not damaged, and verify says that it did not check them",
    async () => {
      const world = new SmallWorld();
      const log = await world.create("memory:z");
      const writer = await new Writer(log).open();
      const batch = await writer.upload();
      const cells = Array.from({ length: 2 }, () => ({ bytes: Buffer.from("(zstd)"), rawLength: 1_000, encoding: 1 }));
      const { body, entry } = encodeExtent(log.spec.uuid, batch, { extent: 0, firstCell: 0 }, cells, {}, undefined);
      const key = (await keysOf(world.store("memory:z"), "batch/"))[0] as string;
      await world.store("memory:z").put(key, body);
      await writer.commit([{ ...batch, extents: [entry] }]);
      const report = await verifyLog(world.open("memory:z", log.spec), { level: "bytes" });
      expect([report.ok, report.counts.uncheckedSlices]).toEqual([true, 2]);
      expect(report.problems).toEqual([
        expect.objectContaining({
          severity: "warning",
          code: "unchecked",
          message: expect.stringMatching(/^2 slices .* NOT CHECKED/),
        }),
      ]);
    },
  );
  test.skipIf(!availableEncodings.includes("zstd"))("are decoded where there is a decoder", async () => {
    const report = await (await withZstd("memory:zz")).verify({ level: "bytes" });
    expect([report.problems, report.counts.uncheckedSlices]).toEqual([[], 0]);
  });
});

test("verify ends when it is told to, also when nothing has to be read", async () => {
  const world = new SmallWorld();
  const log = await world.create("memory:a");
  await new Writer(log).write(200, { perCommit: 50 });
  const failure = await verifyLog(log, {}, { signal: AbortSignal.abort(new Error("enough")) }).catch((e: unknown) => e);
  expect(isBatchWeaveError(failure)).toBe(false);
  expect((failure as Error).message).toBe("enough");
});
