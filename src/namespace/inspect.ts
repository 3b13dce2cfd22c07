/** Looking at single batches: what `ls`, `inspect` and `preview` show, as plain data. Reads only. */
import { type SlicePlace, StepReader } from "../consumer/index.js";
import { BatchWeaveError, shown } from "../errors.js";
import {
  asStep,
  type BatchMetadata,
  batchKey,
  type Descriptor,
  decodeFooter,
  decodeMetadata,
  type Grid,
  lifeFolder,
  type SliceEntry,
  sliceEncodings,
} from "../format/index.js";
import type { BatchPlace, Log } from "../log/index.js";
import type { CallOptions } from "../store/index.js";

/** What is known about one slice without reading it. */
export interface SliceInfo {
  readonly row: number;
  readonly chunk: number;
  readonly key: string;
  readonly offset: number;
  /** Stored bytes. */
  readonly storedBytes: number;
  /** Bytes after decoding. */
  readonly bytes: number;
  readonly encoding: string;
  readonly crc: number;
}

/** One batch of the log. */
export interface BatchListing {
  readonly step: number;
  readonly producer: string;
  readonly epoch: number;
  readonly seq: number;
  /** Sizes of its objects together. */
  readonly storedBytes: number;
  readonly objects: number;
  /** Set when an ancestor of this fork holds the objects. */
  readonly origin: string | undefined;
}

/** One batch in full. */
export interface BatchInfo extends BatchListing {
  readonly keys: readonly string[];
  readonly contentType: string;
  readonly createdMs: number | undefined;
  readonly resumePoint: unknown;
  readonly user: unknown;
  readonly slices: readonly SliceInfo[];
}

/** Batches of the log in order, `from` to `to` (exclusive), clipped to what is there. */
export async function* listBatches(
  log: Log,
  range: { readonly from?: number | undefined; readonly to?: number | undefined },
  options?: CallOptions,
): AsyncGenerator<BatchListing> {
  const manifest = await log.head.jump(options);
  const { trim, end } = manifest.steps;
  const to = Math.min(end, range.to ?? end);
  for (let step = Math.max(trim, range.from ?? trim); step < to; step++) {
    yield listingOf(log, step, await log.locate(manifest, asStep(step), options));
  }
}

function listingOf(log: Log, step: number, { descriptor, origin }: BatchPlace): BatchListing {
  return {
    step,
    producer: descriptor.producer,
    epoch: descriptor.epoch,
    seq: descriptor.seq,
    storedBytes: descriptor.extents.reduce((sum, extent) => sum + extent.size, 0),
    objects: descriptor.extents.length,
    origin: origin === undefined ? undefined : log.spec.fork?.origins[origin]?.uri,
  };
}

/** A key as people find it: below the namespace's uri, not below the folder of its life. */
export function keyInPlace(life: Parameters<typeof lifeFolder>[0], key: string): string {
  const folder = lifeFolder(life);
  return folder === "" ? key : `${folder}/${key}`;
}

function keyAtPlace(log: Log, { descriptor, origin }: BatchPlace, extent: number): string {
  return keyInPlace(log.spec.fork?.origins[origin ?? -1] ?? log.spec, batchKey(descriptor, extent));
}

/** Everything about the batch at a step except its slices' bytes. */
export async function inspectBatch(log: Log, step: number, options?: CallOptions): Promise<BatchInfo> {
  const place = await locate(log, step, options);
  const { descriptor } = place;
  const slices: SliceInfo[] = [];
  let metadata: BatchMetadata = {};
  let firstCell = 0;
  for (const [number, extent] of descriptor.extents.entries()) {
    const footer = await readFooter(place, number, firstCell, options);
    for (let i = 0; i < extent.cells; i++)
      slices.push(sliceOf(log.spec.grid, firstCell + i, keyAtPlace(log, place, number), footer.entry(i)));
    firstCell += extent.cells;
    // What belongs to the whole batch is kept with its last extent.
    if (number === descriptor.extents.length - 1) metadata = await footer.metadata();
  }
  return {
    ...listingOf(log, step, place),
    keys: descriptor.extents.map((_, number) => keyAtPlace(log, place, number)),
    contentType: metadata.contentType ?? "application/octet-stream",
    createdMs: typeof metadata["created"] === "number" ? metadata["created"] : undefined,
    resumePoint: metadata.resumePoint,
    user: metadata.user,
    slices,
  };
}

async function locate(log: Log, step: number, options?: CallOptions): Promise<BatchPlace> {
  if (!Number.isSafeInteger(step) || step < 0) {
    throw new BatchWeaveError("INVALID_ARGUMENT", `A step is a whole number from 0 on, not ${shown(step)}.`, { step });
  }
  return await log.locate(await log.head.jump(options), asStep(step), options);
}

interface OpenFooter {
  entry(i: number): SliceEntry;
  metadata(): Promise<BatchMetadata>;
}

async function readFooter(
  { descriptor, store, namespace }: BatchPlace,
  number: number,
  firstCell: number,
  options?: CallOptions,
): Promise<OpenFooter> {
  const extent = descriptor.extents[number] as Descriptor["extents"][number];
  const key = batchKey(descriptor, number);
  const read = async (start: number, length: number): Promise<Uint8Array> => {
    const bytes = await store.getRange(key, start, length, options);
    if (bytes) return bytes;
    throw new BatchWeaveError("MISSING_OBJECT", `${key} is in the log and not in ${store.uri}. Restore it.`, { key });
  };
  const bytes = await read(extent.table, extent.size - extent.table);
  const footer = decodeFooter(bytes, key, namespace, descriptor, { extent: number, firstCell }, extent);
  const { metadata: block } = footer;
  return {
    entry: (i) => footer.entry(i),
    metadata: async () => decodeMetadata(await read(block.offset, block.length), key, block),
  };
}

function sliceOf(grid: Grid, cell: number, key: string, entry: SliceEntry): SliceInfo {
  return {
    row: Math.floor(cell / grid.chunks),
    chunk: cell % grid.chunks,
    key,
    offset: entry.offset,
    storedBytes: entry.length,
    bytes: entry.rawLength,
    encoding: sliceEncodings[entry.encoding] ?? `code ${entry.encoding}`,
    crc: entry.crc,
  };
}

/** The bytes of one slice, checked and decoded. */
export async function readSlice(
  log: Log,
  { step, row, chunk }: SlicePlace,
  options: CallOptions = {},
): Promise<Uint8Array> {
  const { rows, chunks } = log.spec.grid;
  const inside = (n: number, size: number): boolean => Number.isSafeInteger(n) && n >= 0 && n < size;
  if (!inside(row, rows) || !inside(chunk, chunks)) {
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `There is no slice ${row},${chunk}: rows go from 0 to ${rows - 1} and chunks from 0 to ${chunks - 1}.`,
      { row, chunk, rows, chunks },
    );
  }
  await locate(log, step, options);
  return await new StepReader(log).slice({ step, row, chunk }, options);
}
