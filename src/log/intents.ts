/** Finding and carrying intents: any producer may commit any other's uploaded batches, because a merge is a union by producer state. */
import { isBatchWeaveError } from "../errors.js";
import {
  asEpoch,
  batchIntents,
  type Descriptor,
  entryBytes,
  hasLeft,
  type Intent,
  intentPrefix,
  intentShard,
  intentShards,
  type LeavingIntent,
  leavingIntentKey,
  type NamespaceSpec,
  type OpeningIntent,
  type ProducerState,
  parseIntentKey,
  trailerBytes,
} from "../format/index.js";
import type { CallOptions, ObjectStore } from "../store/index.js";
import type { Draft } from "./draft.js";
import { type Holder, holds, type SilentFinding, stageBatches, stageLeaving, stageOpening } from "./stage.js";

/** Keys on one page of a LIST. */
const pageKeys = 1_000;
const shardPagesMax = 8;

/** What lies in the intent prefix. */
export interface Intents {
  /** Per producer incarnation, in seq order. */
  readonly batches: ReadonlyMap<string, readonly Descriptor[]>;
  readonly openings: readonly OpeningIntent[];
  readonly leavings: readonly LeavingIntent[];
  /** Every key, with what it says, for removing the spent ones. */
  readonly keys: ReadonlyMap<string, Intent>;
  /** Keys that say nothing to us: damaged, or left by a namespace that was here before. Reclaim deletes them. */
  readonly unreadable: readonly string[];
  /** They do not fit on one page: a carrier that lists again soon should list the shards at once. */
  readonly many: boolean;
}

export const noIntents: Intents = {
  batches: new Map(),
  openings: [],
  leavings: [],
  keys: new Map(),
  unreadable: [],
  many: false,
};

/** Options of {@link listIntents}. */
interface ListIntentsOptions extends CallOptions {
  /** The listing before: names it has are not parsed again, and it tells whether to list the shards at once. */
  readonly last?: Intents | undefined;
}

/** Lists the intents. */
export async function listIntents(
  store: ObjectStore,
  namespace: string,
  { last = noIntents, signal }: ListIntentsOptions = {},
): Promise<Intents> {
  const keys = new Map<string, Intent>();
  const batches = new Map<string, Descriptor[]>();
  const openings: OpeningIntent[] = [];
  const leavings: LeavingIntent[] = [];
  const unreadable: string[] = [];
  const listed = last.many ? await listShards(store, { signal }) : await listKeys(store, { signal });
  for (const { key } of listed) {
    const intent = last.keys.get(key) ?? parseIntentKey(namespace, key);
    if (!intent) {
      unreadable.push(key);
      continue;
    }
    keys.set(key, intent);
    if (intent.kind === "opening") {
      openings.push(intent.opening);
      continue;
    }
    if (intent.kind === "leaving") {
      leavings.push(intent.leaving);
      continue;
    }
    const { producer, epoch, incarnation } = intent.batches[0];
    const owner = `${producer}/${epoch}/${incarnation}`;
    const list = batches.get(owner);
    if (list) list.push(...intent.batches);
    else batches.set(owner, [...intent.batches]);
  }
  for (const list of batches.values()) list.sort((a, b) => a.seq - b.seq || b.attempt - a.attempt);
  return { batches, openings, leavings, keys, unreadable, many: listed.length > pageKeys };
}

type Keys = readonly { readonly key: string }[];

/** One page when that is all; else every shard. */
async function listKeys(store: ObjectStore, options: CallOptions): Promise<Keys> {
  const first = await store.list(intentPrefix, { ...options, keysOnly: true });
  return first.more ? await listShards(store, options) : first.objects;
}

/** All shards at the same time: a carrier of thousands must not walk page by page. */
async function listShards(store: ObjectStore, options: CallOptions): Promise<Keys> {
  const shards = Array.from({ length: intentShards }, (_, n) => listShard(store, intentShard(n), options));
  return (await Promise.all(shards)).flat();
}

/** A few pages; the rest waits for the next commit. */
async function listShard(store: ObjectStore, shard: string, options: CallOptions): Promise<Keys> {
  const keys: { readonly key: string }[] = [];
  for (let page = 0; page < shardPagesMax; page++) {
    const { objects, more } = await store.list(shard, { ...options, keysOnly: true, startAfter: keys.at(-1)?.key });
    keys.push(...objects);
    if (!more) break;
  }
  return keys;
}

