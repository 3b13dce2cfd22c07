/** From a URI to a store. */
import { type Env, systemEnv } from "../env/index.js";
import { BatchWeaveError } from "../errors.js";
import type { AzureStoreSettings } from "./azure/index.js";
import { withoutSecrets } from "./bucket-uri.js";
import { type FileStoreSettings, openFileStore } from "./file/index.js";
import type { GcsStoreSettings } from "./gcs/index.js";
import { MemoryStore } from "./memory.js";
import type { ObjectStore } from "./object-store.js";
import type { S3StoreSettings } from "./s3/index.js";

/** Settings of {@link openStore}; each backend takes what concerns it. */
export interface StoreSettings extends FileStoreSettings {
  s3?: S3StoreSettings | undefined;
  azure?: AzureStoreSettings | undefined;
  gcs?: GcsStoreSettings | undefined;
}

type Opener = (uri: string, settings: StoreSettings, env: Env) => Promise<ObjectStore>;

/** Scheme -> how to open it. A backend that needs a package of its own is imported inside its opener, so that others do not pay for it. */
const openers: Readonly<Record<string, Opener>> = {
  memory: async (uri) => openMemory(uri.slice("memory:".length)),
  file: async (uri, settings, env) => openFileStore(pathOfFileUri(uri), env, settings),
  s3: async (uri, settings, env) => (await import("./s3/index.js")).openS3Store(uri, env, settings.s3),
  az: async (uri, settings, env) => (await import("./azure/index.js")).openAzureStore(uri, env, settings.azure),
  gs: async (uri, settings, env) => (await import("./gcs/index.js")).openGcsStore(uri, env, settings.gcs),
};

/** Named memory stores of this process. */
const memories = new Map<string, MemoryStore>();

/** Opens the store a URI names. Nothing is written by opening. */
export async function openStore(uri: string, settings: StoreSettings = {}, env: Env = systemEnv): Promise<ObjectStore> {
  const scheme = /^([A-Za-z][A-Za-z0-9+.-]*):/.exec(uri)?.[1]?.toLowerCase();
  const open = scheme === undefined ? undefined : Object.hasOwn(openers, scheme) ? openers[scheme] : undefined;
  if (open) return open(`${scheme}${uri.slice((scheme as string).length)}`, settings, env);
  const works = Object.keys(openers)
    .map((name) => `${name}:`)
    .join(", ");
  if (scheme === undefined) {
    throw new BatchWeaveError(
      "UNKNOWN_SCHEME",
      `"${withoutSecrets(uri)}" is not a URI; for a folder write file:// and its absolute path, such as file:///data/run (schemes: ${works}).`,
      { uri: withoutSecrets(uri) },
    );
  }
  throw new BatchWeaveError(
    "UNKNOWN_SCHEME",
    `No store for "${scheme}:" in "${withoutSecrets(uri)}"; use one of ${works}.`,
    { scheme },
  );
}

/** `memory:` is a new store each time; `memory:name` is the same one throughout this process. */
function openMemory(name: string): MemoryStore {
  if (name === "") return new MemoryStore();
  let store = memories.get(name);
  if (!store) {
    store = new MemoryStore(`memory:${name}`);
    memories.set(name, store);
  }
  return store;
}

/** The absolute path of a `file:` URI, percent-decoded. Throws INVALID_ARGUMENT with a hint for anything else. */
export function pathOfFileUri(uri: string): string {
  const refuse = (why: string): never => {
    const shown = withoutSecrets(uri);
    throw new BatchWeaveError("INVALID_ARGUMENT", `"${shown}": ${why}.`, { uri: shown });
  };
  const rest = uri.slice("file:".length);
  const authority = /^\/\/([^/]*)/.exec(rest)?.[1];
  const raw = authority === undefined ? rest : rest.slice(2 + authority.length);
  if (authority !== undefined && authority !== "" && authority.toLowerCase() !== "localhost") {
    refuse(
      `"${authority.replace(/^.*@/, "")}" stands where a host would, and the path must be absolute; write file:///absolute/path, with three slashes`,
    );
  }
  if (!raw.startsWith("/")) refuse("the path must be absolute; write file:///absolute/path, with three slashes");
  if (/[?#]/.test(raw)) refuse('"?" and "#" must be written %3F and %23 in a path');
  if (/%2f|%00/i.test(raw)) refuse("a path cannot hold an encoded slash (%2F) or NUL (%00)");
  let path: string;
  try {
    path = decodeURIComponent(raw);
  } catch {
    return refuse('"%" must be followed by two hex digits of a UTF-8 byte; write a literal percent sign as %25');
  }
  if (path.includes("\0")) refuse("a path cannot hold NUL");
  const segments: string[] = [];
  for (const segment of path.split("/")) {
    if (segment === "..") segments.pop();
    else if (segment !== "" && segment !== ".") segments.push(segment);
  }
  if (segments.length === 0) refuse("this is the root of the whole file system; name a folder in it");
  return `/${segments.join("/")}`;
}
