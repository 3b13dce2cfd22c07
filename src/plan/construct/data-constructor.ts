/** DataConstructor: carries out a plan. Packs, pads, cuts for context parallelism, names the fields, encodes slices. Pure. */
import {
  BatchWeaveError,
  type Dtype,
  encodeSafetensors,
  type Grid,
  type Joins,
  pipelineJoins,
  placeRank,
  type Tensor,
} from "../../index.js";
import type { LoadPlan, PlanBin } from "../graph/load-plan.js";
import type { ClientPlaceTree } from "../graph/place-tree.js";
import type { PreparedImage, PreparedSample } from "../load/prepared-sample.js";
import type { SampleMeta } from "../load/sample-meta.js";
import type { Transform } from "../load/transform.js";
import {
  type ContextLayout,
  chunkOf,
  chunkRanges,
  imageSlots,
  type PackedSequence,
  type PackTokens,
  packSequence,
} from "./packed-sequence.js";

/** Field names of a training framework. */
type FieldNames = "megatron" | "torchtitan";

const fieldNames: Readonly<Record<FieldNames, { readonly tokens: string; readonly lossMask: string | undefined }>> = {
  megatron: { tokens: "tokens", lossMask: "loss_mask" },
  // Labels that do not count are ignoreLabel, which is all torchtitan's loss looks at.
  torchtitan: { tokens: "input_ids", lossMask: undefined },
};

/** What batches look like. */
export interface ConstructSettings extends PackTokens {
  /** Slots of a packed sequence. */
  readonly seqLength: number;
  /** Tokens the model knows, placeholders of images included: a sample with another is a fault. Default: not checked. */
  readonly vocabSize?: number | undefined;
  /** Microbatches of a row. Default 1. */
  readonly microbatches?: number | undefined;
  /** Packed sequences of a microbatch. Default 1. */
  readonly sequences?: number | undefined;
  /** Default "megatron". */
  readonly names?: FieldNames | undefined;
  /** Default "contiguous": readers take any cp that divides the chunks, contiguous or zigzag. */
  readonly layout?: ContextLayout | undefined;
}

/** What slices are made by, of a plan. */
interface BuildPlan extends Pick<LoadPlan, "axis"> {
  readonly samples: readonly Pick<SampleMeta, "source">[];
  readonly buckets: readonly {
    readonly ranks: readonly number[];
    readonly bins: readonly Pick<PlanBin, "samples">[];
  }[];
}

/** Everything of one batch that goes into its slices. */
export interface ConstructInput {
  readonly plan: BuildPlan;
  /** Prepared samples, by the plan's indices. */
  readonly values: readonly PreparedSample[];
  /** Who encodes the images, where that was balanced on its own (over `world`). */
  readonly encoder?: { readonly plan: BuildPlan; readonly values: readonly PreparedSample[] } | undefined;
  /** Transforms that are left to the consumer, by source. */
  readonly deferred?: Readonly<Record<string, readonly Pick<Transform, "name">[]>> | undefined;
}

/** An image on its way into a slice. */
interface PlacedImage {
  readonly image: PreparedImage;
  readonly rank: number;
  /** Row, sequence of the row, slot. */
  readonly target: readonly [row: number, sequence: number, slot: number];
  readonly source: string;
}

/** Builds the slices of batches of one pipeline. */
export class DataConstructor {
  readonly #grid: Grid;
  readonly #tree: ClientPlaceTree;
  readonly #settings: ConstructSettings;

  constructor(grid: Grid, tree: ClientPlaceTree, settings: ConstructSettings) {
    this.#grid = grid;
    this.#tree = tree;
    this.#settings = settings;
    assertShape(grid, tree, settings);
  }

  /** All slices of a batch in row-major order, safetensors each. */
  build(content: ConstructInput): Uint8Array[] {
    return [...this.slices(content)];
  }

  /** About what the slices of a batch will take: a function of the plan and its samples alone. */
  bytesOf({ values }: Pick<ConstructInput, "values">): number {
    const { rows, chunks } = this.#grid;
    const { seqLength, microbatches = 1, sequences = 1 } = this.#settings;
    const images = values.flatMap(({ images: list = [] }) => list);
    // Four columns of 32 bits and a mask, whether a sequence is cut into chunks or each chunk has its own: the larger is counted.
    const tokens = 17 * rows * chunks * seqLength * microbatches * sequences;
    return tokens + images.reduce((sum, { data }) => sum + data.byteLength, 0);
  }

