/**
 * Property: a document longer than a sequence is split into pieces, and no token and no prediction of it is lost; a piece has an id, positions and a
 * segment of its own; a resume point inside a document is exact; the audit knows pieces. What is dropped instead, because the pipeline says so, is a
 * number in the report and above a limit a failure. Method: fast-check over documents; batches compared after every resume point; logs audited.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { decodeSafetensors, openNamespace, systemEnv, tensorValues } from "../../src/index.js";
import { packSequence } from "../../src/plan/construct/packed-sequence.js";
import type { PreparedSample } from "../../src/plan/load/prepared-sample.js";
import { splitSample } from "../../src/plan/load/sample-pieces.js";
import { tokenize } from "../../src/plan/load/tokenize.js";
import { auditPipeline } from "../../src/plan/run/audit.js";
import type { PlannedBatch } from "../../src/plan/run/lane-planner.js";
import { OpenPipeline } from "../../src/plan/run/open-pipeline.js";
import { balancePieces } from "../../src/plan/run/piece-audit.js";
import { definePipeline, type Pipeline, type PipelineSpec } from "../../src/plan/run/pipeline.js";
import { describeSummary } from "../../src/plan/run/report-text.js";
import { runPipeline } from "../../src/plan/run/run-pipeline.js";
import { jsonl, type SourceSettings } from "../../src/plan/source/source.js";
import { dataFolder } from "./data-files.js";

const bytes = tokenize({ tokenizer: { kind: "bytes" } });
let count = 0;

/** Documents whose byte at place i tells the document and the place. */
const documentOf = (n: number, length: number): string =>
  Array.from({ length }, (_, i) => String.fromCharCode(33 + ((n * 31 + i * 7) % 90))).join("");
const lengths = Array.from({ length: 60 }, (_, n) => (n % 4 === 0 ? 150 + ((n * 97) % 400) : 5 + (n % 40)));

function build(spec: Partial<PipelineSpec> = {}, settings: Partial<SourceSettings> = {}): Pipeline {
  const folder = dataFolder();
  const lines = lengths.map((length, n) => `${JSON.stringify({ text: documentOf(n, length) })}\n`);
  writeFileSync(join(folder, "a.jsonl"), lines.join(""));
  return definePipeline({
    namespace: { uri: `memory:long-${count++}`, grid: { rows: 2, chunks: 1 }, lanes: 2 },
    sources: { a: jsonl({ shards: join(folder, "a.jsonl"), transforms: [bytes], windowSamplesMax: 16, ...settings }) },
    strategy: (graph) => graph,
    construct: { seqLength: 64 },
    workers: { threads: 0 },
    ...spec,
  });
}

async function plan(
  pipeline: Pipeline,
  part: [number, number],
  batches: number,
  from?: unknown,
): Promise<PlannedBatch[]> {
  await using open = await OpenPipeline.open(pipeline, systemEnv);
  const planner = open.planner(...part, from);
  const made: PlannedBatch[] = [];
  for (let i = 0; i < batches; i++) {
    const batch = await planner.next();
    if (!batch) break;
    made.push(batch);
  }
  return made;
}

const textOf = ({ seq, step, lineage, resumePoint, notes, slices }: PlannedBatch): string =>
  JSON.stringify([seq, step, lineage, resumePoint, notes, slices.map((s) => Buffer.from(s).toString("base64"))]);

/** Segments of all sequences of a batch: tokens, labels and positions of each. */
function segments(batch: PlannedBatch): { tokens: number[]; labels: number[]; positions: number[] }[] {
  return batch.slices.flatMap((slice) => {
    const { tensors } = decodeSafetensors(slice, "slice");
    const [tokens, labels, positions, ids] = ["tokens", "labels", "position_ids", "segment_ids"].map((name) => [
      ...(tensorValues(tensors.get(name)!) as Int32Array),
    ]) as [number[], number[], number[], number[]];
    return [...new Set(ids.filter((id) => id > 0))].map((id) => {
      const own = <T>(column: T[]): T[] => column.filter((_, i) => ids[i] === id);
      return { tokens: own(tokens), labels: own(labels), positions: own(positions) };
    });
  });
}

