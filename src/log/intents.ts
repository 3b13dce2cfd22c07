/** Finding and carrying intents: anyone may commit anyone's uploaded batches, because a merge is a union by producer state. */
import { isBatchWeaveError } from "../errors.js";
import {
  batchIntentKey,
  type Descriptor,
  entryBytes,
  intentPrefix,
  intentShard,
  intentShards,
  type NamespaceSpec,
  type OpeningIntent,
  type ProducerState,
  parseIntentKey,
  trailerBytes,
} from "../format/index.js";
import type { CallOptions, ObjectStore } from "../store/index.js";
import type { Draft } from "./draft.js";
import { holds, type SilentFinding, stageBatches, stageOpening } from "./stage.js";

/** Keys on one page of a LIST. */
const pageKeys = 1_000;
const shardPagesMax = 8;

/** What lies in the intent prefix. */
export interface Intents {
  /** Per producer incarnation, in seq order. */
  readonly batches: ReadonlyMap<string, readonly Descriptor[]>;
  readonly openings: readonly OpeningIntent[];
  /** Every key, with what it says, for removing the spent ones. */
  readonly keys: ReadonlyMap<string, Descriptor | OpeningIntent>;
  /** Keys that say nothing to us: damaged, or left by a namespace that was here before. Reclaim deletes them. */
  readonly unreadable: readonly string[];
  /** They do not fit on one page: whoever lists again soon should list the shards at once. */
  readonly many: boolean;
}

export const noIntents: Intents = { batches: new Map(), openings: [], keys: new Map(), unreadable: [], many: false };

/** Options of {@link listIntents}. */
export interface ListIntentsOptions extends CallOptions {
  /** What the last listing said; a wrong guess costs time or requests, nothing else. */
  readonly many?: boolean | undefined;
}

/** Lists the intents. */
export async function listIntents(
  store: ObjectStore,
  namespace: string,
  { many, signal }: ListIntentsOptions = {},
): Promise<Intents> {
  const keys = new Map<string, Descriptor | OpeningIntent>();
  const batches = new Map<string, Descriptor[]>();
  const openings: OpeningIntent[] = [];
  const unreadable: string[] = [];
  const listed = many ? await listShards(store, { signal }) : await listKeys(store, { signal });
  for (const { key } of listed) {
    const intent = parseIntentKey(namespace, key);
    if (!intent) {
      unreadable.push(key);
    } else if (intent.kind === "opening") {
      openings.push(intent.opening);
      keys.set(key, intent.opening);
    } else {
      const owner = `${intent.batch.producer}/${intent.batch.epoch}/${intent.batch.incarnation}`;
      const list = batches.get(owner);
      if (list) list.push(intent.batch);
      else batches.set(owner, [intent.batch]);
      keys.set(key, intent.batch);
    }
  }
  for (const list of batches.values()) list.sort((a, b) => a.seq - b.seq || b.attempt - a.attempt);
  return { batches, openings, keys, unreadable, many: listed.length > pageKeys };
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

/** Publishes a batch's intent. False: it has too many extents for a name, so the owner must commit it. */
export async function publishIntent(
  store: ObjectStore,
  namespace: string,
  batch: Descriptor,
  options?: CallOptions,
): Promise<boolean> {
  const key = batchIntentKey(namespace, batch);
  if (key === undefined) return false;
  await store.put(key, new Uint8Array(0), { ...options, hint: true });
  return true;
}

/** Stages what may be carried; returns how many batches and openings. Whatever does not fit is its owner's business. */
export function stageIntents(
  draft: Draft,
  spec: NamespaceSpec,
  intents: Intents,
  silent: ReadonlyMap<string, SilentFinding>,
): number {
  let carried = 0;
  for (const opening of intents.openings) if (stageOpeningIntent(draft, opening, silent)) carried++;
  for (const batches of intents.batches.values()) carried += stageCarried(draft, spec, batches);
  return carried;
}

/** Only while the epoch is still the one the opener saw: a late intent must not fence a successor. */
function stageOpeningIntent(draft: Draft, opening: OpeningIntent, silent: ReadonlyMap<string, SilentFinding>): boolean {
  const inline = draft.producers.get(opening.producer);
  const found = inline ? undefined : silent.get(opening.producer);
  // State may be in a table nobody looked into: then only the opener itself, which looks, may open.
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
    batch.extents.every((e) => e.size === e.table + e.cells * entryBytes + trailerBytes)
  );
}

/** Intents that a verified state has made useless: committed, fenced, or an opening that happened or was overtaken. */
export function spentIntents(intents: Intents, producers: ReadonlyMap<string, ProducerState>): string[] {
  const spent: string[] = [];
  for (const [key, intent] of intents.keys) {
    const state = producers.get(intent.producer);
    if (!state) continue;
    const done =
      "before" in intent
        ? state.epoch > intent.before
        : state.epoch > intent.epoch || (holds(state, intent) && intent.seq < state.seq);
    if (done) spent.push(key);
  }
  return spent;
}
