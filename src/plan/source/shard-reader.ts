/** What every format of shard can do: read a window of samples at a place, and say where the next one begins. */
import { BatchWeaveError } from "../../index.js";
import type { ShardAccess } from "./shard-bytes.js";
import type { Division, ShardPart } from "./shard-part.js";

/** Where in a shard a window begins: small JSON that only the format understands. Absent: the beginning of the part. */
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

/** Consecutive samples of a shard. `next` is undefined at the end of the part. */
export interface ShardWindow {
  readonly samples: readonly RawSample[];
  readonly next: ShardPlace | undefined;
}

/** How large a window gets: whichever limit is reached first. Decided by the data alone, so every run cuts the same windows. */
export interface WindowLimits {
  readonly samplesMax: number;
  readonly bytesMax: number;
}

/** An open shard. Calls come one at a time, all with the same part. A format that cannot be divided reads the whole shard, whatever the part. */
export interface ShardReader extends AsyncDisposable {
  /** Bytes it keeps between reads. */
  readonly heldBytes?: number | undefined;
  read(
    place: ShardPlace | undefined,
    limits: WindowLimits,
    part: ShardPart,
    signal?: AbortSignal | undefined,
  ): Promise<ShardWindow>;
}

/** A kind of shard. */
export interface ShardFormat {
  readonly name: string;
  /** How finely a shard of this name can be divided among lanes. */
  division(uri: string): Division;
  /** The objects that a shard is made of; the size of the first is the shard's. Default: the shard itself. None: it has no size. */
  files?(uri: string): readonly string[];
  open(uri: string, access: ShardAccess): Promise<ShardReader>;
}

/** Parts were divided by the size that the shard had when the pipeline was opened. */
export function assertSize(uri: string, found: number, { size }: ShardPart): void {
  if (Math.max(1, found) === size) return;
  throw new BatchWeaveError(
    "CORRUPT",
    `The shard ${uri} has ${found} bytes and had ${size} when the pipeline was opened: it was changed while it is read. Put it back as it was; new data goes into shards of their own.`,
    { uri, found, expected: size },
  );
}
