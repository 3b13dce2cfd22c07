/** The producer: buffer -> encode -> put -> stage -> commit, exactly once. */

import { setMaxListeners } from "node:events";
import type { Opening, Outbox, Publisher } from "../cadence/index.js";
import { onAbort } from "../env/index.js";
import { BatchWeaveError } from "../errors.js";
import { type Descriptor, encodeLineage, type LineageSample, type Manifest } from "../format/index.js";
import { type Holder, holds, type Log, seqInLog } from "../log/index.js";
import { assertBatch, type BatchSlices, checkResumePoint, flattenSlices } from "./batch-input.js";
import type { ProducerObserver } from "./producer-observer.js";
import { type ProducerLimits, type ProducerSettings, producerLimits } from "./producer-settings.js";
import { Upload } from "./upload.js";

/** What goes with a batch. */
export interface AppendOptions {
  /** The producer's own position after this batch: any JSON, durable with the batch, read back at the next open. */
  readonly resumePoint?: unknown;
  /** MIME type of the slices. Default `application/octet-stream`. */
  readonly contentType?: string | undefined;
  /** Anything JSON that the user wants to find with the batch. */
  readonly user?: unknown;
  /** Which samples the batch holds, for `inspect --samples` and `find`. */
  readonly lineage?: readonly LineageSample[] | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A batch that was accepted. */
export interface Ticket {
  readonly seq: number;
  /**
   * Resolves when the batch is in the log. Rejects when it is not known to be: open again to find out. Asking for it makes the producer look for
   * the batch soon after its commit is expected, which costs two or three requests; one whose tickets are not awaited looks at leisure.
   */
  readonly committed: Promise<{ readonly seq: number; readonly version: number }>;
}

interface Entry {
  readonly upload: Upload;
  readonly bytes: number;
  readonly acceptedAtMs: number;
  readonly resolve: (value: { seq: number; version: number }) => void;
  readonly reject: (error: unknown) => void;
  uploaded: boolean;
  isAwaited: boolean;
}

/** Longest time that appends keep the process busy in one go. */
const busyMsMax = 1;

/** Components of a producer. */
interface ProducerParts {
  readonly log: Log;
  readonly opening: Opening;
  readonly publisher: Publisher;
  readonly observer?: ProducerObserver | undefined;
  /** Resolves when one more batch may be accepted; `pending` are accepted and not yet in the log. `onWait`: it will take a while. */
  readonly gate?: Gate | undefined;
}

/** What a producer asks before it accepts a batch. */
type Gate = (
  pending: () => number,
  options: { readonly signal: AbortSignal; readonly onWait: () => void },
) => Promise<void>;

/** Writes batches for one producer id. A newer holder of the id fences this one. */
export class Producer implements AsyncDisposable {
  readonly id: string;
  readonly epoch: number;
  /** Position after the last committed batch, as the producer's previous holder left it; undefined for a new one. */
  readonly resumePoint: unknown;
  readonly #log: Log;
  readonly #holder: Holder;
  readonly #publisher: Publisher;
  readonly #observer: ProducerObserver;
  readonly #gate: Gate | undefined;
  readonly #settings: ProducerLimits;
  readonly #outbox: Outbox;
  readonly #entries = new Map<number, Entry>();
  readonly #stop = new AbortController();
  readonly #changed = new Set<() => void>();
  #running: Promise<void>;
  #nextSeq: number;
  #bufferedBytes = 0;
  #uploading = 0;
  /** Batches whose tickets are awaited. */
  #awaited = 0;
  #queue: Entry[] = [];
  #failure: { error: unknown; reported: boolean } | undefined;
  #closed = false;
  /** Time spent on checksums since others had their turn. */
  #busyMs = 0;
  #streaming: Promise<unknown> = Promise.resolve();
  /** One for all callers that wait: whether the publisher must hurry for it now. */
  readonly #hurries = new Set<() => boolean>();

