/** One batch on its way to the store: encoded once, uploaded under a name of its own, and again under another if it must. */
import { BatchWeaveError } from "../errors.js";
import {
  asSeq,
  type BatchMetadata,
  batchKey,
  type Descriptor,
  type EncodedExtent,
  type Extent,
  encodeExtent,
  encodeSlice,
  extentsMax,
  type Grid,
  type SliceEncoding,
  type StoredSlice,
  sealSlices,
  type Version,
} from "../format/index.js";
import type { Holder, Log } from "../log/index.js";
import { assertSlice, assertSliceCount } from "./batch-input.js";
import { fingerprint } from "./fingerprint.js";
import { newestBase, uploadBase } from "./upload-base.js";

/** What a batch carries besides its slices. */
interface BatchContent {
  readonly metadata: BatchMetadata;
  readonly lineage?: Uint8Array | undefined;
  readonly encoding: SliceEncoding;
}

/** A batch from acceptance to acknowledgement. */
export class Upload {
  readonly seq: number;
  readonly #log: Log;
  readonly #holder: Holder;
  readonly #content: BatchContent;
  readonly #extentBytesMax: number;
  /** Kept until the batch was seen committed; undefined for streamed batches, which are larger than memory. */
  #extents: EncodedExtent[] | undefined = [];
  /** The slices as they were accepted: whether they still are what they were is asked after every upload. */
  #held: readonly { readonly bytes: Uint8Array; readonly fingerprint: number }[] = [];
  /** What each slice takes in its object, where all are sealed. */
  #stride: number | undefined;
  #attempt = 0;
  descriptor: Descriptor | undefined;

  constructor(log: Log, holder: Holder, seq: number, content: BatchContent, extentBytesMax: number) {
    this.seq = seq;
    this.#log = log;
    this.#holder = holder;
    this.#content = content;
    this.#extentBytesMax = extentBytesMax;
  }

