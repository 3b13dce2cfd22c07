/** Reads slices: footers first (cached), then as few ranges as possible; every byte is checked before a rank sees it. */
import { BatchWeaveError, isBatchWeaveError } from "../errors.js";
import { Gate } from "../flow/index.js";
import {
  batchKey,
  checkSlice,
  corrupt,
  decodeFooter,
  decodeSlice,
  type Extent,
  type Footer,
  type Manifest,
  openSealed,
  type SliceEntry,
  type Step,
  sealBytes,
  sealedCode,
  sliceEncodings,
} from "../format/index.js";
import type { BatchPlace, Log } from "../log/index.js";
import type { Cell } from "./projection.js";
import { planRanges, type RangeRead } from "./range-plan.js";
import type { Slice } from "./share.js";

/** Limits of a reader. */
export interface ReaderSettings {
  readonly readsInFlightMax: number;
  /** Footers kept in memory, in bytes. */
  readonly footerBytesMax: number;
}

/** How a read is carried out: the lower the priority number, the sooner. */
interface ReadOptions {
  readonly priority: number;
  readonly signal?: AbortSignal | undefined;
}

/** A wanted slice: `at` is the position in the list of wanted cells, `cell` the one in its batch. */
interface WantedSlice {
  readonly at: number;
  readonly cell: number;
  readonly entry: SliceEntry;
}

/** Wanted slices of one object. */
interface ObjectPart {
  readonly place: BatchPlace;
  readonly key: string;
  readonly wanted: readonly WantedSlice[];
  readonly ranges: readonly RangeRead[];
}

/** Slices whose places are known and whose bytes are not read yet. */
interface PreparedRead {
  readonly cells: readonly Cell[];
  readonly parts: readonly ObjectPart[];
  /** Memory that reading will take. */
  readonly bytes: number;
}

/** One object of a batch and the cells it holds. */
interface ExtentPart {
  readonly number: number;
  readonly extent: Extent;
  readonly firstCell: number;
}

/** What a kept footer takes beside its bytes: two keys, a promise, buffers and their owners. Measured as 1.4 KB of heap and 1.8 KB of the process. */
const footerOverheadBytes = 2_048;
const shortReadsMax = 4;
const shortReadDelayMs = 25;

/** Reads the slices of one namespace for one consumer. */
export class SliceReader {
  readonly #log: Log;
  readonly #gate: Gate;
  readonly #footerBytesMax: number;
  /** In order of last use, oldest first. */
  readonly #footers = new Map<string, { readonly bytes: number; readonly footer: Promise<Footer> }>();
  #footerBytes = 0;

  constructor(log: Log, settings: ReaderSettings) {
    this.#log = log;
    this.#gate = new Gate(settings.readsInFlightMax);
    this.#footerBytesMax = settings.footerBytesMax;
  }

  /** Finds out where the cells are: descriptors from the log, slice tables from the objects. */
  async prepare(manifest: Manifest, cells: readonly Cell[], options: ReadOptions): Promise<PreparedRead> {
    const bySteps = groupByStep(cells);
    const parts = await Promise.all(
      [...bySteps].map(([step, positions]) => this.#prepareStep(manifest, step, cells, positions, options)),
    );
    const flat = parts.flat();
    return { cells, parts: flat, bytes: flat.reduce((sum, part) => sum + memoryOf(part), 0) };
  }

  /** Reads what was prepared, in the order of its cells. */
  async fetch(prepared: PreparedRead, options: ReadOptions): Promise<Slice[]> {
    const slices = new Array<Slice>(prepared.cells.length);
    const reads = prepared.parts.flatMap((part) => part.ranges.map((range) => ({ part, range })));
    await Promise.all(
      reads.map(async ({ part, range }) => {
        const found = await this.#readChecked(part.place, part.key, range, options, (bytes) =>
          cutSlices(bytes, part, range),
        );
        for (const { at, bytes } of found) {
          const { step, row, chunk } = prepared.cells[at] as Cell;
          slices[at] = { step, row, chunk, bytes };
        }
      }),
    );
    return slices;
  }

