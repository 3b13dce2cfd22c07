/** Sources: named, sharded, resumable streams of samples. What a user writes, and what it becomes once its shards are known. */
import { readdir } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { BatchWeaveError, openStore, withRetry } from "../../index.js";
import type { FaultPolicy } from "../load/fault.js";
import type { Transform } from "../load/transform.js";
import { hash32 } from "../mix/random.js";
import { iterableFormat, type OpenIterable } from "./iterable-shard.js";
import { jsonlFormat } from "./jsonl-shard.js";
import { megatronFormat } from "./megatron-shard.js";
import { type ParquetSettings, parquetFormat } from "./parquet-shard.js";
import { localPath, type ShardAccess } from "./shard-bytes.js";
import { nominalBytes } from "./shard-part.js";
import { shardPrint } from "./shard-print.js";
import type { ShardFormat, WindowLimits } from "./shard-reader.js";
import { tarFormat } from "./tar-shard.js";

/** Settings of every source. */
export interface SourceSettings extends FaultPolicy {
  /** Relative share where the pipeline has no mix of its own. Default 1. */
  readonly weight?: number | undefined;
  /** Passes over the data. Default: endless. */
  readonly epochs?: number | undefined;
  /** Shards in an order decided by the seed, and samples within windows. Default true. */
  readonly shuffle?: boolean | undefined;
  /**
   * A window, the grain of shuffling and of reading, ends with whichever comes first. Defaults: 256 samples; 1 MiB, or less where sources times lanes
   * are so many that a window of each would not fit into memory.
   */
  readonly windowSamplesMax?: number | undefined;
  readonly windowBytesMax?: number | undefined;
  /** What is done to a sample, in order. */
  readonly transforms?: readonly Transform[] | undefined;
  /** Samples of this source in transforms at a time, over all lanes of a process. Default: as many as threads take, in turn with other sources. */
  readonly inFlightMax?: number | undefined;
  /** With the exchange "log": lanes of its log, into which its shards are divided; so many processes can load it at a time. Default 4. */
  readonly lanes?: number | undefined;
}

/** Shards by name: paths or URIs, with `*` for any characters within a name. */
interface ShardedSettings extends SourceSettings {
  readonly shards: string | URL | readonly (string | URL)[];
}

/** A source as written in a pipeline; its name is its key there. */
export interface Source {
  readonly format: ShardFormat;
  readonly shards: readonly string[];
  readonly settings: SourceSettings;
  /** Of a source that Python processes fill: how they are started. */
  readonly python?: { readonly file: string; readonly processes?: number | undefined } | undefined;
}

function sharded(format: ShardFormat, { shards, ...settings }: ShardedSettings): Source {
  const list = Array.isArray(shards) ? (shards as readonly (string | URL)[]) : [shards as string | URL];
  return { format, shards: list.map((shard) => String(shard)), settings };
}

/** JSON lines, plain or (names ending in `.gz`) gzip. A sample's value is the parsed line. */
export function jsonl(settings: ShardedSettings): Source {
  return sharded(jsonlFormat, settings);
}

/** Parquet files. A sample's value is the row by column name. Needs the package hyparquet. */
export function parquet({ columns, compressors, ...settings }: ShardedSettings & ParquetSettings): Source {
  return sharded(parquetFormat({ columns, compressors }), settings);
}

/** WebDataset tar archives. A sample's value is `{ key, files }`. */
export function webdataset(settings: ShardedSettings): Source {
  return sharded(tarFormat, settings);
}

/** Megatron `.bin/.idx` pairs, named by prefix or by either file. A sample's value is `{ tokens }`. */
export function megatron(settings: ShardedSettings): Source {
  return sharded(megatronFormat, settings);
}

/** Anything that yields `{ value }` in the same order every time it is opened. */
export function iterable({ open, ...settings }: SourceSettings & { readonly open: OpenIterable }): Source {
  return { format: iterableFormat(open), shards: ["iterable"], settings };
}

/** A source whose shards are known. */
export interface ResolvedSource {
  readonly name: string;
  readonly format: ShardFormat;
  readonly shards: readonly string[];
  readonly settings: SourceSettings;
  /** Bytes of each shard, by which it is divided among lanes. */
  readonly sizes: readonly number[];
  /** Files of its shards that are not there. */
  readonly missing: readonly string[];
  readonly limits: WindowLimits;
  /** Of everything that decides the order of samples: a resume point is good only for the same. */
  readonly fingerprint: number;
}