  constructor(parts: ProducerParts, settings: ProducerSettings = {}) {
    this.#log = parts.log;
    this.#holder = parts.opening.holder;
    this.id = this.#holder.producer;
    this.epoch = this.#holder.epoch;
    this.resumePoint = parts.opening.resumePoint;
    this.#nextSeq = parts.opening.state.seq;
    this.#publisher = parts.publisher;
    // Uploads and look-ups in flight all listen to it; ten, where Node starts to warn of a leak, are nothing unusual.
    setMaxListeners(0, this.#stop.signal);
    this.#observer = parts.observer ?? {};
    this.#gate = parts.gate;
    this.#settings = producerLimits(settings);
    this.#outbox = this.#makeOutbox();
    this.#running = this.#publisher.run(this.#outbox, this.#stop.signal).catch((error) => this.#fail(error));
  }

  /** The seq the next batch gets; everything below was accepted (or committed before this producer was opened). */
  get nextSeq(): number {
    return this.#nextSeq;
  }

  /** Batches accepted and not yet known to be in the log. */
  get pendingBatches(): number {
    return this.#entries.size;
  }

  /**
   * Accepts one batch; awaiting it is backpressure. Slices in row-major order; an async iterable is uploaded as it comes, extent
   * by extent, and need not fit into memory. The buffers must not be changed until the ticket is committed: the producer fails
   * when it finds one filled again before its upload was over, and a rank that reads bytes that it did not find gets CORRUPT. Streamed slices are copied as they come.
   */
  async append(slices: BatchSlices, options: AppendOptions = {}): Promise<Ticket> {
    this.#throwIfDone();
    const content = {
      metadata: {
        contentType: options.contentType ?? "application/octet-stream",
        resumePoint: checkResumePoint(options.resumePoint),
        ...(options.user === undefined ? {} : { user: checkResumePoint(options.user) }),
        created: Math.floor(this.#log.env.now()),
      },
      lineage: options.lineage && encodeLineage(options.lineage),
      encoding: this.#settings.encoding,
    };
    assertBatch(slices);
    if (Symbol.asyncIterator in slices) return await this.#appendStream(slices, content, options.signal);
    const flat = flattenSlices(slices, this.#log.spec.grid);
    const bytes = flat.reduce((sum, slice) => sum + slice.length, 0);
    await this.#roomFor(bytes, options.signal);
    const upload = new Upload(this.#log, this.#holder, this.#nextSeq, content, this.#settings.extentBytesMax);
    const begun = this.#log.env.monotonic();
    upload.hold(flat);
    this.#busyMs += this.#log.env.monotonic() - begun;
    const { entry, ticket } = this.#accept(upload, bytes);
    this.#queue.push(entry);
    this.#pump();
    await this.#letOthers();
    return ticket;
  }

  /** Waits until everything accepted so far is in the log. */
  async flush(options: { signal?: AbortSignal | undefined } = {}): Promise<void> {
    const last = this.#nextSeq;
    // A commit before the last upload is done would only be one more.
    const hurry = (): boolean => this.#isUploaded(last);
    this.#hurries.add(hurry);
    try {
      while (this.#firstPending() < last) {
        this.#throwIfFailed();
        this.#nudge();
        await this.#change(options.signal);
      }
    } finally {
      this.#hurries.delete(hurry);
    }
    this.#throwIfFailed();
  }

  /** Flushes and stops. The producer id stays what it was; open it again to go on. */
  async close(options: { signal?: AbortSignal | undefined } = {}): Promise<void> {
    if (this.#closed) return;
    try {
      await this.flush(options);
    } finally {
      this.#closed = true;
      this.#observer.onEnd?.();
      this.#stop.abort(new BatchWeaveError("INVALID_ARGUMENT", `Producer ${this.id} is closed.`));
      await this.#running;
      if (!this.#failure) await this.#publisher.leave(this.#outbox);
    }
  }

  /** Why it has failed, and takes no more: what `append`, `flush` and `close` throw from then on. Undefined: it goes on. */
  get failure(): unknown {
    return this.#failure?.error;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // A failure that append, flush or close already threw must not hide the user's own exception.
    if (this.#failure?.reported) this.#closed = true;
    else await this.close();
  }

  #accept(upload: Upload, bytes: number): { entry: Entry; ticket: Ticket } {
    const seq = this.#nextSeq++;
    let settle!: Pick<Entry, "resolve" | "reject">;
    const committed = new Promise<{ seq: number; version: number }>((resolve, reject) => {
      settle = { resolve, reject };
    });
    // No caller has to look at a ticket; flush and append throw the failure too.
    committed.catch(() => {});
    const entry: Entry = {
      upload,
      bytes,
      acceptedAtMs: this.#log.env.monotonic(),
      ...settle,
      uploaded: false,
      isAwaited: false,
    };
    this.#entries.set(seq, entry);
    this.#bufferedBytes += bytes;
    this.#observer.onAccept?.({ seq, bytes });
    const beAwaited = (): void => this.#beAwaited(seq, entry);
    const ticket: Ticket = {
      seq,
      get committed() {
        beAwaited();
        return committed;
      },
    };
    return { entry, ticket };
  }

  async #appendStream(
    slices: AsyncIterable<Uint8Array>,
    content: ConstructorParameters<typeof Upload>[3],
    signal: AbortSignal | undefined,
  ): Promise<Ticket> {
    // One stream at a time: its seq is taken when it begins, and a failed stream takes none.
    const before = this.#streaming;
    let done!: () => void;
    this.#streaming = new Promise<void>((resolve) => {
      done = resolve;
    });
    try {
      await before;
      await this.#roomFor(0, signal);
      const upload = new Upload(this.#log, this.#holder, this.#nextSeq, content, this.#settings.extentBytesMax);
      const stop = signal ? AbortSignal.any([signal, this.#stop.signal]) : this.#stop.signal;
      const seq = this.#nextSeq;
      await upload.sendStream(slices, this.#log.spec.grid, stop);
      if (seq !== this.#nextSeq) {
        throw new BatchWeaveError(
          "INVALID_ARGUMENT",
          `Another batch was appended to ${this.id} while a streamed one was being made. Await each append before the next.`,
          { seq },
        );
      }
      const { entry, ticket } = this.#accept(upload, 0);
      entry.uploaded = true;
      this.#nudge();
      return ticket;
    } finally {
      done();
    }
  }

  async #roomFor(bytes: number, signal: AbortSignal | undefined): Promise<void> {
    await this.#passGate(signal);
    const { bufferedBytesMax, bufferedBatchesMax, uploadsInFlightMax } = this.#settings;
    // A caller that waits for room must not wait for a cadence that waits for more batches; while there are enough to upload, nothing stands still.
    const hurry = (): boolean => this.#queue.length < uploadsInFlightMax;
    this.#hurries.add(hurry);
    try {
      while (
        this.#entries.size > 0 &&
        (this.#bufferedBytes + bytes > bufferedBytesMax || this.#entries.size >= bufferedBatchesMax)
      ) {
        this.#nudge();
        await this.#change(signal);
        this.#throwIfDone();
      }
    } finally {
      this.#hurries.delete(hurry);
    }
  }

  /** Waits for the gate, which must not wait for batches that the cadence holds back. */
  async #passGate(signal: AbortSignal | undefined): Promise<void> {
    if (!this.#gate) return;
    const stop = signal ? AbortSignal.any([signal, this.#stop.signal]) : this.#stop.signal;
    const hurry = (): boolean => this.#isUploaded(this.#nextSeq);
    const onWait = (): void => {
      this.#hurries.add(hurry);
      this.#nudge();
    };
    try {
      await this.#gate(() => this.#entries.size, { signal: stop, onWait });
    } finally {
      this.#hurries.delete(hurry);
    }
    this.#throwIfDone();
  }

  #pump(): void {
    while (this.#uploading < this.#settings.uploadsInFlightMax) {
      const entry = this.#queue.shift();
      if (!entry) return;
      this.#uploading++;
      this.#send(entry)
        .catch((error) => this.#fail(error))
        .finally(() => {
          this.#uploading--;
          this.#pump();
        });
    }
  }

  async #send(entry: Entry): Promise<void> {
    const begun = this.#log.env.monotonic();
    const descriptor = await entry.upload.send(this.#stop.signal);
    entry.uploaded = true;
    this.#observer.onUpload?.({
      seq: descriptor.seq,
      bytes: entry.bytes,
      durationMs: this.#log.env.monotonic() - begun,
      attempt: descriptor.attempt,
    });
    this.#nudge();
  }

  /** Checksums keep the process busy: a caller that appends many batches at once must not keep the uploads before them waiting. */
  async #letOthers(): Promise<void> {
    if (this.#busyMs < busyMsMax) return;
    this.#busyMs = 0;
    await this.#log.env.sleep(0);
  }

  /** Something is pending, or a caller waits. Asked again after every upload and acknowledgement: it may be time to hurry only then. */
  #nudge(): void {
    this.#publisher.nudge([...this.#hurries].some((hurry) => hurry()));
  }

  /** A caller awaits a ticket. */
  #beAwaited(seq: number, entry: Entry): void {
    if (entry.isAwaited || !this.#entries.has(seq)) return;
    entry.isAwaited = true;
    this.#awaited++;
    if (entry.uploaded) this.#nudge();
  }

  /** Whether every batch below `seq` is uploaded. */
  #isUploaded(seq: number): boolean {
    for (const [at, { uploaded }] of this.#entries) {
      if (at >= seq) break;
      if (!uploaded) return false;
    }
    return true;
  }

  /** The first seq not yet known to be in the log. */
  #firstPending(): number {
    return this.#entries.keys().next().value ?? this.#nextSeq;
  }

  #makeOutbox(): Outbox {
    return {
      holder: this.#holder,
      pending: () => {
        const ready: Descriptor[] = [];
        // Map order is seq order: entries are inserted by seq and never inserted again.
        for (const entry of this.#entries.values()) {
          if (!entry.uploaded || !entry.upload.descriptor) break;
          ready.push(entry.upload.descriptor);
        }
        return ready;
      },
      isAwaited: () => {
        if (this.#awaited === 0) return false;
        for (const entry of this.#entries.values()) {
          if (!entry.uploaded) return false;
          if (entry.isAwaited) return true;
        }
        return false;
      },
      settle: (manifest) => this.#settle(manifest),
      expire: (batches) => {
        for (const { seq } of batches) {
          const entry = this.#entries.get(seq);
          if (!entry?.uploaded) continue;
          entry.uploaded = false;
          this.#queue.push(entry);
        }
        this.#pump();
      },
    };
  }

  /** Only a verified manifest in which this incarnation still holds the id acknowledges anything, and only one that survives power loss. */
  async #settle(manifest: Manifest): Promise<void> {
    const state = manifest.producers.get(this.id);
    // A look-alike from before our own opening proves nothing; staging will tell FENCED from the head.
    if (!state || !holds(state, this.#holder)) return;
    // What a closing dropped is not acknowledged: staging refuses it as CLOSED.
    const next = seqInLog(this.#log.spec, manifest, this.id, state.seq);
    if (this.#firstPending() >= next) return;
    await this.#log.head.keep(manifest, { signal: this.#stop.signal });
    for (const [seq, entry] of this.#entries) {
      if (seq >= next) break;
      this.#entries.delete(seq);
      this.#bufferedBytes -= entry.bytes;
      if (entry.isAwaited) this.#awaited--;
      entry.upload.release();
      entry.resolve({ seq, version: manifest.version });
      this.#observer.onCommit?.({
        seq,
        bytes: entry.bytes,
        latencyMs: this.#log.env.monotonic() - entry.acceptedAtMs,
        version: manifest.version,
      });
    }
    this.#wakeAll();
    if (this.#entries.size > 0 && this.#hurries.size > 0) this.#nudge();
  }

  #fail(error: unknown): void {
    if (this.#closed || this.#failure) return;
    this.#failure = { error, reported: false };
    this.#observer.onEnd?.();
    this.#stop.abort(error);
    for (const entry of this.#entries.values()) entry.reject(error);
    this.#wakeAll();
  }

  #change(signal: AbortSignal | undefined): Promise<void> {
    if (signal?.aborted) return Promise.reject(signal.reason);
    return new Promise((resolve, reject) => {
      const wake = (): void => {
        unlisten?.();
        resolve();
      };
      this.#changed.add(wake);
      const unlisten =
        signal &&
        onAbort(signal, () => {
          this.#changed.delete(wake);
          reject(signal.reason);
        });
    });
  }

  #wakeAll(): void {
    const waiting = [...this.#changed];
    this.#changed.clear();
    for (const wake of waiting) wake();
  }

  #throwIfFailed(): void {
    if (!this.#failure) return;
    this.#failure.reported = true;
    throw this.#failure.error;
  }

  #throwIfDone(): void {
    this.#throwIfFailed();
    if (this.#closed)
      throw new BatchWeaveError("INVALID_ARGUMENT", `Producer ${this.id} is closed. Open it again to append.`, {
        producer: this.id,
      });
  }
}
