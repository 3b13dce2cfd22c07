/** Looking at a namespace: what `info`, `ls`, `inspect` and `preview` show, as plain data. Reads only. */
import { SliceReader } from "./consumer/index.js";
import { type Env, systemEnv } from "./env/index.js";
import { BatchWeaveError, isBatchWeaveError } from "./errors.js";
import {
  asStep,
  type BatchMetadata,
  batchKey,
  type Descriptor,
  decodeFooter,
  decodeMetadata,
  decodeNamespace,
  decodeSafetensors,
  type Grid,
  type Manifest,
  namespaceKey,
  type Order,
  type SliceEntry,
  sliceEncodings,
  type Tensor,
  tensorValues,
} from "./format/index.js";
import { type LiveCheckpoint, liveCheckpoints } from "./lifecycle/index.js";
import { type BatchPlace, firstOwnStep, type Log } from "./log/index.js";
import { type CallOptions, type ObjectStore, openStore, type StoreSettings, withRetry } from "./store/index.js";

/** One producer as the newest manifest knows it. */
export interface ProducerInfo {
  readonly id: string;
  readonly epoch: number;
  /** The next seq: so many batches of this id are in the log. */
  readonly seq: number;
  /** Version of the manifest in which it last changed. */
  readonly version: number;
}

/** The state of a namespace, as `batchweave info` shows it. */
export interface NamespaceInfo {
  readonly uri: string;
  readonly uuid: string;
  readonly grid: Grid;
  readonly order: Order;
  /** Wall clock in ms. */
  readonly createdMs: number;
  readonly version: number;
  readonly closed: boolean;
  /** `[trim, end)` can be read. */
  readonly steps: { readonly trim: number; readonly end: number };
  readonly lastCommit: { readonly by: string; readonly timeMs: number };
  /** Producers that are inline in the manifest, the one that changed last first. */
  readonly producers: readonly ProducerInfo[];
  /** Sealed tables that hold the producers which have long been silent. */
  readonly silentTables: number;
  /** Lanes order: committed batches that wait for a missing step, and whose step that is. */
  readonly waiting: { readonly batches: number; readonly missingStep: number; readonly lane: string } | undefined;
  readonly checkpoints: readonly LiveCheckpoint[];
  readonly forks: readonly { readonly uri: string; readonly from: number; readonly to: number }[];
  readonly origins: readonly { readonly uri: string; readonly uuid: string; readonly steps: number }[];
  readonly boundary: number;
  readonly orphanCutoff: number;
}

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

/** A namespace that was found below a URI. `problem` is set when it cannot be read. */
export interface NamespaceListing {
  readonly uri: string;
  readonly uuid: string | undefined;
  readonly grid: Grid | undefined;
  readonly order: Order | undefined;
  readonly createdMs: number | undefined;
  readonly problem: string | undefined;
}

/** What a slice holds, for a person. */
export type SlicePreview =
  | {
      readonly kind: "tensors";
      readonly tensors: readonly TensorPreview[];
      readonly metadata: Readonly<Record<string, string>>;
    }
  | { readonly kind: "text"; readonly text: string; readonly truncated: boolean }
  | { readonly kind: "bytes"; readonly hex: string; readonly truncated: boolean };

/** One tensor of a slice: its shape, its first values, and its range. */
export interface TensorPreview {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: number;
  readonly first: readonly string[];
  readonly min: string | undefined;
  readonly max: string | undefined;
}

/** The content type that says a slice holds tensors. */
export const safetensorsType = "application/vnd.safetensors";

