/**
 * Deleting a namespace, so that no process that still has it open can do harm or be deceived, however long it was stopped:
 *
 *   1. a version that says so       (it takes the next name, so a committer learns it by losing)
 *   2. the last boundary marker     (above every version: from here on no name of this life means anything, not even one made again)
 *   3. the objects, in the folder of this life alone
 *   4. `namespace.json`
 *
 * The boundary chain stays for good. It is what a look reads, so it costs no request, and it is all that a process which wakes up
 * years later needs. A crash between any two steps leaves a namespace that answers DELETED and that can be deleted again.
 */
import type { Env } from "../env/index.js";
import { BatchWeaveError, isBatchWeaveError } from "../errors.js";
import {
  batchPrefix,
  boundaryPrefix,
  decodeNamespace,
  indexPrefix,
  intentPrefix,
  livesPrefix,
  manifestPrefix,
  type NamespaceSpec,
  namespaceKey,
  pulsePrefix,
} from "../format/index.js";
import { BoundaryChain, type Log, lifeStore } from "../log/index.js";
import type { CallOptions, ObjectStore } from "../store/index.js";

/** One life and where it is. */
interface Life {
  /** The store that its `namespace.json` is or was in. */
  readonly place: ObjectStore;
  readonly spec: Pick<NamespaceSpec, "format" | "uuid">;
}

/** Prefixes of a life whose objects go. The boundary chain stays. */
export const mortalPrefixes: readonly string[] = [intentPrefix, indexPrefix, batchPrefix, manifestPrefix];

const hex = (n: number, digits: number): string => n.toString(16).padStart(digits, "0");
const hashFolders = [
  ...Array.from({ length: 256 }, (_, i) => `${batchPrefix}${hex(i, 2)}/`),
  ...Array.from({ length: 16 }, (_, i) => `${intentPrefix}${hex(i, 1)}/`),
];

/** Commits the version that says so. Refused while forks share batches, unless forced; that is staged too, so no fork slips in. */
export async function commitDeletion(log: Log, force: boolean, options: CallOptions = {}): Promise<void> {
  try {
    await log.commit<undefined, undefined>(
      {
        by: "delete log",
        kind: "delete",
        stage: (draft) => {
          const forks = [...draft.pins.values()].map((pin) => pin.uri);
          if (forks.length > 0 && !force) throw hasForks(log.place.uri, forks);
          draft.deleted = true;
          return { done: false, result: undefined };
        },
      },
      { signal: options.signal, fresh: true },
    );
  } catch (error) {
    // That is what it says once it is in, from this process or another.
    if (!isBatchWeaveError(error, "DELETED")) throw error;
  }
}

function hasForks(uri: string, forks: readonly string[]): BatchWeaveError {
  return new BatchWeaveError(
    "NOT_EMPTY",
    `${uri} holds batches that ${forks.length} forks share: ${forks.slice(0, 5).join(", ")}. Delete the forks first, or force it: they lose those batches.`,
    { uri, forks },
  );
}

/** Writes the last boundary marker. */
export async function endLife(life: Life, env: Env, options: CallOptions = {}): Promise<void> {
  const chain = await newestMarker(life, options);
  await chain?.end(env, options);
}

/** Whether the last boundary marker is there. */
export async function isEnded(life: Life, options: CallOptions = {}): Promise<boolean> {
  const chain = await newestMarker(life, options);
  if (chain === undefined) return true;
  try {
    await chain.look(options);
    return false;
  } catch (error) {
    if (isBatchWeaveError(error, "DELETED")) return true;
    throw error;
  }
}

/** The chain from its newest listed marker on; undefined when that is the last one. No manifest is left that hints at it. */
async function newestMarker({ place, spec }: Life, options: CallOptions): Promise<BoundaryChain | undefined> {
  const store = lifeStore(place, spec);
  const chain = new BoundaryChain(store, spec.uuid);
  let last: string | undefined;
  for (let more = true; more; ) {
    const page = await store.list(boundaryPrefix, { ...options, startAfter: last });
    last = page.objects.at(-1)?.key ?? last;
    more = page.more;
  }
  const number = /^boundary\/(\d{20})\.json$/.exec(last ?? "")?.[1];
  try {
    if (number !== undefined) await chain.jump(Number(number), options);
  } catch (error) {
    if (isBatchWeaveError(error, "DELETED")) return undefined;
    throw error;
  }
  return chain;
}

/** Removes every object of a life but its boundary chain; gives their number. */
export async function removeObjects({ place, spec }: Life, options: CallOptions = {}): Promise<number> {
  const store = lifeStore(place, spec);
  let removed = 0;
  for (const prefix of [pulsePrefix, ...mortalPrefixes]) removed += await removeBelow(store, prefix, options);
  // For writers a folder keeps the empty folders of hashes; deleting anything in them takes them along.
  if (place.uri.startsWith("file:"))
    await store.delete(
      hashFolders.map((folder) => `${folder}none`),
      options,
    );
  // No run would look for these later. Without the right to list them a lifecycle rule of the bucket must do.
  await store.abortUploads?.(batchPrefix, 0, options).catch((error) => {
    if (!isBatchWeaveError(error, "STORE_DENIED")) throw error;
  });
  return removed;
}

/** Removes what lies below a prefix. */
export async function removeBelow(store: ObjectStore, prefix: string, options: CallOptions = {}): Promise<number> {
  let removed = 0;
  for (;;) {
    const { objects } = await store.list(prefix, options);
    if (objects.length === 0) return removed;
    await store.delete(
      objects.map((o) => o.key),
      options,
    );
    removed += objects.length;
  }
}

/**
 * Removes `namespace.json` if it is still this life's. No store of ours deletes under a condition: a process that is stopped between the
 * two requests, while another one finishes the deletion and a user makes a namespace here, removes the new one's. A producer that commits there
 * puts it back (`log/presence.ts`); none of its data is touched.
 */
export async function removeNamespaceObject({ place, spec }: Life, options: CallOptions = {}): Promise<number> {
  const bytes = await place.get(namespaceKey, options);
  if (!bytes || decodeNamespace(bytes, namespaceKey).uuid !== spec.uuid) return 0;
  await place.delete([namespaceKey], options);
  return 1;
}

const inLife = /^life\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\/(.*)$/;

/** Lives at a place that hold anything but a boundary chain. `pagesMax`: of a thousand keys each. */
export async function livesWithObjects(
  place: ObjectStore,
  pagesMax: number,
  options: CallOptions = {},
): Promise<readonly string[]> {
  const found = new Set<string>();
  let startAfter: string | undefined;
  for (let page = 0, more = true; more && page < pagesMax; page++) {
    const listed = await place.list(livesPrefix, { ...options, startAfter, keysOnly: true });
    for (const { key } of listed.objects) {
      const [, uuid, name] = inLife.exec(key) ?? [];
      if (uuid !== undefined && !name?.startsWith(boundaryPrefix)) found.add(uuid);
    }
    startAfter = listed.objects.at(-1)?.key;
    more = listed.more;
  }
  return [...found];
}

/** Removes what is left at a place that has no `namespace.json`: of an interrupted deletion, or of writers that woke up after one. */
export async function removeLeftovers(place: ObjectStore, env: Env, options: CallOptions = {}): Promise<number> {
  let removed = await removeObjects({ place, spec: { format: 1, uuid: "" } }, options);
  for (const uuid of await livesWithObjects(place, Number.POSITIVE_INFINITY, options)) {
    const life: Life = { place, spec: { format: 2, uuid } };
    await endLife(life, env, options);
    removed += await removeObjects(life, options);
  }
  return removed;
}
