/**
 * Open shards and the windows read from them, shared by every lane of a process. Both are bounded whatever the number of sources: the shard
 * used longest ago is closed, the window used longest ago forgotten, and either is opened again when it is needed.
 */
import { BatchWeaveError } from "../../index.js";
import type { ShardAccess } from "./shard-bytes.js";
import type { ShardPlace, ShardReader, ShardWindow } from "./shard-reader.js";
import type { ResolvedSource } from "./source.js";

/** Limits of a {@link ShardPool}. */
export interface ShardPoolSettings {
  /** Shards open at a time at most. Default 32. */
  readonly openShardsMax?: number | undefined;
  /** Bytes of windows kept at most (the one in use is always kept). Default 64 MiB. */
  readonly windowBytesMax?: number | undefined;
}

interface OpenShard {
  readonly reader: Promise<ShardReader>;
  /** Reads of one shard come one at a time; closing waits for them. */
  last: Promise<unknown>;
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

  constructor(access: ShardAccess, settings: ShardPoolSettings = {}) {
    this.#access = access;
    this.#openShardsMax = settings.openShardsMax ?? 32;
    this.#windowBytesMax = settings.windowBytesMax ?? 67_108_864;
  }

  /** What is held now. */
  get held(): { readonly shards: number; readonly windows: number; readonly windowBytes: number } {
    return { shards: this.#shards.size, windows: this.#windows.size, windowBytes: this.#windowBytes };
  }

  /** The window of a shard at a place. A failure is not remembered: the next call tries again. */
  async window(
    source: ResolvedSource,
    shard: number,
    place: ShardPlace | undefined,
    signal?: AbortSignal,
  ): Promise<ShardWindow> {
    const key = `${source.name}\n${shard}\n${JSON.stringify(place ?? null)}`;
    const held = this.#windows.get(key);
    if (held) {
      this.#windows.delete(key);
      this.#windows.set(key, held);
      return await held.window;
    }
    // Others may wait for the same window, so one caller's abort must not fail it for them.
    const window = this.#read(source, shard, place);
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

  async #read(source: ResolvedSource, shard: number, place: ShardPlace | undefined): Promise<ShardWindow> {
    const key = `${source.name}\n${shard}`;
    const open = this.#open(key, source, shard);
    const { windowSamplesMax = 256, windowBytesMax = 1_048_576 } = source.settings;
    const limits = { samplesMax: windowSamplesMax, bytesMax: windowBytesMax };
    const window = open.last.then(async () => await (await open.reader).read(place, limits));
    open.last = window.catch(() => {});
    try {
      return await window;
    } catch (error) {
      if (this.#shards.get(key) === open) {
        this.#shards.delete(key);
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
    const reader = source.format.open(source.shards[shard] as string, this.#access);
    reader.catch(() => {});
    const open: OpenShard = { reader, last: Promise.resolve() };
    this.#shards.set(key, open);
    for (const [oldest, entry] of this.#shards) {
      if (this.#shards.size <= this.#openShardsMax || entry === open) break;
      this.#shards.delete(oldest);
      void close(entry);
    }
    return open;
  }

  #forget(): void {
    for (const [key, { bytes }] of this.#windows) {
      if (this.#windowBytes <= this.#windowBytesMax || this.#windows.size <= 1) return;
      if (bytes === 0) continue;
      this.#windows.delete(key);
      this.#windowBytes -= bytes;
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

/** A shard that failed to open has nothing to close. */
async function close(open: OpenShard): Promise<void> {
  await open.last;
  await open.reader.then(
    (reader) => reader[Symbol.asyncDispose](),
    () => {},
  );
}