describe("split, the default", () => {
  test("every token of every document is there once, and every one but the first is predicted once", async () => {
    const batches = await plan(build({}, { epochs: 1 }), [0, 1], 1_000);
    const all = batches.flatMap(segments);
    const total = lengths.reduce((a, b) => a + b, 0);
    expect(all.reduce((sum, { tokens }) => sum + tokens.length, 0)).toBe(total);
    expect(batches.flatMap(({ faults }) => faults)).toEqual([]);
    // Each piece has positions from 0 and is a segment of its own; its last token predicts the first of the next piece.
    for (const { positions } of all) expect(positions).toEqual([...positions.keys()]);
    expect(all.flatMap(({ labels }) => labels).filter((label) => label !== -100).length).toBe(total - lengths.length);
    const documents = lengths.map((length, n) => documentOf(n, length));
    for (const { tokens, labels } of all) {
      const text = Buffer.from(tokens).toString("latin1");
      const predicted = Buffer.from(labels.filter((label) => label !== -100)).toString("latin1");
      expect(documents.some((document) => document.includes(text[0] + predicted))).toBe(true);
    }
  });

  test("pieces are named by their document, their place and their number", async () => {
    const batches = await plan(build({}, { epochs: 1, shuffle: false }), [0, 1], 1_000);
    const lineage = batches.flatMap((batch) => batch.lineage);
    const first = lineage.filter(({ id }) => id.startsWith("0:0#") || id === "0:0");
    expect(lengths[0]).toBe(150);
    expect(first.map(({ id, tokens }) => [id, tokens]).sort()).toEqual([
      ["0:0#1/3", 64],
      ["0:0#2/3", 64],
      ["0:0#3/3", 22],
    ]);
    expect(lineage.filter(({ id }) => !id.includes("#")).length).toBe(lengths.filter((length) => length <= 64).length);
  });

  for (const batch of [{ fill: "tokens" }, { samples: 5 }] as const) {
    test(`a resume point inside a document is exact: ${JSON.stringify(batch)}`, async () => {
      const pipeline = build({ batch, construct: { seqLength: 64, microbatches: 2 } });
      const whole = await plan(pipeline, [1, 2], 24);
      const points = whole.map(({ resumePoint }) => JSON.parse(JSON.stringify(resumePoint)) as { used: number[] | 0 });
      expect(points.filter(({ used }) => used !== 0).length).toBeGreaterThan(2);
      for (const [cut, point] of points.entries()) {
        const rest = await plan(pipeline, [1, 2], 3, point);
        expect(rest.map(textOf)).toEqual(
          whole
            .slice(cut + 1, cut + 4)
            .map(textOf)
            .concat(rest.slice(23 - cut).map(textOf)),
        );
      }
    });
  }

  test("killed and continued by lanes, the log is the same and audited clean, wherever it ends", async () => {
    for (const steps of [3, 6, 11]) {
      const pipeline = build({ steps });
      const fast = { producer: { cadence: { kind: "interval", intervalMs: 5 } } } as const;
      for (let round = 0; round < 3; round++) await runPipeline(pipeline, { ...fast, batchesMax: 2 });
      const { closed } = await runPipeline(pipeline, fast);
      expect(closed).toBe(true);
      const audit = await auditPipeline(pipeline, await openNamespace(pipeline.spec.namespace.uri));
      expect(audit).toMatchObject({ to: steps, lost: 0, repeated: 0, examples: [] });
    }
  });

  test("who looks for a document finds its pieces", async () => {
    const pipeline = build({}, { epochs: 1 });
    await runPipeline(pipeline);
    const { matches } = await (await openNamespace(pipeline.spec.namespace.uri)).find("0:0");
    expect(matches.map(({ sample }) => sample.id)).toEqual(["0:0#1/3", "0:0#2/3", "0:0#3/3"]);
  });
});

describe("pieces", () => {
  const sampleArb = fc
    .record({
      parts: fc.array(fc.record({ text: fc.nat(30), image: fc.nat(9) }), { maxLength: 5 }),
      masked: fc.boolean(),
    })
    .map(({ parts, masked }): PreparedSample => {
      const tokens: number[] = [];
      const images = parts.flatMap(({ text, image }) => {
        for (let i = 0; i < text; i++) tokens.push(tokens.length + 1);
        if (image === 0) return [];
        const at = tokens.length;
        for (let i = 0; i < image; i++) tokens.push(7_000);
        return [{ at, tokens: image, height: 1, width: image, data: new Uint8Array(1) }];
      });
      const lossMask = Uint8Array.from(tokens, (token) => (token % 3 === 0 ? 0 : 1));
      return { tokens: Int32Array.from(tokens), images, ...(masked ? { lossMask } : {}) };
    });

  test("put together are the document; no image is cut; predictions are those of the document", () => {
    fc.assert(
      fc.property(sampleArb, fc.integer({ min: 9, max: 20 }), (sample, tokensMax) => {
        const pieces = splitSample(sample, tokensMax) as PreparedSample[];
        expect(pieces.every(({ tokens }) => tokens.length > 0 && tokens.length <= tokensMax)).toBe(true);
        expect(pieces.flatMap(({ tokens }) => [...tokens])).toEqual([...sample.tokens]);
        expect(pieces.flatMap(({ images }) => images ?? []).length).toBe(sample.images?.length);
        for (const { tokens, images } of pieces)
          for (const { at, tokens: length } of images ?? [])
            expect([...tokens.slice(at, at + length)]).toEqual(new Array(length).fill(7_000));
        const whole = packSequence([sample], Math.max(1, sample.tokens.length));
        const labels = pieces.flatMap((piece) => [...packSequence([piece], piece.tokens.length).labels]);
        if (labels.length > 0) expect(labels).toEqual([...whole.labels]);
      }),
    );
  });

  test("an image that is longer than a sequence cannot be split", () => {
    const images = [{ at: 1, tokens: 9, height: 3, width: 3, data: new Uint8Array(1) }];
    expect(splitSample({ tokens: new Int32Array(12), images }, 8)).toBeUndefined();
  });
});