  /** Takes slices that are all in memory, and refuses what cannot be stored. */
  hold(slices: readonly Uint8Array[]): void {
    const encoded = slices.map((slice) => encodeSlice(slice, this.#content.encoding));
    const { uuid, format } = this.#log.spec;
    // Readers of format 1 do not know sealed slices.
    const { slices: stored, stride } =
      format === 1 ? { slices: encoded, stride: undefined } : sealSlices(uuid, this.#name(), encoded);
    this.#stride = stride;
    const runs = splitRuns(stored, this.#extentBytesMax);
    assertExtentCount(runs.length);
    let firstCell = 0;
    // Checksums now, not when the upload begins: whatever the caller does with the buffers meanwhile, other bytes never pass for accepted ones.
    this.#extents = runs.map((run, extent) => {
      const encoded = this.#encodeExtent(run, extent, firstCell, extent === runs.length - 1);
      firstCell += run.length;
      return encoded;
    });
    this.#held = stored.map(({ bytes }) => ({ bytes, fingerprint: fingerprint(bytes) }));
  }

  /**
   * A buffer that was filled again before its upload was over may have been stored half old, half new: such a batch is not committed. What the
   * fingerprint misses does not match its checksum, and is refused by its readers.
   */
  #assertUnchanged(): void {
    const changed = this.#held.findIndex((slice) => fingerprint(slice.bytes) !== slice.fingerprint);
    if (changed < 0) return;
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `Slice ${changed} of batch ${this.seq} was changed after it was appended and before it was committed; nothing of the batch is in the log. Give every append buffers of its own, or await the ticket's \`committed\` before using them again.`,
      { slice: changed, seq: this.seq, producer: this.#holder.producer },
    );
  }

  /** Uploads, or uploads again under a new name: the same bytes, the newest base. */
  async send(signal: AbortSignal): Promise<Descriptor> {
    const extents = this.#extents;
    if (!extents || extents.length === 0) throw this.expired();
    // What expired once was uploaded on an old base; it must not happen again.
    const name = this.#nextName(this.#attempt === 0 ? uploadBase(this.#log) : await newestBase(this.#log, signal));
    await Promise.all(
      extents.map((extent, i) => this.#log.store.put(batchKey(name, i), extent.body, { signal, unknownKey: true })),
    );
    this.#assertUnchanged();
    const stride = this.#stride === undefined ? {} : { stride: this.#stride };
    this.descriptor = { ...name, extents: extents.map((e) => e.entry), ...stride };
    return this.descriptor;
  }

  /** Uploads a batch that is larger than memory, extent by extent, while it is being made. */
  async sendStream(slices: AsyncIterable<Uint8Array>, grid: Grid, signal: AbortSignal): Promise<Descriptor> {
    this.#extents = undefined;
    const name = this.#nextName(await newestBase(this.#log, signal));
    const cells = grid.rows * grid.chunks;
    const entries: Extent[] = [];
    let run: StoredSlice[] = [];
    let runBytes = 0;
    let count = 0;
    const flush = async (last: boolean): Promise<void> => {
      const encoded = this.#encodeExtent(run, entries.length, count - run.length, last);
      await this.#log.store.put(batchKey(name, entries.length), encoded.body, { signal, unknownKey: true });
      entries.push(encoded.entry);
      run = [];
      runBytes = 0;
    };
    for await (const slice of slices) {
      signal.throwIfAborted();
      assertSlice(slice, count);
      if (count === cells) assertSliceCount(cells + 1, grid);
      if (run.length > 0 && runBytes + slice.length > this.#extentBytesMax) await flush(false);
      const stored = encodeSlice(slice, this.#content.encoding);
      // A generator may fill the same buffer again for its next slice.
      run.push(stored.bytes.buffer === slice.buffer ? { ...stored, bytes: new Uint8Array(slice) } : stored);
      runBytes += slice.length;
      count++;
    }
    assertSliceCount(count, grid);
    await flush(true);
    this.descriptor = { ...name, extents: entries };
    return this.descriptor;
  }

  /** Lets go of the bytes: the batch was seen committed. */
  release(): void {
    this.#extents = undefined;
    this.#held = [];
  }

  expired(): BatchWeaveError {
    return new BatchWeaveError(
      "UPLOAD_EXPIRED",
      `Batch ${this.seq} of ${this.#holder.producer} was uploaded so slowly that a reclaim passed it, and a streamed batch is not kept in memory. Open the producer again and continue from its resume point; a longer grace for reclaim avoids this.`,
      { producer: this.#holder.producer, seq: this.seq },
    );
  }

  #nextName(base: Version): Omit<Descriptor, "extents"> {
    const { producer, epoch, incarnation } = this.#holder;
    return {
      producer,
      epoch: epoch as Descriptor["epoch"],
      incarnation,
      seq: asSeq(this.seq),
      base,
      attempt: this.#attempt++,
    };
  }

  /** Whose the bytes are. They do not depend on where they are uploaded. */
  #name(): Omit<Descriptor, "extents"> {
    const { producer, epoch, incarnation } = this.#holder;
    const [attempt, base] = [0, 0 as Descriptor["base"]];
    return { producer, epoch: epoch as Descriptor["epoch"], incarnation, seq: asSeq(this.seq), attempt, base };
  }

  #encodeExtent(run: readonly StoredSlice[], extent: number, firstCell: number, last: boolean): EncodedExtent {
    assertExtentCount(extent + 1);
    // The resume point and the lineage are the whole batch's: they go with its last extent.
    const { metadata, lineage } = this.#content;
    return encodeExtent(
      this.#log.spec.uuid,
      this.#name(),
      { extent, firstCell },
      run,
      last ? metadata : {},
      last ? lineage : undefined,
    );
  }
}

function assertExtentCount(extents: number): void {
  if (extents <= extentsMax) return;
  throw new BatchWeaveError("LIMIT", `A batch can have ${extentsMax} extents. Raise extentBytesMax.`, { extentsMax });
}

function splitRuns(slices: readonly StoredSlice[], bytesMax: number): StoredSlice[][] {
  const runs: StoredSlice[][] = [[]];
  let runBytes = 0;
  for (const slice of slices) {
    let run = runs.at(-1) as StoredSlice[];
    if (run.length > 0 && runBytes + slice.bytes.length > bytesMax) {
      run = [];
      runs.push(run);
      runBytes = 0;
    }
    run.push(slice);
    runBytes += slice.bytes.length;
  }
  return runs;
}
