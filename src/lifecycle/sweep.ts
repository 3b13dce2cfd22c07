/** Finding dead objects by bounded LISTs, in ascending order, and deleting them. Decides nothing: the live set and the cutoff do. */
import { isBatchWeaveError } from "../errors.js";
import { inParallel } from "../flow/index.js";
import {
  type BatchName,
  batchPrefix,
  digits20,
  indexPrefix,
  type Manifest,
  manifestPrefix,
  parseBatchKey,
  parseIndexKey,
  parseManifestKey,
  type Version,
} from "../format/index.js";
import { type Log, listIntents, spentIntents } from "../log/index.js";
import type { ListedObject } from "../store/index.js";
import type { LiveSet } from "./live-set.js";

/** Why an object may go. */
export type DeadReason =
  /** A batch whose producer has gone past its seq: below the trim, or an upload that another one of the same batch replaced. */
  | "trimmed"
  /** A batch that was not committed and cannot be any more. */
  | "orphan"
  /** An index object or table that nothing live references. */
  | "unreferenced"
  /** A manifest at or below the boundary. */
  | "superseded"
  /** An intent whose batch or opening is in, or can never be. */
  | "spent"
  /** An intent whose name means nothing here. */
  | "unreadable"
  /** Parts of an upload that was never completed, of a batch that cannot be committed any more. */
  | "unfinished";

/** An object that may be deleted. */
export interface DeadObject {
  readonly key: string;
  readonly size: number;
  readonly kind: "batch" | "upload" | "index" | "manifest" | "intent";
  readonly reason: DeadReason;
}

/** What is swept, and how. */
export interface Sweep {
  readonly log: Log;
  /** The verified manifest that the live set was computed from. */
  readonly manifest: Manifest;
  readonly live: LiveSet;
  /** Bases below are candidates: the manifest's orphan cutoff. */
  readonly cutoff: Version;
  /** Batches with a base below were swept before. */
  readonly fromBase: number;
  /** What the chain has announced. */
  readonly boundary: Version;
  /** Manifests up to here were swept before. */
  readonly fromBoundary: number;
  readonly inFlightMax: number;
  readonly dryRun: boolean;
  /** Takes each page of dead objects, in order within its prefix, and deletes them. */
  readonly take: (dead: readonly DeadObject[]) => Promise<void>;
  /** Told of what is gone already. */
  readonly took: (dead: readonly DeadObject[]) => void;
  /** Told of what could not be looked at, where that does no harm. */
  readonly warn: (warning: string) => void;
  readonly signal?: AbortSignal | undefined;
}

const hashes = Array.from({ length: 256 }, (_, i) => i.toString(16).padStart(2, "0"));

/** Batch objects with base in `[fromBase, cutoff)`. A small namespace takes one LIST; a large one, one or more per hash. */
export async function sweepBatches(sweep: Sweep): Promise<void> {
  const { log, signal } = sweep;
  if (!isCutoffNew(sweep)) return;
  const first = await log.store.list(batchPrefix, { signal });
  if (!first.more) {
    await takeBatches(sweep, first.objects);
    return;
  }
  await inParallel(hashes, sweep.inFlightMax, async (hash) => {
    const prefix = `${batchPrefix}${hash}/`;
    const end = `${prefix}${digits20(sweep.cutoff)}/`;
    const startAfter = sweep.fromBase > 0 ? `${prefix}${digits20(sweep.fromBase)}/` : undefined;
    await eachPage(sweep, prefix, end, startAfter, (objects) => takeBatches(sweep, objects));
  });
}

/** Without it there is no candidate that the run before did not see; what a late writer leaves below it is found by the next full run. */
function isCutoffNew(sweep: Sweep): boolean {
  return sweep.fromBase < sweep.cutoff;
}

async function takeBatches(sweep: Sweep, objects: readonly ListedObject[]): Promise<void> {
  const dead: DeadObject[] = [];
  for (const { key, size } of objects) {
    const name = parseBatchKey(key)?.name;
    // A name that is none of ours is left alone.
    if (!name || name.base >= sweep.cutoff || name.base < sweep.fromBase || sweep.live.hasBatch(name)) continue;
    dead.push({ key, size, kind: "batch", reason: batchReason(sweep.manifest, name) });
  }
  await sweep.take(dead);
}