/** The state of a namespace at its head. */
export async function readInfo(uri: string, log: Log, options?: CallOptions): Promise<NamespaceInfo> {
  const manifest = await log.head.jump(options);
  const { spec } = log;
  return {
    uri,
    uuid: spec.uuid,
    grid: spec.grid,
    order: spec.order,
    createdMs: spec.created,
    version: manifest.version,
    closed: manifest.closed,
    steps: manifest.steps,
    lastCommit: { by: manifest.commit.by, timeMs: manifest.commit.time },
    producers: [...manifest.producers]
      .map(([id, state]) => ({ id, epoch: state.epoch, seq: state.seq, version: state.at }))
      .sort((a, b) => b.version - a.version || (a.id < b.id ? -1 : 1)),
    silentTables: manifest.tables.length,
    waiting: waitingOf(log, manifest),
    checkpoints: liveCheckpoints(manifest, spec.grid.rows),
    forks: [...manifest.pins.values()].map(({ uri: fork, from, to }) => ({ uri: fork, from, to })),
    origins: (spec.fork?.origins ?? []).map((origin) => ({
      uri: origin.uri,
      uuid: origin.uuid,
      steps: origin.ranges.reduce((sum, range) => sum + range.count, 0),
    })),
    boundary: log.head.boundary.newest.upTo,
    orphanCutoff: manifest.orphanCutoff,
  };
}

/** A log in lanes order that stands still: which lane everybody waits for. */
function waitingOf({ spec }: Log, manifest: Manifest): NamespaceInfo["waiting"] {
  if (spec.order.kind !== "lanes" || manifest.waiting.size === 0) return undefined;
  const { end } = manifest.steps;
  const lane = `lane-${(end - firstOwnStep(spec)) % spec.order.lanes}`;
  return { batches: manifest.waiting.size, missingStep: end, lane };
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

function listingOf(log: Log, step: number, { descriptor, store, namespace }: BatchPlace): BatchListing {
  return {
    step,
    producer: descriptor.producer,
    epoch: descriptor.epoch,
    seq: descriptor.seq,
    storedBytes: descriptor.extents.reduce((sum, extent) => sum + extent.size, 0),
    objects: descriptor.extents.length,
    origin: namespace === log.spec.uuid ? undefined : store.uri,
  };
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
      slices.push(sliceOf(log.spec.grid, firstCell + i, footer.key, footer.entry(i)));
    firstCell += extent.cells;
    // What belongs to the whole batch is kept with its last extent.
    if (number === descriptor.extents.length - 1) metadata = await footer.metadata();
  }
  return {
    ...listingOf(log, step, place),
    keys: descriptor.extents.map((_, number) => batchKey(descriptor, number)),
    contentType: metadata.contentType ?? "application/octet-stream",
    createdMs: typeof metadata["created"] === "number" ? metadata["created"] : undefined,
    resumePoint: metadata.resumePoint,
    user: metadata.user,
    slices,
  };
}

async function locate(log: Log, step: number, options?: CallOptions): Promise<BatchPlace> {
  if (!Number.isSafeInteger(step) || step < 0) {
    throw new BatchWeaveError("INVALID_ARGUMENT", `A step is a whole number from 0 on, not ${String(step)}.`, { step });
  }
  return await log.locate(await log.head.jump(options), asStep(step), options);
}

interface OpenFooter {
  readonly key: string;
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
    key,
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
  { step, row, chunk }: { readonly step: number; readonly row: number; readonly chunk: number },
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
  const manifest = await log.head.newest(options);
  const reader = new SliceReader(log, { readsInFlightMax: 1, footerBytesMax: 0 });
  const call = { priority: 0, signal: options.signal };
  const [slice] = await reader.fetch(await reader.prepare(manifest, [{ step: asStep(step), row, chunk }], call), call);
  return (slice as { bytes: Uint8Array }).bytes;
}

const previewBytesMax = 256;
const previewValuesMax = 8;
/** Elements looked at for the range of a tensor: a preview must be quick. */
const rangeElementsMax = 1_000_000;

