/** Parquet through hyparquet. The footer is read once per open shard, and a row group once: as a whole, or page by page where it is large and has an index. */
import { BatchWeaveError, isBatchWeaveError } from "../../index.js";
import { importPeer } from "../peer.js";
import { openShardBytes, type ShardBytes } from "./shard-bytes.js";
import type { ShardPart } from "./shard-part.js";
import {
  assertSize,
  type RawSample,
  type ShardFormat,
  type ShardPlace,
  type ShardReader,
  type ShardWindow,
  type WindowLimits,
} from "./shard-reader.js";

type Hyparquet = typeof import("hyparquet");
type Footer = Awaited<ReturnType<Hyparquet["parquetMetadataAsync"]>>;

/** Settings of a Parquet source. */
export interface ParquetSettings {
  /** Columns to read. Default: all. */
  readonly columns?: readonly string[] | undefined;
  /** `{ ZSTD: (input, length) => output }` for codecs beyond Snappy and gzip, such as those of hyparquet-compressors. */
  readonly compressors?: Readonly<Record<string, (input: Uint8Array, outputLength: number) => Uint8Array>> | undefined;
}

/** Compressed bytes of a row group up to which it is read as a whole; larger ones page by page, where the file says where pages are. */
const wholeGroupBytesMax = 33_554_432;
/** Indexes and dictionaries, which every window of a row group needs. */
const smallBytesMax = 262_144;

interface Group {
  readonly start: number;
  readonly end: number;
  /** Of the columns that are read, as stored. */
  readonly storedBytes: number;
  readonly bytes: number;
  readonly hasPageIndex: boolean;
}

class ParquetRows implements ShardReader {
  readonly #hyparquet: Hyparquet;
  readonly #bytes: ShardBytes;
  readonly #footer: Footer;
  readonly #settings: ParquetSettings;
  readonly #groups: readonly Group[];
  /** What was read of the row group at hand: its windows are decoded from here, and it is read once. */
  #held: { readonly group: Group; readonly pieces: Map<string, ArrayBuffer> } | undefined;
  #heldBytes = 0;

  constructor(hyparquet: Hyparquet, bytes: ShardBytes, footer: Footer, settings: ParquetSettings) {
    this.#hyparquet = hyparquet;
    this.#bytes = bytes;
    this.#footer = footer;
    this.#settings = settings;
    this.#groups = groupsOf(footer, settings.columns);
  }

  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** A place is the number of a row. A window never spans row groups, so that it is one decoding. */
  async read(
    place: ShardPlace | undefined,
    limits: WindowLimits,
    part: ShardPart,
    signal?: AbortSignal,
  ): Promise<ShardWindow> {
    assertSize(this.#bytes.uri, this.#bytes.size, part);
    const [first, last] = [this.#rowAt(part.from, part), this.#rowAt(part.to, part)];
    const from = (place as number | undefined) ?? first;
    const group = this.#groups.find(({ end }) => from < end);
    if (from >= last || !group) return { samples: [], next: undefined };
    const perRow = Math.max(1, group.bytes / (group.end - group.start));
    const count = Math.max(1, Math.min(limits.samplesMax, Math.floor(limits.bytesMax / perRow)));
    const to = Math.min(from + count, group.end, last);
    const isPartly = 2 * (Math.min(last, group.end) - Math.max(first, group.start)) < group.end - group.start;
    const byPage = group.hasPageIndex && (isPartly || group.storedBytes > wholeGroupBytesMax);
    const values = await this.#rows(from, to, group, byPage, signal);
    const samples = values.map((value, i): RawSample => ({ id: String(from + i), bytes: perRow, value }));
    if (to === group.end || to === last) this.#hold(undefined);
    return { samples, next: to < last ? to : undefined };
  }

  /** The row at a byte of the part's shard: where a row group ends, if that is near enough. The same for both who share the border. */
  #rowAt(byte: number, { size, slack }: ShardPart): number {
    const rows = this.#groups.at(-1)?.end ?? 0;
    if (byte <= 0 || byte >= size) return byte <= 0 ? 0 : rows;
    const row = Math.floor((byte / size) * rows);
    const group = this.#groups.find(({ end }) => row < end);
    if (!group) return row;
    const nearest = row - group.start <= group.end - row ? group.start : group.end;
    return (Math.abs(nearest - row) / rows) * size <= slack ? nearest : row;
  }

  #hold(group: Group | undefined): Map<string, ArrayBuffer> {
    if (!group || this.#held?.group !== group) {
      this.#held = group && { group, pieces: new Map() };
      this.#heldBytes = 0;
    }
    return this.#held?.pieces ?? new Map();
  }

