/**
 * Property: whatever mesh reads a pipeline's log, every field is what the planned mesh holds, put together: slots in the order of the sequence,
 * bounds once, rows along the microbatches, images one after another; in TypeScript and in Python. Method: the example's pipeline, cut in runs, in
 * Megatron's order and not at all; what each rank must get is built slot by slot from the slices of the planned mesh, by their places in the
 * sequence, and compared by digest.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import {
  type Cell,
  type ConsumerSettings,
  decodeSafetensors,
  joinShare,
  type Namespace,
  openNamespace,
  type Share,
  type Tensor,
  type TensorFile,
  tensorValues,
} from "../../src/index.js";
import { chunkRanges } from "../../src/plan/construct/packed-sequence.js";
import { definePipeline, type PipelineSpec } from "../../src/plan/run/pipeline.js";
import { runPipeline } from "../../src/plan/run/run-pipeline.js";
import { root } from "../source-tree.js";

const folder = mkdtempSync(join(tmpdir(), "batchweave-meshes-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

type Seen = Record<string, [shape: readonly number[], digest: string]>;
type Reading = { mesh: { dp: number; cp: number }; rank: number; policy: string; layout: string };
type Layout = "contiguous" | "zigzag" | "whole";
const seqLength = 4096;
const steps = 2;

/** A log as its plan cut it. */
interface Planned {
  /** The slice of each cell, by `step/row/chunk`. */
  readonly files: ReadonlyMap<string, TensorFile>;
  readonly layout: Layout;
  readonly chunks: number;
}

const bytesOf = ({ data }: Tensor): Uint8Array => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
const seenBytes = (shape: readonly number[], parts: readonly Uint8Array[]): Seen[string] => {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return [shape, hash.digest("hex")];
};
const seenNumbers = (shape: readonly number[], numbers: readonly number[]): Seen[string] =>
  seenBytes(shape, [new Uint8Array(Int32Array.from(numbers).buffer)]);
const field = (file: TensorFile, name: string): Tensor => file.tensors.get(name) as Tensor;
const numbersOf = (file: TensorFile, name: string): number[] => [...tensorValues(field(file, name))].map(Number);

/** What a share must hold, built without the code that joins: a rank's runs of a sequence, by their places in it. */
function expected(cells: readonly Cell[], rows: number, log: Planned): Seen {
  const { files, layout, chunks } = log;
  const at = ({ step, row, chunk }: Cell): TensorFile => files.get(`${step}/${row}/${chunk}`) as TensorFile;
  const perRow = cells.length / rows;
  // A sequence that is not cut is a row of its own.
  const groups =
    layout === "whole"
      ? cells.map((cell) => [cell])
      : Array.from({ length: rows }, (_, r) => cells.slice(r * perRow, (r + 1) * perRow));
  const first = at(cells[0] as Cell);
  const [microbatches = 0, sequences = 0] = field(first, "tokens").shape;
  const [lines, height] = [microbatches * sequences, groups.length * microbatches];
  const found: Seen = {};
  for (const name of ["tokens", "labels", "position_ids", "segment_ids", "loss_mask"]) {
    const size = field(first, name).dtype === "U8" ? 1 : 4;
    const parts: Uint8Array[] = [];
    for (const group of groups) {
      for (let line = 0; line < lines; line++) {
        const runs: [place: number, bytes: Uint8Array][] = [];
        for (const cell of group) {
          const all = bytesOf(field(at(cell), name));
          const ranges =
            layout === "whole" ? [[0, seqLength] as const] : chunkRanges(seqLength, chunks, cell.chunk, layout);
          let offset = (line * all.length) / lines;
          for (const [from, to] of ranges) {
            runs.push([from, all.subarray(offset, offset + (to - from) * size)]);
            offset += (to - from) * size;
          }
          expect(offset).toBe(((line + 1) * all.length) / lines);
        }
        parts.push(...runs.sort(([a], [b]) => a - b).map(([, bytes]) => bytes));
      }
    }
    const bytes = parts.reduce((sum, part) => sum + part.length, 0);
    found[name] = seenBytes([height, sequences, bytes / size / (height * sequences)], parts);
  }
  const heads = groups.map((group) => at(group[0] as Cell));
  const bounds = heads.map((file) => numbersOf(file, "cu_seqlens"));
  const longest = Math.max(...bounds.map((list) => list.length / lines));
  const padded = bounds.flatMap((list) => {
    const n = list.length / lines;
    const fill = new Array(longest - n).fill(seqLength);
    return Array.from({ length: lines }, (_, line) => [...list.slice(line * n, (line + 1) * n), ...fill]).flat();
  });
  found["cu_seqlens"] = seenNumbers([height, sequences, longest], padded);
  found["max_seqlen"] = seenNumbers(
    [height, sequences],
    heads.flatMap((file) => numbersOf(file, "max_seqlen")),
  );
  const pictures = cells.map(at).filter(({ tensors }) => tensors.has("pixel_values"));
  const [picture] = pictures;
  if (!picture) return found;
  for (const name of ["pixel_values", "image_grid", "image_rank", "image_target"]) {
    const count = pictures.reduce((sum, file) => sum + (field(file, name).shape[0] as number), 0);
    const parts = pictures.map((file) => bytesOf(field(file, name)));
    found[name] = seenBytes([count, ...field(picture, name).shape.slice(1)], parts);
  }
  const ends = [0];
  for (const file of pictures) {
    const before = ends.at(-1) as number;
    for (const end of numbersOf(file, "image_cu_seqlens").slice(1)) ends.push(before + end);
  }
  found["image_cu_seqlens"] = seenNumbers([ends.length], ends);
  return found;
}