/** Publishes intents of a producer's batches. False: one has too many extents for a name, so the owner must commit. */
export async function publishIntents(
  store: ObjectStore,
  namespace: string,
  batches: readonly Descriptor[],
  options?: CallOptions,
): Promise<boolean> {
  const { keys, unnamed } = batchIntents(namespace, batches);
  await Promise.all(keys.map((key) => store.put(key, new Uint8Array(0), { ...options, hint: true })));
  return unnamed.length === 0;
}

/** Says that a producer's holder closed it, for the next committer to write down. */
export async function publishLeaving(
  store: ObjectStore,
  namespace: string,
  { producer, epoch, incarnation }: Holder,
  options?: CallOptions,
): Promise<void> {
  const key = leavingIntentKey(namespace, { producer, epoch: asEpoch(epoch), incarnation });
  await store.put(key, new Uint8Array(0), { ...options, hint: true });
}

/** Stages what may be carried; returns how many batches, openings and leavings. Whatever does not fit is its owner's business. */
export function stageIntents(
  draft: Draft,
  spec: NamespaceSpec,
  intents: Intents,
  silent: ReadonlyMap<string, SilentFinding>,
): number {
  let carried = 0;
  for (const opening of intents.openings) if (stageOpeningIntent(draft, opening, silent)) carried++;
  for (const batches of intents.batches.values()) carried += stageCarried(draft, spec, batches);
  for (const leaving of intents.leavings) if (stageLeaving(draft, leaving)) carried++;
  return carried;
}

/** Only while the epoch is still the one the opener saw: a late intent must not fence a successor. */
function stageOpeningIntent(draft: Draft, opening: OpeningIntent, silent: ReadonlyMap<string, SilentFinding>): boolean {
  const inline = draft.producers.get(opening.producer);
  const found = inline ? undefined : silent.get(opening.producer);
  // State may be in a table that this committer did not look into: then only the opener itself, which looks, may open.
  if (!inline && !found && draft.tables.length > 0) return false;
  const before = inline?.epoch ?? found?.state.epoch ?? 0;
  if (before !== opening.before || draft.closed) return false;
  return !stageOpening(draft, opening.producer, opening.incarnation, found);
}

function stageCarried(draft: Draft, spec: NamespaceSpec, listed: readonly Descriptor[]): number {
  const first = listed[0] as Descriptor;
  const state: ProducerState | undefined = draft.producers.get(first.producer);
  // Epoch and incarnation must match the base: a zombie's upload is never carried past its successor.
  if (!state || !holds(state, first) || draft.closed) return 0;
  let carried = 0;
  let seq: number = state.seq;
  for (const batch of listed) {
    if (batch.seq < seq) continue;
    // A gap: its intent is late or lost. Carrying on would break the sequence.
    if (batch.seq > seq || !isWellFormed(batch, spec)) break;
    try {
      if (stageBatches(draft, spec, first, [batch])[0] !== "staged") break;
    } catch (error) {
      // A poisoned intent is skipped by helpers and fails its owner.
      if (isBatchWeaveError(error)) break;
      throw error;
    }
    seq++;
    carried++;
  }
  return carried;
}

/** What can be checked of a descriptor without reading the object. */
function isWellFormed(batch: Descriptor, spec: NamespaceSpec): boolean {
  const cells = batch.extents.reduce((sum, e) => sum + e.cells, 0);
  return (
    cells === spec.grid.rows * spec.grid.chunks &&
    batch.extents.every(
      (e) => e.size === e.table + e.cells * entryBytes + trailerBytes && e.cells * (batch.stride ?? 0) <= e.table,
    )
  );
}

/** Intents that a verified state has made useless: all committed, fenced, or an opening that happened or was overtaken. */
export function spentIntents(intents: Intents, producers: ReadonlyMap<string, ProducerState>): string[] {
  return [...intents.keys].filter(([, intent]) => isSpent(intent, producers)).map(([key]) => key);
}

function isSpent(intent: Intent, producers: ReadonlyMap<string, ProducerState>): boolean {
  if (intent.kind === "opening") {
    const { producer, before } = intent.opening;
    return (producers.get(producer)?.epoch ?? 0) > before;
  }
  if (intent.kind === "leaving") {
    const state = producers.get(intent.leaving.producer);
    return state !== undefined && (state.epoch > intent.leaving.epoch || hasLeft(state));
  }
  const [first] = intent.batches;
  const state = producers.get(first.producer);
  if (!state) return false;
  return state.epoch > first.epoch || (holds(state, first) && first.seq + intent.batches.length <= state.seq);
}