  async #rows(
    from: number,
    to: number,
    group: Group,
    byPage: boolean,
    signal: AbortSignal | undefined,
  ): Promise<Record<string, unknown>[]> {
    const { columns, compressors } = this.#settings;
    const pieces = this.#hold(group);
    const file = asyncBuffer(this.#bytes, signal);
    try {
      return await this.#hyparquet.parquetReadObjects({
        file: {
          byteLength: file.byteLength,
          slice: async (start, end = file.byteLength) => {
            const key = `${start} ${end}`;
            const held = pieces.get(key);
            if (held) return held;
            const piece = await file.slice(start, end);
            if (!byPage || piece.byteLength <= smallBytesMax) {
              pieces.set(key, piece);
              this.#heldBytes += piece.byteLength;
            }
            return piece;
          },
        },
        metadata: this.#footer,
        rowStart: from,
        rowEnd: to,
        useOffsetIndex: byPage,
        ...(columns ? { columns: [...columns] } : {}),
        ...(compressors ? { compressors: { ...compressors } } : {}),
      });
    } catch (cause) {
      signal?.throwIfAborted();
      throw damaged(this.#bytes.uri, cause);
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#hold(undefined);
    return Promise.resolve(this.#bytes[Symbol.asyncDispose]());
  }
}

function groupsOf(footer: Footer, columns: readonly string[] | undefined): Group[] {
  let start = 0;
  return footer.row_groups.map((group) => {
    const chunks = group.columns.filter(
      ({ meta_data: meta }) => !columns || columns.includes(meta?.path_in_schema[0] ?? ""),
    );
    const end = start + Number(group.num_rows);
    const found: Group = {
      start,
      end,
      storedBytes: chunks.reduce((sum, { meta_data: meta }) => sum + Number(meta?.total_compressed_size ?? 0), 0),
      bytes: Number(group.total_byte_size),
      hasPageIndex: chunks.every((chunk) => Boolean(chunk.offset_index_offset && chunk.offset_index_length)),
    };
    start = end;
    return found;
  });
}

/** What is read of the end at first, in the hope that the footer is in it: not much of a small shard, which is read anyway. */
function footerBytesOf(size: number): number {
  return Math.max(8_192, Math.min(524_288, Math.ceil(size / 64)));
}

function damaged(uri: string, cause: unknown): BatchWeaveError {
  const what = cause instanceof Error ? cause.message : String(cause);
  return new BatchWeaveError(
    "CORRUPT",
    `${uri} cannot be read as Parquet (${what}): it is damaged, cut short or of another kind.`,
    { uri },
    cause,
  );
}

/** A column that a file does not have is a slip in the pipeline, not damage. */
function assertColumns(uri: string, columns: readonly string[], { schema }: Footer): void {
  const [root] = schema;
  const names: string[] = [];
  // The schema is a tree written as a list; its first level is what rows are made of.
  for (let i = 1, below = [root?.num_children ?? 0]; i < schema.length && below.length > 0; i++) {
    const element = schema[i];
    if (below.length === 1) names.push(element?.name ?? "");
    below[below.length - 1] = (below.at(-1) as number) - 1;
    if ((element?.num_children ?? 0) > 0) below.push(element?.num_children as number);
    while (below.length > 0 && below.at(-1) === 0) below.pop();
  }
  const missing = columns.filter((column) => !names.includes(column));
  if (missing.length === 0) return;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `${uri} has no column ${missing.join(", ")}; it has ${names.join(", ")}. Mend columns in the source.`,
    { uri, missing, columns: names },
  );
}

function asyncBuffer(
  bytes: ShardBytes,
  signal?: AbortSignal | undefined,
): { byteLength: number; slice(start: number, end?: number): Promise<ArrayBuffer> } {
  return {
    byteLength: bytes.size,
    async slice(start, end = bytes.size) {
      const from = start < 0 ? bytes.size + start : start;
      const piece = await bytes.read(from, end - from, signal);
      return piece.buffer.slice(piece.byteOffset, piece.byteOffset + piece.byteLength) as ArrayBuffer;
    },
  };
}

/** Parquet with the given settings. */
export function parquetFormat(settings: ParquetSettings): ShardFormat {
  return {
    name: "parquet",
    division: () => "groups",
    async open(uri, access) {
      const hyparquet = await importPeer<Hyparquet>("hyparquet", "Parquet sources");
      const bytes = await openShardBytes(uri, access);
      try {
        const footer = await hyparquet.parquetMetadataAsync(asyncBuffer(bytes), {
          initialFetchSize: footerBytesOf(bytes.size),
        });
        assertColumns(uri, settings.columns ?? [], footer);
        return new ParquetRows(hyparquet, bytes, footer, settings);
      } catch (cause) {
        await bytes[Symbol.asyncDispose]();
        throw isBatchWeaveError(cause) ? cause : damaged(uri, cause);
      }
    },
  };
}
