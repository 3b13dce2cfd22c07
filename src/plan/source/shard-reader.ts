/** What every format of shard can do: read a window of samples at a place, and say where the next one begins. */
import type { ShardAccess } from "./shard-bytes.js";

/** Where in a shard a window begins: small JSON that only the format understands. Absent: the beginning. */
export type ShardPlace = number | readonly unknown[];

/** A sample as its source holds it. `error` instead of `value`: it is there and cannot be read (a poison sample). */
export interface RawSample {
  /** Unique within the shard. */
  readonly id: string;
  /** Bytes it takes in memory, about. */
  readonly bytes: number;
  readonly value?: unknown;
  readonly error?: string | undefined;
}

/** Consecutive samples of a shard. `next` is undefined at its end. */
export interface ShardWindow {
  readonly samples: readonly RawSample[];
  readonly next: ShardPlace | undefined;
}

/** How large a window gets: whichever limit is reached first. Decided by the data alone, so every run cuts the same windows. */
export interface WindowLimits {
  readonly samplesMax: number;
  readonly bytesMax: number;
}

/** An open shard. Calls come one at a time. */
export interface ShardReader extends AsyncDisposable {
  read(place: ShardPlace | undefined, limits: WindowLimits, signal?: AbortSignal | undefined): Promise<ShardWindow>;
}

/** A kind of shard. */
export interface ShardFormat {
  readonly name: string;
  open(uri: string, access: ShardAccess): Promise<ShardReader>;
}