  /** The same as {@link build}, one after another: what was given is not held. */
  *slices(content: ConstructInput): Generator<Uint8Array> {
    const { plan, values } = content;
    const { rows, chunks } = this.#grid;
    if (plan.axis === "world") {
      throw new BatchWeaveError(
        "INVALID_ARGUMENT",
        'Sequences cannot be distributed over "world": the ranks of a tensor or pipeline group read the same sequence. Use "dp" or "cp", and "world" for an encoder graph.',
      );
    }
    // Over "cp" every chunk has sequences of its own; over "dp" a row's sequences are cut into chunks.
    const isCut = plan.axis === "dp";
    const images = this.#images(content, isCut);
    const { seqLength, layout = "contiguous" } = this.#settings;
    let sequences: PackedSequence[] = [];
    for (let row = 0; row < rows; row++) {
      for (let chunk = 0; chunk < chunks; chunk++) {
        const ranges = isCut ? chunkRanges(seqLength, chunks, chunk, layout) : [[0, seqLength] as const];
        if (!isCut || chunk === 0) {
          const bucket = plan.buckets[isCut ? row : row * chunks + chunk];
          sequences = (bucket?.bins ?? []).map((bin) =>
            packSequence(samplesOf(bin, values), seqLength, this.#settings),
          );
        }
        const tensors = this.#tensors(sequences, ranges);
        const own = images.get(row * chunks + chunk);
        if (own) addImages(tensors, own);
        yield encodeSafetensors(tensors, this.#metadata(content, own), this.#joins(tensors, isCut));
      }
    }
  }

  #tensors(sequences: readonly PackedSequence[], ranges: readonly (readonly [number, number])[]): Map<string, Tensor> {
    const { microbatches = 1, sequences: perMicrobatch = 1, names = "megatron" } = this.#settings;
    const width = ranges.reduce((sum, [start, end]) => sum + end - start, 0);
    const shape = [microbatches, perMicrobatch];
    const column = <T extends Int32Array | Uint8Array>(dtype: Dtype, of: (s: PackedSequence) => T): Tensor => {
      const parts = sequences.map((sequence) => chunkOf(of(sequence), ranges));
      return { dtype, shape: [...shape, width], data: concat(parts) };
    };
    const segments = Math.max(...sequences.map(({ cuSeqlens }) => cuSeqlens.length));
    const bounds = sequences.map(({ cuSeqlens }) => {
      // Shorter lists end in empty segments, which change nothing.
      const padded = new Int32Array(segments).fill(this.#settings.seqLength);
      padded.set(cuSeqlens);
      return padded;
    });
    const { tokens, lossMask } = fieldNames[names];
    const tensors = new Map<string, Tensor>([
      [tokens, column("I32", (s) => s.tokens)],
      ["labels", column("I32", (s) => s.labels)],
      ["position_ids", column("I32", (s) => s.positionIds)],
      ["segment_ids", column("I32", (s) => s.segmentIds)],
      ["cu_seqlens", { dtype: "I32", shape: [...shape, segments], data: concat(bounds) }],
      ["max_seqlen", { dtype: "I32", shape, data: Int32Array.from(sequences, (s) => s.maxSeqlen) }],
    ]);
    if (lossMask)
      tensors.set(
        lossMask,
        column("U8", (s) => s.lossMask),
      );
    return tensors;
  }

  #joins(tensors: ReadonlyMap<string, Tensor>, isCut: boolean): Joins {
    const { layout = "contiguous", seqLength } = this.#settings;
    const joins = pipelineJoins(isCut ? layout : "whole", seqLength);
    return Object.fromEntries(Object.entries(joins).filter(([name]) => tensors.has(name)));
  }

  #metadata({ plan, deferred }: ConstructInput, images: readonly PlacedImage[] | undefined): Record<string, string> {
    const { microbatches = 1, sequences = 1, seqLength, names = "megatron", layout = "contiguous" } = this.#settings;
    // By name, not by module: where the code lies differs from machine to machine, and slices must not.
    const left = Object.entries(deferred ?? {}).flatMap(([source, list]) =>
      list.length > 0 && images?.some((image) => image.source === source)
        ? [[source, list.map(({ name }) => name)]]
        : [],
    );
    return {
      microbatches: String(microbatches),
      sequences: String(sequences),
      seq_length: String(seqLength),
      names,
      layout: plan.axis === "dp" ? layout : "whole",
      ...(images && left.length > 0
        ? {
            deferred: JSON.stringify(Object.fromEntries(left)),
            image_sources: JSON.stringify(images.map((i) => i.source)),
          }
        : {}),
    };
  }

  /** Images by cell: those of a balanced encoder plan where their rank reads, others with their sequence. */
  #images({ plan, values, encoder }: ConstructInput, isCut: boolean): Map<number, PlacedImage[]> {
    const { chunks } = this.#grid;
    const targets = new Map<PreparedImage, { readonly cell: number } & Pick<PlacedImage, "target" | "source">>();
    plan.buckets.forEach(({ bins }, b) => {
      const row = isCut ? b : Math.floor(b / chunks);
      bins.forEach((bin, s) => {
        for (const { image, slot, sample } of imageSlots(samplesOf(bin, values))) {
          const source = plan.samples[bin.samples[sample] as number]?.source as string;
          targets.set(image, { cell: isCut ? row * chunks : b, target: [row, s, slot], source });
        }
      });
    });
    const cells = new Map<number, PlacedImage[]>();
    const put = (cell: number, placed: PlacedImage): void => {
      const list = cells.get(cell);
      if (list) list.push(placed);
      else cells.set(cell, [placed]);
    };
    const placed = new Set<PreparedImage>();
    for (const bucket of encoder?.plan.buckets ?? []) {
      const rank = bucket.ranks[0] as number;
      for (const image of bucket.bins.flatMap((bin) => bin.samples).flatMap((i) => encoder?.values[i]?.images ?? [])) {
        placed.add(image);
        const { target, source } = targets.get(image) as Pick<PlacedImage, "target" | "source">;
        put(this.#cellOf(rank), { image, rank, target, source });
      }
    }
    // Without an encoder graph, and where it left some out, images stay with their sequence.
    for (const [image, { cell, target, source }] of targets)
      if (!placed.has(image)) put(cell, { image, rank: -1, target, source });
    return cells;
  }