  /**
   * Reads parts of the one slice that was prepared, without checking them: the caller, which knows what they must be, does. A slice that is stored encoded is
   * read whole and cut.
   */
  async fetchParts(
    prepared: PreparedRead,
    parts: readonly { readonly offset: number; readonly length: number }[],
    options: ReadOptions,
  ): Promise<Uint8Array[]> {
    const [{ place, key, wanted }] = prepared.parts as readonly [ObjectPart];
    const { entry } = wanted[0] as WantedSlice;
    if (sliceEncodings[entry.encoding] === "zstd") {
      const [slice] = await this.fetch(prepared, options);
      return parts.map(({ offset, length }) => (slice as Slice).bytes.subarray(offset, offset + length));
    }
    for (const { offset, length } of parts)
      if (offset + length > entry.rawLength)
        corrupt(key, `bytes ${offset} to ${offset + length} of a slice of ${entry.rawLength} are wanted`);
    return await Promise.all(
      parts.map(({ offset, length }) =>
        this.#readWhole(place, key, { offset: entry.offset + offset, length }, options),
      ),
    );
  }

  async #prepareStep(
    manifest: Manifest,
    step: Step,
    cells: readonly Cell[],
    positions: readonly number[],
    options: ReadOptions,
  ): Promise<ObjectPart[]> {
    const place = await this.#log.locate(manifest, step, { signal: options.signal });
    const { chunks } = this.#log.spec.grid;
    const byExtent = new Map<number, { part: ExtentPart; wanted: { at: number; cell: number }[] }>();
    for (const at of positions) {
      const { row, chunk } = cells[at] as Cell;
      const cell = row * chunks + chunk;
      const part = extentOf(place, cell);
      const group = byExtent.get(part.number) ?? { part, wanted: [] };
      byExtent.set(part.number, group);
      group.wanted.push({ at, cell });
    }
    const groups = [...byExtent.values()];
    const { stride } = place.descriptor;
    // Where the descriptor says where sealed slices are, no rank reads the table.
    const footers =
      stride === undefined
        ? await Promise.all(groups.map(({ part }) => this.#footer(place, part, options)))
        : groups.map(({ part }) => sealedFooter(stride, part.extent));
    return groups.map(({ part, wanted }, i): ObjectPart => {
      const footer = footers[i] as Pick<Footer, "entry">;
      const entries = wanted.map(({ at, cell }) => ({ at, cell, entry: footer.entry(cell - part.firstCell) }));
      const ranges = planRanges(entries.map(({ entry }) => entry));
      return { place, key: batchKey(place.descriptor, part.number), wanted: entries, ranges };
    });
  }

  /** One range read per object, shared by all iterations that want it and kept for the iterations that follow. */
  async #footer(place: BatchPlace, part: ExtentPart, options: ReadOptions): Promise<Footer> {
    const cacheKey = `${place.namespace}/${batchKey(place.descriptor, part.number)}`;
    const cached = this.#footers.get(cacheKey);
    if (cached) {
      this.#footers.delete(cacheKey);
      this.#footers.set(cacheKey, cached);
      try {
        return await cached.footer;
      } catch (error) {
        // The read of another iteration failed, perhaps only because it was cancelled.
        options.signal?.throwIfAborted();
        if (this.#footers.get(cacheKey) === cached) throw error;
      }
    }
    const bytes = part.extent.size - part.extent.table + footerOverheadBytes;
    const entry = { bytes, footer: this.#readFooter(place, part, options) };
    this.#keepFooter(cacheKey, entry);
    try {
      return await entry.footer;
    } catch (error) {
      this.#dropFooter(cacheKey, entry);
      throw error;
    }
  }

  #readFooter(place: BatchPlace, part: ExtentPart, options: ReadOptions): Promise<Footer> {
    const { extent, number, firstCell } = part;
    const key = batchKey(place.descriptor, number);
    const range = { offset: extent.table, length: extent.size - extent.table };
    return this.#readChecked(place, key, range, options, (bytes) =>
      decodeFooter(bytes, key, place.namespace, place.descriptor, { extent: number, firstCell }, extent),
    );
  }

  #keepFooter(key: string, entry: { bytes: number; footer: Promise<Footer> }): void {
    const before = this.#footers.get(key);
    if (before) this.#dropFooter(key, before);
    this.#footers.set(key, entry);
    this.#footerBytes += entry.bytes;
    for (const [oldest, { bytes }] of this.#footers) {
      if (this.#footerBytes <= this.#footerBytesMax || oldest === key) break;
      this.#footers.delete(oldest);
      this.#footerBytes -= bytes;
    }
  }

  #dropFooter(key: string, entry: { bytes: number; footer: Promise<Footer> }): void {
    if (this.#footers.get(key)?.footer !== entry.footer) return;
    this.#footers.delete(key);
    this.#footerBytes -= entry.bytes;
  }

  /** Reads a range and checks it. Bytes can also be damaged on their way: one more read before the object is called corrupt. */
  async #readChecked<T>(
    place: BatchPlace,
    key: string,
    range: { readonly offset: number; readonly length: number },
    options: ReadOptions,
    check: (bytes: Uint8Array) => T,
  ): Promise<T> {
    for (let isSecond = false; ; isSecond = true) {
      const bytes = await this.#readWhole(place, key, range, options);
      try {
        return check(bytes);
      } catch (error) {
        if (isSecond || !isBatchWeaveError(error, "CORRUPT")) throw error;
      }
    }
  }

  /** Reads exactly the range. A transfer that ended early is tried again; an object that ends early is corrupt. */
  async #readWhole(
    place: BatchPlace,
    key: string,
    { offset, length }: { readonly offset: number; readonly length: number },
    { priority, signal }: ReadOptions,
  ): Promise<Uint8Array> {
    if (length === 0) return new Uint8Array(0);
    for (let attempt = 1; ; attempt++) {
      const read = (): Promise<Uint8Array | undefined> => {
        signal?.throwIfAborted();
        return place.store.getRange(key, offset, length, { signal });
      };
      const bytes = await this.#gate.pass(read, priority);
      if (!bytes) throw missingBatch(key, place);
      if (bytes.length === length) return bytes;
      if (attempt === shortReadsMax) {
        corrupt(key, `${length} bytes are expected at offset ${offset}, and only ${bytes.length} are there`, {
          offset,
          expected: length,
          found: bytes.length,
        });
      }
      await this.#log.env.sleep(shortReadDelayMs * 2 ** attempt * (0.5 + this.#log.env.random()), signal);
    }
  }
}

