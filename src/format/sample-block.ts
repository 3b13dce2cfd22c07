/**
 * Sample blocks: what a source log holds. A block is a batch of one row and two chunks: chunk 0 is a table of its samples, chunk 1 the samples
 * themselves, one after another. Who plans reads tables alone, and then the bytes of the samples it chose.
 */
import { BatchWeaveError } from "../errors.js";
import { crc32 } from "./crc.js";
import { type Dtype, decodeSafetensors, encodeSafetensors, type Tensor, tensorValues } from "./safetensors.js";
import { corrupt } from "./shape.js";

/** `contentType` of the batches of a source log. */
export const sampleBlockType = "application/vnd.batchweave.samples";

/** Samples of a block at most, and bytes of all of them: what a table can say. */
const blockSamplesMax = 1_048_576;
const blockBytesMax = 0xffff_ffff;

/** What is known of a sample without its bytes. */
export interface SampleSummary {
  /** The source's own name for it. */
  readonly id: string;
  readonly tokens: number;
  /** Patches of each of its images. */
  readonly images?: readonly number[] | undefined;
  /** Numbers for cost functions. */
  readonly features?: Readonly<Record<string, number>> | undefined;
}

/** A sample on its way into a block. */
export interface BlockSample extends SampleSummary {
  readonly bytes: Uint8Array;
}

/** A row of a table: where a sample's bytes lie in chunk 1, and their checksum. */
export interface SampleEntry extends SampleSummary {
  readonly offset: number;
  readonly length: number;
  readonly crc: number;
}

/** The table of a block. */
export interface SampleTable {
  readonly source: string;
  readonly samples: readonly SampleEntry[];
  /** What its writer left out before a sample, or behind the last (index = number of samples): by sample, as JSON. */
  readonly faults: readonly (readonly [sample: number, fault: unknown])[];
}

const featurePrefix = "feature/";

/** Encodes a block: chunk 0 and chunk 1. */
export function encodeSampleBlock(
  source: string,
  samples: readonly BlockSample[],
  faults: SampleTable["faults"] = [],
): { readonly table: Uint8Array; readonly payload: Uint8Array } {
  const bytes = samples.reduce((sum, sample) => sum + sample.bytes.length, 0);
  if (samples.length > blockSamplesMax || bytes > blockBytesMax) {
    throw new BatchWeaveError(
      "LIMIT",
      `A block holds at most ${blockSamplesMax} samples and ${blockBytesMax} bytes, not ${samples.length} with ${bytes}. Write smaller blocks.`,
      { samples: samples.length, bytes },
    );
  }
  samples.forEach(assertSummary);
  const column = (of: (sample: BlockSample) => number): Tensor => u32(samples.map(of));
  const ids = samples.map(({ id }) => Buffer.from(id));
  const text = Buffer.concat(ids);
  const tensors: Record<string, Tensor> = {
    length: column((sample) => sample.bytes.length),
    crc: column((sample) => crc32(sample.bytes)),
    tokens: column((sample) => sample.tokens),
    id_length: u32(ids.map(({ length }) => length)),
    ids: { dtype: "U8", shape: [text.length], data: text },
  };
  if (samples.some(({ images }) => images !== undefined)) {
    tensors["image_count"] = column(({ images }) => images?.length ?? 0);
    tensors["images"] = u32(samples.flatMap(({ images }) => images ?? []));
  }
  for (const name of new Set(samples.flatMap(({ features }) => Object.keys(features ?? {}))))
    tensors[`${featurePrefix}${name}`] = {
      dtype: "F64",
      shape: [samples.length],
      // A sample without the feature has no number.
      data: Float64Array.from(samples, ({ features }) => features?.[name] ?? Number.NaN),
    };
  const payload = Buffer.concat(
    samples.map((sample) => sample.bytes),
    bytes,
  );
  const metadata = { source, ...(faults.length > 0 ? { faults: JSON.stringify(faults) } : {}) };
  return { table: encodeSafetensors(tensors, metadata), payload };
}

function u32(values: readonly number[]): Tensor {
  return { dtype: "U32", shape: [values.length], data: Uint32Array.from(values) };
}

