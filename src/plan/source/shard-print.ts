/**
 * What is remembered of a source's shards, so that changed ones are noticed at a restart: the size of each, and a sample of the contents of some. Not
 * times or tags: a copy of the data on another machine or store is the same data.
 */
import { createHash } from "node:crypto";
import { stat } from "node:fs/promises";
import { BatchWeaveError, openStore, withRetry } from "../../index.js";
import { localPath, openShardBytes, type ShardAccess, splitObjectUri } from "./shard-bytes.js";
import type { ShardFormat } from "./shard-reader.js";

/** Shards of a source whose contents are looked at, spread over all. */
const sampledShardsMax = 16;
/** Read at the beginning, in the middle and at the end of each. */
const sampledBytes = 4_096;
const lookupsInFlightMax = 32;

/** Size of a file that is not there: whether that is a fault is for its reader to say. */
const missingSize = -1;

/** Size of every shard (undefined: it has none), a digest of what is remembered, and files that are not there. */
export async function shardPrint(
  format: ShardFormat,
  shards: readonly string[],
  access: ShardAccess,
): Promise<{
  readonly sizes: readonly (number | undefined)[];
  readonly print: string;
  readonly missing: readonly string[];
}> {
  const files = shards.map((shard) => format.files?.(shard) ?? [shard]);
  const all = files.flat();
  const sizes = await inGroups(all, (uri) => sizeOf(uri, access));
  const step = Math.max(1, Math.ceil(shards.length / sampledShardsMax));
  const sampled = files.filter((_, i) => i % step === 0 || i === files.length - 1).flat();
  const samples = await inGroups(sampled, (uri) => sampleOf(uri, sizes[all.indexOf(uri)] as number, access));
  const hash = createHash("sha256").update(JSON.stringify([sizes, samples]));
  let at = 0;
  const first = files.map((list) => {
    const size = list.length === 0 ? undefined : Math.max(0, sizes[at] as number);
    at += list.length;
    return size;
  });
  const missing = all.filter((_, i) => sizes[i] === missingSize);
  return { sizes: first, print: hash.digest("hex").slice(0, 16), missing };
}

async function inGroups<T, R>(items: readonly T[], one: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (let at = 0; at < items.length; at += lookupsInFlightMax)
    results.push(...(await Promise.all(items.slice(at, at + lookupsInFlightMax).map(one))));
  return results;
}

async function sizeOf(uri: string, { env, storeSettings }: ShardAccess): Promise<number> {
  const path = localPath(uri);
  if (path !== undefined) {
    const found = await stat(path).catch(() => undefined);
    // A pipe would be waited for for ever.
    if (found && !found.isFile())
      throw new BatchWeaveError(
        "INVALID_ARGUMENT",
        `${path} is a shard of the pipeline and no file (a folder, a pipe or a device). Remove it, or write a pattern that does not match it.`,
        { path },
      );
    return found?.size ?? missingSize;
  }
  const { folder, key } = splitObjectUri(uri);
  const store = withRetry(await openStore(folder, storeSettings, env), env);
  const [found] = (await store.list(key, { limit: 1 })).objects;
  return found?.key === key ? found.size : missingSize;
}

async function sampleOf(uri: string, size: number, access: ShardAccess): Promise<string> {
  if (size <= 0) return "";
  const hash = createHash("sha256");
  await using bytes = await openShardBytes(uri, access);
  const places = [0, Math.floor(size / 2), Math.max(0, size - sampledBytes)];
  for (const at of size <= 3 * sampledBytes ? [0] : places)
    hash.update(await bytes.read(at, size <= 3 * sampledBytes ? size : sampledBytes));
  return hash.digest("hex");
}