/** A source as those see it who read it from its log: its shards are known to its loaders alone. */
export function loggedSource(name: string, { format, settings }: Source, log: string): ResolvedSource {
  const limits = { samplesMax: 0, bytesMax: 0 };
  return { name, format, shards: [], settings, sizes: [], missing: [], limits, fingerprint: hash32("log", log) };
}

/** Bytes of a window at most, where the source does not say. */
export const windowBytesDefault = 1_048_576;

/** Finds the shards of a source. */
export async function resolveSource(
  name: string,
  source: Source,
  seed: number | string,
  access: ShardAccess,
  bytesMax: number = windowBytesDefault,
): Promise<ResolvedSource> {
  const shards = (
    await Promise.all(source.shards.map((shard) => expandShard(shard, source.format.name, access)))
  ).flat();
  if (shards.length === 0) {
    const why = source.shards.length === 0 ? "its list is empty" : `nothing matches ${source.shards.join(", ")}`;
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `Source ${name} has no shards: ${why}. Check the path and the pattern.`,
      { source: name, shards: source.shards },
    );
  }
  const { epochs = 0, shuffle = true, windowSamplesMax = 256, windowBytesMax = bytesMax } = source.settings;
  const { sizes, print, missing } = await shardPrint(source.format, shards, access);
  // The last segment only: moving the data elsewhere, or onto another store, changes no order.
  const names = shards.map((shard) => shard.slice(shard.lastIndexOf("/") + 1));
  const order = [epochs, shuffle ? 1 : 0, windowSamplesMax, windowBytesMax];
  const fingerprint = hash32(String(seed), name, source.format.name, ...order, ...names, print);
  return {
    name,
    format: source.format,
    shards,
    settings: source.settings,
    sizes: sizes.map((size) => size ?? nominalBytes),
    missing,
    limits: { samplesMax: windowSamplesMax, bytesMax: windowBytesMax },
    fingerprint,
  };
}

function patternOf(glob: string): RegExp {
  const escaped = glob.replace(/[.+?^${}()|[\]\\]/g, "\\$&").replaceAll("*", "[^/]*");
  return new RegExp(`^${escaped}$`);
}

async function expandShard(shard: string, format: string, access: ShardAccess): Promise<string[]> {
  const path = format === "iterable" ? undefined : localPath(shard.replaceAll("%2A", "*"));
  if (path !== undefined) return shard.includes("*") ? await expandPath(resolve(path)) : [resolve(path)];
  if (!shard.includes("*")) return [shard];
  const folder = shard.slice(0, shard.lastIndexOf("/", shard.indexOf("*")));
  const pattern = patternOf(shard.slice(folder.length + 1));
  const store = withRetry(await openStore(folder, access.storeSettings, access.env), access.env);
  const found: string[] = [];
  for (let startAfter: string | undefined, more = true; more; ) {
    const page = await store.list("", { startAfter });
    found.push(...page.objects.map((o) => o.key).filter((key) => pattern.test(key)));
    startAfter = page.objects.at(-1)?.key;
    more = page.more && startAfter !== undefined;
  }
  return found.map((key) => `${folder}/${key}`);
}

/** Names that match, in byte order, so that every machine finds the same list. */
async function expandPath(glob: string): Promise<string[]> {
  const parts = glob.split("/");
  const at = parts.findIndex((part) => part.includes("*"));
  if (at === -1) return [glob];
  const folder = parts.slice(0, at).join("/") || "/";
  const pattern = patternOf(parts[at] as string);
  let names: string[];
  try {
    names = await readdir(folder);
  } catch (cause) {
    throw new BatchWeaveError(
      "MISSING_OBJECT",
      `The folder ${folder} of the pattern ${glob} cannot be listed (${(cause as NodeJS.ErrnoException).code}). Check the path in the pipeline's file; a relative one begins at the working directory, new URL("./data/*", import.meta.url) at the file.`,
      { folder },
      cause,
    );
  }
  const matches = names.filter((name) => pattern.test(name)).sort((a, b) => (a < b ? -1 : 1));
  const rest = parts.slice(at + 1);
  const below = await Promise.all(matches.map((name) => expandPath([join(folder, name), ...rest].join("/"))));
  return below.flat().filter((path) => dirname(path) !== path);
}
