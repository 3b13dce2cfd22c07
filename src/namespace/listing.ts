/** Finding namespaces below a URI. Reads only. */
import { pathToFileURL } from "node:url";
import { type Env, systemEnv } from "../env/index.js";
import { isBatchWeaveError } from "../errors.js";
import { decodeNamespace, type Grid, namespaceKey, type Order } from "../format/index.js";
import {
  type CallOptions,
  foldersHolding,
  type ObjectStore,
  openStore,
  pathOfFileUri,
  type StoreSettings,
  withRetry,
} from "../store/index.js";
import { ownPrefixes } from "./open.js";

/** A namespace that was found below a URI. `problem` is set when it cannot be read. */
export interface NamespaceListing {
  readonly uri: string;
  readonly uuid: string | undefined;
  readonly grid: Grid | undefined;
  readonly order: Order | undefined;
  readonly createdMs: number | undefined;
  readonly problem: string | undefined;
}

/** Options of {@link listNamespaces}. */
export interface ListNamespacesOptions extends CallOptions {
  readonly env?: Env | undefined;
  readonly store?: ObjectStore | undefined;
  readonly storeSettings?: StoreSettings | undefined;
}

/** Namespaces at or below a URI, every one that {@link createNamespace} can make there. Their contents are skipped, however many objects they have. */
export async function* listNamespaces(
  uri: string,
  options: ListNamespacesOptions = {},
): AsyncGenerator<NamespaceListing> {
  const { env = systemEnv, signal, storeSettings } = options;
  const open = async (at: string): Promise<ObjectStore> => withRetry(await openStore(at, storeSettings, env), env);
  if (options.store || !/^file:/i.test(uri)) {
    yield* listInStore(uri, options.store ?? (await open(uri)), signal);
    return;
  }
  const closed = ownPrefixes.map((prefix) => prefix.slice(0, -1));
  for await (const folder of foldersHolding(pathOfFileUri(uri), namespaceKey, closed, signal)) {
    const at = pathToFileURL(folder).href;
    yield await readListing(at, await open(at), namespaceKey, signal);
  }
}

async function* listInStore(
  uri: string,
  store: ObjectStore,
  signal: AbortSignal | undefined,
): AsyncGenerator<NamespaceListing> {
  const known = new Map<string, boolean>();
  const isNamespace = async (folder: string): Promise<boolean> => {
    const found =
      known.get(folder) ?? (await store.getRange(`${folder}${namespaceKey}`, 0, 1, { signal })) !== undefined;
    known.set(folder, found);
    return found;
  };
  for (let startAfter = ""; ; ) {
    const page = await store.list("", { startAfter, signal, limit: 100 });
    let skipped = false;
    for (const { key } of page.objects) {
      startAfter = key;
      if (key === namespaceKey || key.endsWith(`/${namespaceKey}`)) yield await readListing(uri, store, key, signal);
      const own = await ownFolder(key, isNamespace);
      if (own === undefined) continue;
      // "0" follows "/" in byte order, so this is behind everything in the folder.
      startAfter = `${own}0`;
      skipped = true;
      break;
    }
    if (!skipped && !page.more) return;
  }
}

/** The folder of a namespace's own objects that a key lies in. One that only looks like it may hold namespaces. */
async function ownFolder(key: string, isNamespace: (folder: string) => Promise<boolean>): Promise<string | undefined> {
  const segments = key.split("/");
  for (let i = 0; i < segments.length - 1; i++) {
    if (!ownPrefixes.includes(`${segments[i]}/`)) continue;
    const folder = segments
      .slice(0, i)
      .map((segment) => `${segment}/`)
      .join("");
    if (await isNamespace(folder)) return folder + segments[i];
  }
  return undefined;
}

async function readListing(
  uri: string,
  store: ObjectStore,
  key: string,
  signal: AbortSignal | undefined,
): Promise<NamespaceListing> {
  const folder = key.slice(0, -namespaceKey.length).replace(/\/$/, "");
  const at = folder === "" ? uri : `${uri.replace(/\/+$/, "")}/${folder}`;
  const unknown = { uri: at, uuid: undefined, grid: undefined, order: undefined, createdMs: undefined };
  try {
    const bytes = await store.get(key, { signal });
    if (!bytes) return { ...unknown, problem: "deleted while listing" };
    const { uuid, grid, order, created } = decodeNamespace(bytes, `${at}/${namespaceKey}`);
    return { uri: at, uuid, grid, order, createdMs: created, problem: undefined };
  } catch (error) {
    if (!isBatchWeaveError(error)) throw error;
    return { ...unknown, problem: error.message };
  }
}