/** What a slice holds: tensors when its content type says so, else text when it is text, else hex. */
export function previewSlice(bytes: Uint8Array, contentType: string, where: string): SlicePreview {
  if (contentType === safetensorsType) {
    const { tensors, metadata } = decodeSafetensors(bytes, where);
    return { kind: "tensors", tensors: [...tensors].map(([name, tensor]) => previewTensor(name, tensor)), metadata };
  }
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.length, previewBytesMax));
  const truncated = bytes.length > head.length;
  const text = head.toString("utf8");
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what tells binary from text.
  if (bytes.length > 0 && !/[\u0000-\u0008\u000e-\u001f\ufffd]/.test(text)) return { kind: "text", text, truncated };
  return { kind: "bytes", hex: head.toString("hex"), truncated };
}

function previewTensor(name: string, tensor: Tensor): TensorPreview {
  const values = tensorValues(tensor);
  let [min, max] = [values[0], values[0]];
  for (let i = 1; i < Math.min(values.length, rangeElementsMax); i++) {
    const value = values[i] as number | bigint;
    if (value < (min as number | bigint)) min = value;
    if (value > (max as number | bigint)) max = value;
  }
  return {
    name,
    dtype: tensor.dtype,
    shape: tensor.shape,
    bytes: tensor.data.byteLength,
    first: Array.from(values.subarray(0, previewValuesMax), String),
    min: min === undefined ? undefined : String(min),
    max: max === undefined ? undefined : String(max),
  };
}

/** Options of {@link listNamespaces}. */
export interface ListNamespacesOptions extends CallOptions {
  readonly env?: Env | undefined;
  readonly store?: ObjectStore | undefined;
  readonly storeSettings?: StoreSettings | undefined;
}

/** Keys inside a namespace. The last of its folders, `manifest/`, comes right before `namespace.json` in byte order. */
const insideNamespace =
  /^(.*?)(?:^|\/)(?:batch\/[0-9a-f]{2}\/\d{20}\/|(?:boundary|manifest)\/\d{20}\.json$|index\/\d{20}-|intent\/[0-9a-f]+\/)/;

/** Namespaces at or below a URI. Skips over their contents: two requests for each, however many objects it has. */
export async function* listNamespaces(
  uri: string,
  options: ListNamespacesOptions = {},
): AsyncGenerator<NamespaceListing> {
  const env = options.env ?? systemEnv;
  const store = options.store ?? withRetry(await openStore(uri, options.storeSettings, env), env);
  const { signal } = options;
  let startAfter = "";
  for (;;) {
    const page = await store.list("", { startAfter, signal, limit: 100 });
    let skipped = false;
    for (const { key } of page.objects) {
      startAfter = key;
      if (key === namespaceKey || key.endsWith(`/${namespaceKey}`)) {
        yield await readListing(uri, store, key, signal);
        continue;
      }
      const folder = insideNamespace.exec(key)?.[1];
      if (folder === undefined) continue;
      // "0" follows "/" in byte order, so this is behind everything in the folder and before namespace.json.
      startAfter = `${folder === "" ? "" : `${folder}/`}manifest0`;
      skipped = true;
      break;
    }
    if (!skipped && !page.more) return;
  }
}

async function readListing(
  uri: string,
  store: ObjectStore,
  key: string,
  signal: AbortSignal | undefined,
): Promise<NamespaceListing> {
  const folder = key.slice(0, -namespaceKey.length).replace(/\/$/, "");
  const at = folder === "" ? uri : `${uri.replace(/\/+$/, "")}/${folder}`;
  const unknown = { uri: at, uuid: undefined, grid: undefined, order: undefined, createdMs: undefined };
  try {
    const bytes = await store.get(key, { signal });
    if (!bytes) return { ...unknown, problem: "deleted while listing" };
    const { uuid, grid, order, created } = decodeNamespace(bytes, `${at}/${namespaceKey}`);
    return { uri: at, uuid, grid, order, createdMs: created, problem: undefined };
  } catch (error) {
    if (!isBatchWeaveError(error)) throw error;
    return { ...unknown, problem: error.message };
  }
}