function assertSummary({ id, tokens, images, features }: SampleSummary): void {
  const small = (n: unknown): boolean => Number.isInteger(n) && (n as number) >= 0 && (n as number) <= 0xffff_ffff;
  const numbers = Object.values(features ?? {});
  if (
    typeof id === "string" &&
    small(tokens) &&
    (images ?? []).every(small) &&
    numbers.every((n) => typeof n === "number" && Number.isFinite(n))
  )
    return;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    "A sample of a block needs an id (text), tokens and patches of images (whole numbers below 2^32) and features (finite numbers).",
    { id, tokens, images, features },
  );
}

/** Decodes the table of a block whose chunk 1 has `payloadBytes`. */
export function decodeSampleTable(bytes: Uint8Array, payloadBytes: number, where: string): SampleTable {
  const { tensors, metadata } = decodeSafetensors(bytes, where);
  const { source } = metadata;
  if (source === undefined) return corrupt(where, "its table names no source");
  const list = (name: string, dtype: Dtype): ArrayLike<number> => {
    const tensor = tensors.get(name);
    if (tensor?.dtype !== dtype || tensor.shape.length !== 1)
      return corrupt(where, `its table has no column ${name} of ${dtype}`);
    return tensorValues(tensor) as unknown as ArrayLike<number>;
  };
  const lengths = list("length", "U32");
  const count = lengths.length;
  const column = (name: string, dtype: Dtype = "U32"): ArrayLike<number> => {
    const values = list(name, dtype);
    return values.length === count ? values : corrupt(where, `column ${name} has not ${count} entries`);
  };
  const [crcs, tokens] = [column("crc"), column("tokens")];
  const ids = cut(column("id_length"), list("ids", "U8"), where, "ids").map((id) => textOf(id as Uint8Array, where));
  const images = tensors.has("image_count")
    ? cut(column("image_count"), list("images", "U32"), where, "images")
    : undefined;
  const features = [...tensors.keys()]
    .filter((name) => name.startsWith(featurePrefix))
    .map((name) => [name.slice(featurePrefix.length), column(name, "F64")] as const);
  let offset = 0;
  const samples = Array.from({ length: count }, (_, i): SampleEntry => {
    const [length, of] = [lengths[i] as number, images?.[i]];
    const own = features.flatMap(([name, values]) => (Number.isNaN(values[i]) ? [] : [[name, values[i] as number]]));
    offset += length;
    return {
      id: ids[i] as string,
      tokens: tokens[i] as number,
      ...(of && of.length > 0 ? { images: Array.from(of) } : {}),
      ...(own.length > 0 ? { features: Object.fromEntries(own) as Record<string, number> } : {}),
      offset: offset - length,
      length,
      crc: crcs[i] as number,
    };
  });
  if (offset !== payloadBytes) corrupt(where, `its samples take ${offset} bytes and its payload has ${payloadBytes}`);
  return { source, samples, faults: faultsOf(metadata["faults"], count, where) };
}

function faultsOf(text: string | undefined, count: number, where: string): SampleTable["faults"] {
  if (text === undefined) return [];
  const isPlace = (at: unknown): boolean => Number.isInteger(at) && (at as number) >= 0 && (at as number) <= count;
  const list = parseJson(text);
  if (!Array.isArray(list) || !list.every((pair) => Array.isArray(pair) && pair.length === 2 && isPlace(pair[0])))
    return corrupt(where, "the faults in its table are not a list of [sample, fault]");
  return list as SampleTable["faults"];
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Cuts a flat column into pieces of the given lengths, which must take all of it. */
function cut(
  lengths: ArrayLike<number>,
  values: ArrayLike<number>,
  where: string,
  name: string,
): readonly ArrayLike<number>[] {
  const flat = values as Uint8Array | Uint32Array;
  let at = 0;
  const pieces = Array.from(lengths, (length) => {
    at += length;
    return flat.subarray(at - length, at);
  });
  return at === flat.length ? pieces : corrupt(where, `column ${name} has ${flat.length} entries, not ${at}`);
}

function textOf(bytes: Uint8Array, where: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return corrupt(where, "an id in its table is not UTF-8");
  }
}

/** The bytes of a sample, checked against its row of the table. */
export function checkSample(bytes: Uint8Array, entry: SampleEntry, where: string): Uint8Array {
  if (bytes.length !== entry.length)
    return corrupt(where, `sample ${JSON.stringify(entry.id)} has ${bytes.length} bytes, not ${entry.length}`);
  const found = crc32(bytes);
  if (found === entry.crc) return bytes;
  return corrupt(where, `sample ${JSON.stringify(entry.id)} does not match its checksum`, {
    expected: entry.crc,
    found,
    offset: entry.offset,
  });
}
