/**
 * Open shards and the windows read from them, shared by every lane of a process. Both are bounded whatever the number of sources: the shard
 * used longest ago is closed, the window used longest ago forgotten, and either is opened again when it is needed.
 */
import { BatchWeaveError } from "../../index.js";
import type { ShardAccess } from "./shard-bytes.js";
import type { ShardPart } from "./shard-part.js";
import type { ShardPlace, ShardReader, ShardWindow } from "./shard-reader.js";
import type { ResolvedSource } from "./source.js";

/** Limits of a {@link ShardPool}. */
export interface ShardPoolSettings {
  /** Shards open at a time at most. Default 512: one that is closed and opened again reads its footer and what it had read ahead once more. */
  readonly openShardsMax?: number | undefined;
  /** Bytes of windows, row groups and what was read ahead, kept at most (what is in use is always kept). Default 256 MiB. */
  readonly windowBytesMax?: number | undefined;
}

/** Bytes of windows and row groups a process keeps, where no option says. */
export const poolBytesDefault = 268_435_456;

interface OpenShard {
  readonly reader: Promise<ShardReader>;
  /** Reads of one shard come one at a time; closing waits for them. */
  last: Promise<unknown>;
  /** Bytes its reader keeps. */
  heldBytes: number;
}

interface HeldWindow {
  readonly window: Promise<ShardWindow>;
  bytes: number;
}

/** Readers and windows of one process. */
export class ShardPool implements AsyncDisposable {
  readonly #access: ShardAccess;
  readonly #openShardsMax: number;
  readonly #windowBytesMax: number;
  // Maps keep insertion order, and a use re-inserts: the first entry is the one used longest ago.
  readonly #shards = new Map<string, OpenShard>();
  readonly #windows = new Map<string, HeldWindow>();
  #windowBytes = 0;
  #closed = false;
  readonly #onRead: ((source: ResolvedSource, bytes: number) => void) | undefined;

  /** `onRead` is told of every read of a shard's bytes. */
  constructor(
    access: ShardAccess,
    settings: ShardPoolSettings = {},
    onRead?: ((source: ResolvedSource, bytes: number) => void) | undefined,
  ) {
    this.#access = access;
    this.#onRead = onRead;
    this.#openShardsMax = settings.openShardsMax ?? 512;
    this.#windowBytesMax = settings.windowBytesMax ?? poolBytesDefault;
  }

  /** What is held now. */
  get held(): { readonly shards: number; readonly windows: number; readonly windowBytes: number } {
    return { shards: this.#shards.size, windows: this.#windows.size, windowBytes: this.#windowBytes };
  }

  /** The window of a part of a shard at a place. A failure is not remembered: the next call tries again. */
  async window(
    source: ResolvedSource,
    part: ShardPart,
    place: ShardPlace | undefined,
    signal?: AbortSignal,
  ): Promise<ShardWindow> {
    const key = windowKey(source, part, place);
    const held = this.#windows.get(key);
    if (held) {
      this.#windows.delete(key);
      this.#windows.set(key, held);
      return await held.window;
    }
    // Others may wait for the same window, so one caller's abort must not fail it for them.
    const window = this.#read(source, part, place);
    const entry: HeldWindow = { window, bytes: 0 };
    this.#windows.set(key, entry);
    try {
      const { samples } = await window;
      entry.bytes = samples.reduce((sum, sample) => sum + sample.bytes, 1024);
      this.#windowBytes += entry.bytes;
      this.#forget();
      signal?.throwIfAborted();
      return await window;
    } catch (error) {
      if (this.#windows.get(key) === entry && entry.bytes === 0) this.#windows.delete(key);
      throw error;
    }
  }

  /** A reader that has used up a window which no other reads says so: memory is for what is still needed. */
  release(source: ResolvedSource, part: ShardPart, place: ShardPlace | undefined): void {
    const key = windowKey(source, part, place);
    const held = this.#windows.get(key);
    if (!held || held.bytes === 0) return;
    this.#windows.delete(key);
    this.#windowBytes -= held.bytes;
  }

  async #read(source: ResolvedSource, part: ShardPart, place: ShardPlace | undefined): Promise<ShardWindow> {
    const key = readerKey(source, part);
    const open = this.#open(key, source, part.shard);
    const window = open.last.then(async () => await (await open.reader).read(place, source.limits, part));
    open.last = window.catch(() => {});
    try {
      const read = await window;
      if (this.#shards.get(key) === open) {
        const { heldBytes = 0 } = await open.reader;
        this.#windowBytes += heldBytes - open.heldBytes;
        open.heldBytes = heldBytes;
      }
      return read;
    } catch (error) {
      if (this.#shards.get(key) === open) {
        this.#drop(key, open);
        await close(open);
      }
      throw error;
    }
  }

  #open(key: string, source: ResolvedSource, shard: number): OpenShard {
    const held = this.#shards.get(key);
    if (held) {
      this.#shards.delete(key);
      this.#shards.set(key, held);
      return held;
    }
    // Loaders read ahead in the background; what they ask for after the end must not stay open.
    if (this.#closed) throw new BatchWeaveError("CLOSED", "The pipeline was closed while its sources were read.");
    const access: ShardAccess = { ...this.#access, onRead: (bytes) => this.#onRead?.(source, bytes) };
    const reader = source.format.open(source.shards[shard] as string, access);
    reader.catch(() => {});
    const open: OpenShard = { reader, last: Promise.resolve(), heldBytes: 0 };
    this.#shards.set(key, open);
    for (const [oldest, entry] of this.#shards) {
      if (this.#shards.size <= this.#openShardsMax || entry === open) break;
      this.#drop(oldest, entry);
      void close(entry);
    }
    return open;
  }

  #drop(key: string, open: OpenShard): void {
    this.#shards.delete(key);
    this.#windowBytes -= open.heldBytes;
    open.heldBytes = 0;
  }

  #forget(): void {
    for (const [key, { bytes }] of this.#windows) {
      if (this.#windowBytes <= this.#windowBytesMax) return;
      if (this.#windows.size <= 1) break;
      if (bytes === 0) continue;
      this.#windows.delete(key);
      this.#windowBytes -= bytes;
    }
    // Windows were not enough: readers that keep row groups, the one used longest ago first, but never the one at hand.
    const shards = [...this.#shards];
    for (const [key, open] of shards.slice(0, -1)) {
      if (this.#windowBytes <= this.#windowBytesMax) return;
      if (open.heldBytes === 0) continue;
      this.#drop(key, open);
      void close(open);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    const shards = [...this.#shards.values()];
    this.#shards.clear();
    this.#windows.clear();
    this.#windowBytes = 0;
    await Promise.all(shards.map(close));
  }
}

/**
 * Parts of one shard are read by readers of their own, each going forward; a shard that cannot be divided is read once for all who share it. Lanes in different
 * epochs may have parts that begin alike and end elsewhere: their windows are not the same.
 */
function readerKey(source: ResolvedSource, { shard, from, to }: ShardPart): string {
  const isDivided = source.format.division(source.shards[shard] as string) !== "none";
  return `${source.name}\n${shard}\n${isDivided ? `${from}-${to}` : 0}`;
}

function windowKey(source: ResolvedSource, part: ShardPart, place: ShardPlace | undefined): string {
  return `${readerKey(source, part)}\n${JSON.stringify(place ?? null)}`;
}

/** A shard that failed to open has nothing to close. */
async function close(open: OpenShard): Promise<void> {
  await open.last;
  await open.reader.then(
    (reader) => reader[Symbol.asyncDispose](),
    () => {},
  );
}