async function read(ns: Namespace, { mesh, rank, policy, layout }: Reading): Promise<Share[]> {
  const shares: Share[] = [];
  const settings = { mesh, rank, policy, layout } as ConsumerSettings;
  await using consumer = await ns.consumer(settings);
  for await (const share of consumer) shares.push(share);
  return shares;
}

function readings(rows: number, chunks: number): Reading[] {
  const list: Reading[] = [];
  for (const policy of ["per-rank", "global-batch"])
    for (const layout of ["contiguous", "zigzag"])
      for (const dp of [1, 2, 3, 4, 8])
        for (const cp of [1, 2, 4]) {
          if (policy === "global-batch" && rows % dp !== 0) continue;
          if (chunks % (layout === "zigzag" && cp > 1 ? 2 * cp : cp) !== 0 || (layout === "zigzag" && cp === 1))
            continue;
          // The last rank, and where rows or chunks are divided the first too.
          for (const rank of new Set([0, dp * cp - 1])) list.push({ mesh: { dp, cp }, rank, policy, layout });
        }
  return list;
}

function python(uri: string, kind: string, list: readonly Reading[]): Seen[][] | undefined {
  const command = process.env["BATCHWEAVE_PYTHON"] ?? "python3";
  const env = { ...process.env, PYTHONPATH: join(root, "python") };
  if (spawnSync(command, ["-c", `import ${kind}`]).status !== 0) return undefined;
  const input = list.map((reading) => `${JSON.stringify(reading)}\n`).join("");
  const script = join(root, "python/tests/mesh_reader.py");
  const { stdout, stderr, status } = spawnSync(command, [script, uri, kind], { input, env, encoding: "utf8" });
  expect(stderr).toBe("");
  expect(status).toBe(0);
  return stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
}

const logs: Record<string, { chunks: number; layout: Layout; change: Partial<PipelineSpec> }> = {
  "as the example is": { chunks: 2, layout: "contiguous", change: {} },
  "four chunks": { chunks: 4, layout: "contiguous", change: {} },
  "four chunks in Megatron's order": {
    chunks: 4,
    layout: "zigzag",
    change: { construct: { seqLength, microbatches: 2, layout: "zigzag" } },
  },
  "chunks with sequences of their own": {
    chunks: 4,
    layout: "whole",
    change: { strategy: (graph) => graph.distribute("cp").balance("greedy"), construct: { seqLength, sequences: 2 } },
  },
};

describe.each(Object.entries(logs))("%s", (name, { chunks, layout, change }) => {
  test("every mesh", async (context) => {
    for (const name of ["sharp", "hyparquet", "hyparquet-writer"])
      await import(name).catch((error: Error) => context.skip(`${name} cannot be loaded here: ${error.message}`));
    const { default: example } = await import("../../examples/multisource/pipeline.js");
    const rows = 4;
    const uri = pathToFileURL(join(folder, name.replaceAll(/\W/g, "-"))).href;
    const pipeline = definePipeline({
      ...example.spec,
      ...change,
      namespace: { uri, grid: { rows, chunks }, order: "lanes", lanes: 1 },
      steps,
      workers: { threads: 0 },
    });
    await runPipeline(pipeline, { producer: { cadence: { kind: "interval", intervalMs: 5 } } });
    const ns = await openNamespace(uri);
    const planned = new Map<string, TensorFile>();
    for (let rank = 0; rank < rows * chunks; rank++)
      for (const { slices } of await read(ns, {
        mesh: { dp: rows, cp: chunks },
        rank,
        policy: "per-rank",
        layout: "contiguous",
      }))
        for (const { step, row, chunk, bytes } of slices)
          planned.set(`${step}/${row}/${chunk}`, decodeSafetensors(bytes, "a slice"));
    expect(planned.size).toBe(steps * rows * chunks);
    expect([...planned.values()].some(({ tensors }) => tensors.has("pixel_values"))).toBe(true);
    const list = readings(rows, chunks);
    const wanted: Seen[][] = [];
    for (const reading of list) {
      const shares = await read(ns, reading);
      const must = shares.map((share) => expected(share.slices, share.rows, { files: planned, layout, chunks }));
      const got = shares.map((share) =>
        Object.fromEntries([...joinShare(share)].map(([name, t]) => [name, seenBytes(t.shape, [bytesOf(t)])])),
      );
      expect({ reading, shares: got }).toEqual({ reading, shares: must });
      expect(shares.length).toBeGreaterThan(0);
      wanted.push(must);
    }
    // Importing torch takes longer than all the rest.
    for (const kind of layout === "zigzag" ? ["numpy", "torch"] : ["numpy"]) {
      const found = python(uri, kind, list);
      if (!found) console.warn(`skipped: Python has no ${kind} here (BATCHWEAVE_PYTHON names another one)`);
      for (const [i, iterations] of (found ?? []).entries())
        expect({ kind, ...list[i], iterations }).toEqual({ kind, ...list[i], iterations: wanted[i] });
    }
  });
});
