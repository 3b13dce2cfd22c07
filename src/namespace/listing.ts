/** Finding namespaces below a URI. Reads only. */
import { type Env, systemEnv } from "../env/index.js";
import { isBatchWeaveError } from "../errors.js";
import { decodeNamespace, type Grid, namespaceKey, type Order } from "../format/index.js";
import { type CallOptions, type ObjectStore, openStore, type StoreSettings, withRetry } from "../store/index.js";

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

/** Keys inside a namespace. The last of its folders, `manifest/`, comes right before `namespace.json` in byte order. */
const insideNamespace =
  /^(.*?)(?:^|\/)(?:batch\/[0-9a-f]{2}\/\d{20}\/|(?:boundary|manifest)\/\d{20}\.json$|index\/\d{20}-|intent\/[0-9a-f]+\/)/;

/** Namespaces at or below a URI. Skips over their contents: two requests for each, however many objects it has. */
export async function* listNamespaces(
  uri: string,
  options: ListNamespacesOptions = {},
): AsyncGenerator<NamespaceListing> {
  const env = options.env ?? systemEnv;
  const store = options.store ?? withRetry(await openStore(uri, options.storeSettings, env), env);
  const { signal } = options;
  let startAfter = "";
  for (;;) {
    const page = await store.list("", { startAfter, signal, limit: 100 });
    let skipped = false;
    for (const { key } of page.objects) {
      startAfter = key;
      if (key === namespaceKey || key.endsWith(`/${namespaceKey}`)) {
        yield await readListing(uri, store, key, signal);
        continue;
      }
      const folder = insideNamespace.exec(key)?.[1];
      if (folder === undefined) continue;
      // "0" follows "/" in byte order, so this is behind everything in the folder and before namespace.json.
      startAfter = `${folder === "" ? "" : `${folder}/`}manifest0`;
      skipped = true;
      break;
    }
    if (!skipped && !page.more) return;
  }
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