  /** The cell that a rank reads, in which the images it encodes are found. */
  #cellOf(rank: number): number {
    const { d, c, chunkRanks } = placeRank(this.#tree.mesh, rank);
    return d * this.#grid.chunks + Math.floor((c * this.#grid.chunks) / chunkRanks);
  }
}

function samplesOf(bin: Pick<PlanBin, "samples">, values: readonly PreparedSample[]): PreparedSample[] {
  return bin.samples.map((i) => values[i] as PreparedSample);
}

function concat<T extends Int32Array | Uint8Array | Float32Array>(parts: readonly T[]): T {
  const first = parts[0] as T;
  const out = new (first.constructor as new (n: number) => T)(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** Whether patches of two images can be rows of one tensor. */
function isAlike(a: PreparedImage, b: PreparedImage): boolean {
  return a.patchValues === b.patchValues && a.data instanceof Float32Array === b.data instanceof Float32Array;
}

function addImages(tensors: Map<string, Tensor>, images: readonly PlacedImage[]): void {
  const n = images.length;
  const isCut = images[0]?.image.patchValues !== undefined;
  if (images.some(({ image }) => (image.patchValues !== undefined) !== isCut)) {
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      "Some images of a batch are patches and others encoded files. Place patchifyImages() of every source with images in the same kind of place.",
    );
  }
  const [first] = images;
  if (isCut && images.some(({ image }) => !isAlike(image, first?.image as PreparedImage))) {
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      "Images of a batch have patches of different sizes, or bytes and floats. Cut those of all sources alike.",
    );
  }
  const data = images.map(({ image }) =>
    isCut || image.data instanceof Uint8Array
      ? image.data
      : new Uint8Array(image.data.buffer, image.data.byteOffset, image.data.byteLength),
  );
  if (isCut) {
    const values = images[0]?.image.patchValues as number;
    const isFloat = data[0] instanceof Float32Array;
    const patches = data.reduce((sum, one) => sum + one.length, 0) / values;
    const all = isFloat ? concat(data as Float32Array[]) : concat(data as Uint8Array[]);
    tensors.set("pixel_values", { dtype: isFloat ? "F32" : "U8", shape: [patches, values], data: all });
  } else {
    const all = concat(data as Uint8Array[]);
    tensors.set("image_bytes", { dtype: "U8", shape: [all.length], data: all });
  }
  const ends = new Int32Array(n + 1);
  images.forEach(({ image }, i) => {
    ends[i + 1] = (ends[i] as number) + (isCut ? image.tokens : image.data.byteLength);
  });
  tensors.set(isCut ? "image_cu_seqlens" : "image_byte_ends", { dtype: "I32", shape: [n + 1], data: ends });
  const flat = (of: (placed: PlacedImage) => readonly number[]): Int32Array => Int32Array.from(images.flatMap(of));
  tensors.set("image_grid", { dtype: "I32", shape: [n, 2], data: flat(({ image }) => [image.height, image.width]) });
  tensors.set("image_rank", { dtype: "I32", shape: [n], data: flat(({ rank }) => [rank]) });
  tensors.set("image_target", {
    dtype: "I32",
    shape: [n, 4],
    data: flat(({ target, image }) => [...target, image.tokens]),
  });
}

function assertShape(grid: Grid, tree: ClientPlaceTree, settings: ConstructSettings): void {
  const { seqLength, layout = "contiguous" } = settings;
  const refuse = (why: string): never => {
    throw new BatchWeaveError("INVALID_ARGUMENT", why, { grid, settings });
  };
  for (const [name, value] of Object.entries({
    seqLength,
    microbatches: settings.microbatches ?? 1,
    sequences: settings.sequences ?? 1,
  })) {
    if (!Number.isSafeInteger(value) || value < 1)
      refuse(`construct.${name} must be a whole number of at least 1, not ${value}.`);
  }
  const pieces = layout === "zigzag" && grid.chunks > 1 ? 2 * grid.chunks : grid.chunks;
  if (seqLength % pieces !== 0)
    refuse(`seqLength ${seqLength} cannot be cut into ${pieces} pieces for ${grid.chunks} chunks (${layout}).`);
  const dp = tree.nodesAt("dp").length;
  if (dp !== grid.rows)
    refuse(
      `The mesh has ${dp} data-parallel consumers and the grid ${grid.rows} rows; a plan is made for one consumer per row. Set mesh.dp to ${grid.rows}: readers may still use any other dp.`,
    );
}