/**
 * Parts of uploads that were never completed. The rule is that of batch objects, and it needs no clock: a key whose base is below the cutoff
 * cannot be staged any more, even while parts of it are still being sent. A producer that is cut off so uploads again under a new name, as after any
 * upload that expired. A store without the right to list uploads is no reason to stop: nothing but storage depends on it.
 */
export async function sweepUploads(sweep: Sweep): Promise<void> {
  const { store } = sweep.log;
  if (!store.abortUploads || !isCutoffNew(sweep)) return;
  const dead = new Map<string, DeadObject>();
  const only = (key: string): boolean => {
    const name = parseBatchKey(key)?.name;
    if (!name || name.base >= sweep.cutoff || sweep.live.hasBatch(name)) return false;
    dead.set(key, { key, size: 0, kind: "upload", reason: "unfinished" });
    return !sweep.dryRun;
  };
  try {
    await store.abortUploads(batchPrefix, 0, { only, signal: sweep.signal });
  } catch (error) {
    if (!isBatchWeaveError(error, "STORE_DENIED")) throw error;
    sweep.warn(`Leftovers of interrupted uploads were not removed: ${error.message}`);
    return;
  }
  sweep.took([...dead.values()]);
}

/** For people; nothing depends on it. */
function batchReason(manifest: Manifest, { producer, seq }: BatchName): DeadReason {
  const state = manifest.producers.get(producer);
  // A silent producer's state is in a table; what it left behind is nearly always trimmed.
  if (!state) return manifest.tables.length > 0 ? "trimmed" : "orphan";
  return seq < state.seq ? "trimmed" : "orphan";
}

/** Index objects with a base below the cutoff: segments, nodes, tables, roots. */
export async function sweepIndex(sweep: Sweep): Promise<void> {
  await eachPage(sweep, indexPrefix, `${indexPrefix}${digits20(sweep.cutoff)}`, undefined, async (objects) => {
    const dead: DeadObject[] = [];
    for (const { key, size } of objects) {
      const name = parseIndexKey(key);
      if (!name || name.base >= sweep.cutoff || sweep.live.hasIndexObject(key)) continue;
      dead.push({ key, size, kind: "index", reason: "unreferenced" });
    }
    await sweep.take(dead);
  });
}

/** Manifests up to the boundary, lowest first. Never the head: the boundary is below it. */
export async function sweepManifests(sweep: Sweep): Promise<void> {
  if (sweep.boundary <= sweep.fromBoundary) return;
  const end = `${manifestPrefix}${digits20(sweep.boundary + 1)}`;
  await eachPage(sweep, manifestPrefix, end, undefined, async (objects) => {
    const dead: DeadObject[] = [];
    for (const { key, size } of objects) {
      const version = parseManifestKey(key);
      if (version === undefined || version > sweep.boundary || version >= sweep.manifest.version) continue;
      dead.push({ key, size, kind: "manifest", reason: "superseded" });
    }
    await sweep.take(dead);
  });
}

/** Intents that are of no use any more. They are hints: deleting one too many only delays a commit. */
export async function sweepIntents(sweep: Sweep): Promise<void> {
  const { log, manifest, signal } = sweep;
  const intents = await listIntents(log.store, log.spec.uuid, { signal });
  const spent = new Set(spentIntents(intents, manifest.producers));
  for (const [key, intent] of intents.keys) {
    // Below the cutoff it cannot be staged; its owner uploads again under a new name.
    const expired = intent.kind === "batches" && intent.batches[0].base < sweep.cutoff;
    if (expired || manifest.closed) spent.add(key);
  }
  const dead = [...spent].map((key): DeadObject => ({ key, size: 0, kind: "intent", reason: "spent" }));
  for (const key of intents.unreadable) dead.push({ key, size: 0, kind: "intent", reason: "unreadable" });
  await sweep.take(dead.sort((a, b) => (a.key < b.key ? -1 : 1)));
}

async function eachPage(
  { log, signal }: Sweep,
  prefix: string,
  end: string,
  after: string | undefined,
  visit: (objects: readonly ListedObject[]) => Promise<void>,
): Promise<void> {
  for (let startAfter = after; ; ) {
    const page = await log.store.list(prefix, { startAfter, signal });
    const last = page.objects.at(-1)?.key;
    await visit(page.objects);
    if (!page.more || last === undefined || last >= end) return;
    startAfter = last;
  }
}