function groupByStep(cells: readonly Cell[]): Map<Step, number[]> {
  const groups = new Map<Step, number[]>();
  cells.forEach(({ step }, at) => {
    const group = groups.get(step);
    if (group) group.push(at);
    else groups.set(step, [at]);
  });
  return groups;
}

/** The object that holds a cell: extents follow each other in row-major order. */
function extentOf(place: BatchPlace, cell: number): ExtentPart {
  let firstCell = 0;
  for (const [number, extent] of place.descriptor.extents.entries()) {
    if (cell < firstCell + extent.cells) return { number, extent, firstCell };
    firstCell += extent.cells;
  }
  return corrupt(batchKey(place.descriptor, 0), `its extents hold ${firstCell} slices, and slice ${cell} is wanted`);
}

/** Entries of sealed slices of one length. Their checksums are beside them. */
function sealedFooter(stride: number, extent: Extent): Pick<Footer, "entry"> {
  return {
    entry: (i) => {
      const offset = i * stride;
      if (offset + stride > extent.table)
        corrupt("A descriptor", `slices of ${stride} bytes do not fit before its table`);
      return { offset, length: stride, rawLength: stride - sealBytes, encoding: sealedCode, crc: 0 };
    },
  };
}

/** Ranges are kept whole while slices point into them; what is decoded comes on top. */
function memoryOf(part: ObjectPart): number {
  const stored = part.ranges.reduce((sum, range) => sum + range.length, 0);
  return part.wanted.reduce(
    (sum, { entry }) => sum + (sliceEncodings[entry.encoding] === "zstd" ? entry.rawLength : 0),
    stored,
  );
}

function cutSlices(bytes: Uint8Array, part: ObjectPart, range: RangeRead): { at: number; bytes: Uint8Array }[] {
  return range.wanted.map((i) => {
    const { at, cell, entry } = part.wanted[i] as WantedSlice;
    const start = entry.offset - range.offset;
    const stored = bytes.subarray(start, start + entry.length);
    const { descriptor, namespace } = part.place;
    if (descriptor.stride !== undefined)
      return { at, bytes: openSealed(stored, part.key, namespace, descriptor, cell) };
    checkSlice(stored, part.key, entry);
    return { at, bytes: decodeSlice(stored, part.key, entry) };
  });
}

function missingBatch(key: string, place: BatchPlace): BatchWeaveError {
  return new BatchWeaveError(
    "MISSING_OBJECT",
    `${key} is in the log and not in ${place.store.uri}. Nothing may delete batches but the reclaimer: restore it from a replica or a backup, and run \`batchweave verify\`.`,
    { key, uri: place.store.uri },
  );
}
