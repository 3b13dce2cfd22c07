/** Parquet through hyparquet: rows of a window only, by the offset index where the file has one. The footer is read once per open shard. */
import { BatchWeaveError, isBatchWeaveError } from "../../index.js";
import { importPeer } from "../peer.js";
import { openShardBytes, type ShardBytes } from "./shard-bytes.js";
import type { RawSample, ShardFormat, ShardPlace, ShardReader, ShardWindow, WindowLimits } from "./shard-reader.js";

type Hyparquet = typeof import("hyparquet");
type Footer = Awaited<ReturnType<Hyparquet["parquetMetadataAsync"]>>;

/** Settings of a Parquet source. */
export interface ParquetSettings {
  /** Columns to read. Default: all. */
  readonly columns?: readonly string[] | undefined;
  /** `{ ZSTD: (input, length) => output }` for codecs beyond Snappy and gzip, such as those of hyparquet-compressors. */
  readonly compressors?: Readonly<Record<string, (input: Uint8Array, outputLength: number) => Uint8Array>> | undefined;
}

class ParquetRows implements ShardReader {
  readonly #hyparquet: Hyparquet;
  readonly #bytes: ShardBytes;
  readonly #footer: Footer;
  readonly #settings: ParquetSettings;

  constructor(hyparquet: Hyparquet, bytes: ShardBytes, footer: Footer, settings: ParquetSettings) {
    this.#hyparquet = hyparquet;
    this.#bytes = bytes;
    this.#footer = footer;
    this.#settings = settings;
  }

  /** A place is the number of a row. A window never spans row groups, so that it is one decoding. */
  async read(place: ShardPlace | undefined, limits: WindowLimits, signal?: AbortSignal): Promise<ShardWindow> {
    const rows = Number(this.#footer.num_rows);
    const from = (place as number | undefined) ?? 0;
    const group = this.#groupOf(from);
    if (from >= rows || !group) return { samples: [], next: undefined };
    const perRow = Math.max(1, group.bytes / group.rows);
    const count = Math.max(1, Math.min(limits.samplesMax, Math.floor(limits.bytesMax / perRow)));
    const to = Math.min(from + count, group.end);
    const values = await this.#rows(from, to, signal);
    const samples = values.map((value, i): RawSample => ({ id: String(from + i), bytes: perRow, value }));
    return { samples, next: to < rows ? to : undefined };
  }

  async #rows(from: number, to: number, signal: AbortSignal | undefined): Promise<Record<string, unknown>[]> {
    const { columns, compressors } = this.#settings;
    try {
      return await this.#hyparquet.parquetReadObjects({
        file: asyncBuffer(this.#bytes, signal),
        metadata: this.#footer,
        rowStart: from,
        rowEnd: to,
        useOffsetIndex: true,
        ...(columns ? { columns: [...columns] } : {}),
        ...(compressors ? { compressors: { ...compressors } } : {}),
      });
    } catch (cause) {
      signal?.throwIfAborted();
      throw damaged(this.#bytes.uri, cause);
    }
  }

  #groupOf(row: number): { readonly end: number; readonly rows: number; readonly bytes: number } | undefined {
    let start = 0;
    for (const { num_rows, total_byte_size } of this.#footer.row_groups) {
      const end = start + Number(num_rows);
      if (row < end) return { end, rows: end - start, bytes: Number(total_byte_size) };
      start = end;
    }
    return undefined;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve(this.#bytes[Symbol.asyncDispose]());
  }
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
    async open(uri, access) {
      const hyparquet = await importPeer<Hyparquet>("hyparquet", "Parquet sources");
      const bytes = await openShardBytes(uri, access);
      try {
        const footer = await hyparquet.parquetMetadataAsync(asyncBuffer(bytes));
        assertColumns(uri, settings.columns ?? [], footer);
        return new ParquetRows(hyparquet, bytes, footer, settings);
      } catch (cause) {
        await bytes[Symbol.asyncDispose]();
        throw isBatchWeaveError(cause) ? cause : damaged(uri, cause);
      }
    },
  };
}
