/**
 * Property: a carrier finds every intent, of any kind and however many there are, in the order in which it stages them, and removes those that a verified
 * state has made useless and no other. Method: intents on a memory store with short pages; states on both sides of each rule.
 */
import { expect, test } from "vitest";
import {
  asEpoch,
  asSeq,
  asVersion,
  batchIntents,
  type Descriptor,
  intentPrefix,
  leavingIntentKey,
  openingIntentKey,
  type ProducerState,
} from "../../src/format/index.js";
import { listIntents, spentIntents } from "../../src/log/intents.js";
import { MemoryStore } from "../../src/store/index.js";
import { HookedStore } from "../lifecycle/hooked-store.js";

const uuid = "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5";
const incarnation = "0123456789ab";
const epoch = asEpoch(2);

function batch(producer: string, seq: number, attempt = 0): Descriptor {
  const extents = [{ cells: 1, size: 200, table: 96, check: 7 }];
  return { producer, epoch, incarnation, seq: asSeq(seq), base: asVersion(0), attempt, extents };
}

function state(change: Partial<ProducerState>): ProducerState {
  return { epoch, incarnation, seq: asSeq(3), at: asVersion(1), resume: { kind: "none" }, ...change };
}

test("all of them, sorted by seq, the newest attempt first", async () => {
  const store = new MemoryStore();
  const opening = { producer: "o", before: asEpoch(1), incarnation };
  const leaving = { producer: "l", epoch, incarnation };
  const foreign = `${intentPrefix}00/nonsense`;
  const batches = [batch("p", 2), batch("p", 1), batch("p", 1, 1), batch("q", 0)];
  const keys = batches.flatMap((one) => batchIntents(uuid, [one]).keys);
  for (const key of [...keys, openingIntentKey(uuid, opening), leavingIntentKey(uuid, leaving), foreign])
    await store.put(key, new Uint8Array(0));
  const found = await listIntents(store, uuid);
  expect(found.openings).toEqual([opening]);
  expect(found.leavings).toEqual([leaving]);
  expect(found.unreadable).toEqual([foreign]);
  expect(found.keys.size).toBe(6);
  expect(found.many).toBe(false);
  const lists = [...found.batches.values()].map((list) => list.map((b) => [b.producer, b.seq, b.attempt]));
  expect(lists.sort()).toEqual([
    [
      ["p", 1, 1],
      ["p", 1, 0],
      ["p", 2, 0],
    ],
    [["q", 0, 0]],
  ]);
});

test("more than a page are listed shard by shard, page by page, at once when the listing before had so many", async () => {
  const inner = new MemoryStore();
  const prefixes: string[] = [];
  const store = new HookedStore(inner, {});
  const list = store.list.bind(store);
  store.list = async (prefix, options) => {
    prefixes.push(prefix);
    return await list(prefix, { ...options, limit: 3 });
  };
  const batches = Array.from({ length: 1_100 }, (_, i) => batch(`p${i % 300}`, 2 * i));
  for (const one of batches) for (const key of batchIntents(uuid, [one]).keys) await inner.put(key, new Uint8Array(0));
  const some = await listIntents(store, uuid);
  expect(prefixes[0]).toBe(intentPrefix);
  // Eight pages of three of each shard; what is left waits for the next commit.
  const shards = new Set(prefixes.slice(1));
  expect(some.keys.size).toBeLessThanOrEqual(24 * shards.size);
  expect(some.keys.size).toBeGreaterThan(3 * shards.size);
  const whole = await listIntents(inner, uuid);
  expect([whole.keys.size, whole.many]).toEqual([1_100, true]);
  prefixes.length = 0;
  await listIntents(store, uuid, { last: whole });
  expect(prefixes).not.toContain(intentPrefix);
});

test("spent is what is in, fenced, opened or left", async () => {
  const store = new MemoryStore();
  const name = { producer: "p", incarnation };
  const kinds = {
    batches: batchIntents(uuid, [batch("p", 1), batch("p", 2)]).keys[0] as string,
    opening: openingIntentKey(uuid, { ...name, before: epoch }),
    leaving: leavingIntentKey(uuid, { ...name, epoch }),
  };
  for (const key of Object.values(kinds)) await store.put(key, new Uint8Array(0));
  const intents = await listIntents(store, uuid);
  const spent = (given: ProducerState | undefined): string[] => {
    const keys = spentIntents(intents, new Map(given ? [["p", given]] : []));
    return Object.entries(kinds).flatMap(([kind, key]) => (keys.includes(key) ? [kind] : []));
  };
  expect(spent(undefined)).toEqual([]);
  expect(spent(state({ seq: asSeq(2) }))).toEqual([]);
  expect(spent(state({ seq: asSeq(3) }))).toEqual(["batches"]);
  expect(spent(state({ seq: asSeq(3), incarnation: "ba9876543210" }))).toEqual([]);
  expect(spent(state({ seq: asSeq(0), left: epoch }))).toEqual(["leaving"]);
  expect(spent(state({ seq: asSeq(0), epoch: asEpoch(3) }))).toEqual(["batches", "opening", "leaving"]);
  expect(spent(state({ seq: asSeq(0), epoch: asEpoch(1) }))).toEqual([]);
});