describe("the audit of pieces", () => {
  const held = (...keys: string[]): Map<string, number> => {
    const counts = new Map<string, number>();
    for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
    return counts;
  };

  test("misses a piece, sees one twice, knows documents that are half used, and leaves all else alone", () => {
    const given = (): Map<string, number> =>
      new Map([
        ["a 0:1", 1],
        ["a 0:2#1/2", 1],
      ]);
    const whole = ["a 0:1#1/3", "a 0:1#2/3", "a 0:1#3/3", "a 0:2#1/2"];
    expect(balancePieces(given(), held(...whole), new Map())).toEqual({ lost: [], repeated: [] });
    expect(balancePieces(given(), held(...whole.slice(1)), new Map())).toEqual({ lost: ["a 0:1#1/3"], repeated: [] });
    expect(balancePieces(given(), held(...whole, "a 0:1#2/3"), new Map())).toEqual({
      lost: [],
      repeated: ["a 0:1#2/3"],
    });
    const half = new Map([["a 0:5", [2]]]);
    expect(balancePieces(given(), held(...whole, "a 0:5#1/4", "a 0:5#2/4"), half)).toEqual({ lost: [], repeated: [] });
    expect(balancePieces(given(), held(...whole, "a 0:5#1/4"), half)).toEqual({ lost: ["a 0:5#2/4"], repeated: [] });
    expect(balancePieces(given(), held(...whole), half).lost).toEqual(["a 0:5", "a 0:5"]);
    const [left, rest] = [given(), held(...whole)];
    balancePieces(left, rest, new Map());
    expect([[...left], [...rest]]).toEqual([[["a 0:2#1/2", 1]], [["a 0:2#1/2", 1]]]);
  });
});

describe("what is dropped", () => {
  const of = (tooLong: "truncate" | "skip", droppedShareMax?: number): Pipeline =>
    build({ construct: { seqLength: 64, tooLong, droppedShareMax } }, { epochs: 1 });
  const total = lengths.reduce((a, b) => a + b, 0);

  test("above a tenth is a failure that says how much, and of what", async () => {
    for (const tooLong of ["truncate", "skip"] as const)
      await expect(runPipeline(of(tooLong))).rejects.toMatchObject({
        code: "LIMIT",
        message: expect.stringMatching(/Source a: \d+ of \d+ tokens \(\d+ %\) .*droppedShareMax .*10 %.*"split"/),
      });
  });

  test("below the limit is a loud number in the report, the same in the audit's", async () => {
    const cut = lengths.reduce((sum, length) => sum + Math.max(0, length - 64), 0);
    const out = lengths.filter((length) => length > 64).reduce((a, b) => a + b, 0);
    for (const [tooLong, dropped] of [
      ["truncate", cut],
      ["skip", out],
    ] as const) {
      const pipeline = of(tooLong, 1);
      const { summary, sources } = await runPipeline(pipeline);
      expect(summary.dropped).toEqual({ a: dropped });
      expect(sources[0]?.tokensDropped).toBe(dropped);
      expect(summary.tokens + dropped).toBe(total);
      const percent = ((100 * dropped) / total).toFixed(2);
      expect(describeSummary(summary)).toContain(`DROPPED: ${dropped} of ${total} tokens (${percent} %)`);
      const audit = await auditPipeline(pipeline, await openNamespace(pipeline.spec.namespace.uri));
      expect(audit.summary.dropped).toEqual({ a: dropped });
    }
  });
});
