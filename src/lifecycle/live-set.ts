/** What is live in one verified manifest. Only complete sets come out of here: any missing or damaged object throws. */
import {
  type BatchName,
  batchStem,
  type Descriptor,
  decodeRoot,
  type IndexRoot,
  type Manifest,
  nodeRefKey,
  type Pin,
} from "../format/index.js";
import type { Log } from "../log/index.js";
import type { CallOptions } from "../store/index.js";
import { FingerprintSet } from "./fingerprint-set.js";
import { indexObjects, visitSteps } from "./index-walk.js";

/** Which part of the live set is wanted. */
interface LiveScope {
  /** Batches uploaded on an older base than this are all that matter: younger ones are not deleted. */
  readonly basesBelow: number;
  /** Only batches of this step and later need be known. */
  readonly fromStep: number;
  /** Index objects read at a time. */
  readonly inFlightMax: number;
}

/** The live objects of one namespace at one version. */
export class LiveSet {
  /** Batches in `[trim, end)`, waiting, and pinned. */
  readonly #batches = new FingerprintSet();
  /** Last batches of producers, which hold their resume points. */
  readonly #last = new Set<string>();
  readonly #index = new Set<string>();

  /** One upload of a batch, all its extents alike. */
  hasBatch(name: BatchName): boolean {
    const text = uploadName(name);
    return this.#last.has(text) || this.#batches.has(text);
  }

  /** A producer's last batch, which holds its resume point. */
  isLast(name: BatchName): boolean {
    return this.#last.has(uploadName(name));
  }

  /** Last batches that are live for that reason alone. */
  isOnlyLast(name: BatchName): boolean {
    const text = uploadName(name);
    return this.#last.has(text) && !this.#batches.has(text);
  }

  hasIndexObject(key: string): boolean {
    return this.#index.has(key);
  }

  addBatch(descriptor: Descriptor, basesBelow: number): void {
    // What an ancestor holds is not ours to delete.
    if (descriptor.origin === undefined && descriptor.base < basesBelow) this.#batches.add(uploadName(descriptor));
  }

  addLast(name: BatchName): void {
    this.#last.add(uploadName(name));
  }

  addIndexObject(key: string): void {
    this.#index.add(key);
  }
}

function uploadName(name: BatchName): string {
  return `${name.base}/${batchStem(name)}`;
}

/** The first step whose descriptor this namespace's own index or tail holds. */
export function firstIndexedStep(log: Log): number {
  return log.spec.fork?.tail.start ?? 0;
}

/** Reads the root that a pin holds. */
export function readRoot(log: Log, pin: Pin, options?: CallOptions): Promise<IndexRoot> {
  return log.index.readObject({ store: log.store, namespace: log.spec.uuid }, pin.root, decodeRoot, options);
}

/** Computes what is live in `manifest`, which must be verified. */
export async function computeLive(
  log: Log,
  manifest: Manifest,
  scope: LiveScope,
  options?: CallOptions,
): Promise<LiveSet> {
  const live = new LiveSet();
  const add = (descriptor: Descriptor): void => live.addBatch(descriptor, scope.basesBelow);
  const { trim, end } = manifest.steps;
  const first = Math.max(trim, firstIndexedStep(log));
  const head = { tree: manifest, from: first, to: end };
  for (const { ref } of await indexObjects(log, head, options)) live.addIndexObject(nodeRefKey(ref));
  await visitSteps(log, { ...head, from: Math.max(first, scope.fromStep) }, add, scope.inFlightMax, options);
  for (const descriptor of manifest.waiting.values()) add(descriptor);
  for (const table of manifest.tables) live.addIndexObject(nodeRefKey(table));
  for (const [producer, { resume }] of manifest.producers) {
    if (resume.kind === "table") live.addIndexObject(nodeRefKey(resume.table));
    if (resume.kind === "batch") live.addLast({ producer, ...resume.batch });
  }
  for (const pin of manifest.pins.values()) await addPinned(log, pin, trim, live, scope, options);
  return live;
}

/** Steps never change, so what a pin shares with `[trim, end)` is known already: only its index objects are its own. */
async function addPinned(
  log: Log,
  pin: Pin,
  trim: number,
  live: LiveSet,
  scope: LiveScope,
  options: CallOptions | undefined,
): Promise<void> {
  live.addIndexObject(nodeRefKey(pin.root));
  const tree = await readRoot(log, pin, options);
  const range = { tree, from: Math.max(pin.from, firstIndexedStep(log)), to: pin.to };
  for (const { ref } of await indexObjects(log, range, options)) live.addIndexObject(nodeRefKey(ref));
  const below = { ...range, from: Math.max(range.from, scope.fromStep), to: Math.min(pin.to, trim) };
  await visitSteps(log, below, (d) => live.addBatch(d, scope.basesBelow), scope.inFlightMax, options);
}
