/**
 * Any async iterable as a source. It cannot be seeked, so a place is a snapshot that the iterable itself gave and the number of samples since:
 * a restart opens it from the snapshot and replays the rest. Without snapshots the replay is from the beginning.
 */
import type { ShardPart } from "./shard-part.js";
import type { RawSample, ShardFormat, ShardPlace, ShardReader, ShardWindow, WindowLimits } from "./shard-reader.js";

/** One item of an iterable source. */
export interface IterableItem {
  readonly value: unknown;
  /** Default: its number. */
  readonly id?: string | undefined;
  readonly bytes?: number | undefined;
  /** Small JSON from which `open` can go on *after* this item. Give one every few hundred items, not with each. */
  readonly snapshot?: unknown;
}

/** Opens the iterable at the beginning, or after the item that carried `snapshot`. The same items must come in the same order every time. */
export type OpenIterable = (snapshot: unknown) => AsyncIterable<IterableItem> | Iterable<IterableItem>;

/** `[snapshot, samples read since, number of the sample]` */
type IterablePlace = readonly [snapshot: unknown, since: number, number: number];

class IterableReader implements ShardReader {
  readonly #open: OpenIterable;
  #items: AsyncIterator<IterableItem> | Iterator<IterableItem> | undefined;
  #place: IterablePlace = [null, 0, 0];

  constructor(open: OpenIterable) {
    this.#open = open;
  }

  async read(
    place: ShardPlace | undefined,
    limits: WindowLimits,
    _part: ShardPart,
    signal?: AbortSignal,
  ): Promise<ShardWindow> {
    const [snapshot, since, number] = (place as IterablePlace | undefined) ?? [null, 0, 0];
    if (this.#items === undefined || this.#place[2] !== number) await this.#seek(snapshot, since, number);
    const samples: RawSample[] = [];
    for (let taken = 0; samples.length < limits.samplesMax && taken < limits.bytesMax; ) {
      signal?.throwIfAborted();
      const item = await this.#next();
      if (item === undefined) return { samples, next: undefined };
      const { value, id = String(this.#place[2] - 1), bytes = 1024 } = item;
      samples.push({ id, bytes, value });
      taken += bytes;
    }
    return { samples, next: this.#place };
  }

  async #seek(snapshot: unknown, since: number, number: number): Promise<void> {
    await this.#items?.return?.();
    const items = this.#open(snapshot ?? undefined);
    this.#items = Symbol.asyncIterator in items ? items[Symbol.asyncIterator]() : items[Symbol.iterator]();
    this.#place = [snapshot, 0, number - since];
    while (this.#place[2] < number && (await this.#next()) !== undefined);
  }

  async #next(): Promise<IterableItem | undefined> {
    const result = await this.#items?.next();
    if (!result || result.done) return undefined;
    const [snapshot, since, number] = this.#place;
    const given = result.value.snapshot;
    this.#place = given === undefined ? [snapshot, since + 1, number + 1] : [given, 0, number + 1];
    return result.value;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#items?.return?.();
  }
}

/** An iterable as the only shard of its source. */
export function iterableFormat(open: OpenIterable): ShardFormat {
  return {
    name: "iterable",
    division: () => "none",
    files: () => [],
    async open() {
      return new IterableReader(open);
    },
  };
}
