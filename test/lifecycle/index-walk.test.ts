/**
 * Properties: a walk over the step index names every object that covers a range of steps, each once, parents before children, and visits each step once; an index with a hole,
 * or one that leads to another place, is refused, and the error says from which step on more can be read. Method: an index of two levels of nodes, ranges around every
 * border of it, compared with a list that is counted out; holes and swapped references one by one.
 */
import { beforeAll, expect, test } from "vitest";
import {
  asEpoch,
  asSeq,
  asStep,
  asVersion,
  crc32,
  type Descriptor,
  encodeNode,
  encodeRoot,
  genesisManifest,
  type IndexLevel,
  indexFanout,
  type Manifest,
  type NamespaceSpec,
  type NodeRef,
  nodeRefKey,
} from "../../src/format/index.js";
import { indexObjects, visitSteps } from "../../src/lifecycle/index-walk.js";
import { Draft, Log } from "../../src/log/index.js";
import { unreadableUntil } from "../../src/log/step-index.js";
import { MemoryStore } from "../../src/store/index.js";
import { AutoEnv } from "./auto-env.js";

const spec: NamespaceSpec = {
  format: 1,
  uuid: "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5",
  grid: { rows: 1, chunks: 1 },
  order: { kind: "commit" },
  created: 0,
  rest: {},
};
const [segment, node] = [indexFanout, indexFanout ** 2];
/** Two nodes, three segments and a tail of five. */
const sealed = 2 * node + 3 * segment;
const end = sealed + 5;
const store = new MemoryStore("memory:walk");
let manifest: Manifest;
let made = 0;

/** A process that starts now. */
function open(): Log {
  return new Log({ store, env: new AutoEnv(), spec, openOrigin: () => Promise.reject(new Error("no forks here")) });
}

function batchAt(step: number): Descriptor {
  const name = { producer: "p", epoch: asEpoch(1), seq: asSeq(step), incarnation: "0123456789ab", attempt: 0 };
  return { ...name, base: asVersion(0), extents: [{ cells: 1, size: 300, table: 100, check: step }] };
}

beforeAll(async () => {
  const commit = { id: "000000000001", by: "test", time: 0, boundaryHint: 0 };
  const draft = new Draft(genesisManifest(spec), commit);
  while (draft.end < end) draft.push(batchAt(draft.end));
  manifest = draft.finish();
  for (const { key, bytes } of draft.sealed) await store.create(key, bytes);
  expect(manifest.index.map(({ start, refs }) => [start, refs.length])).toEqual([
    [2 * indexFanout, 3],
    [0, 2],
  ]);
});

/** `[level, first step]` of all that a walk must name. */
function expected(from: number, to: number): string[] {
  const found: string[] = [];
  const covers = (start: number, steps: number): boolean => start < to && start + steps > from;
  for (let start = 0; start < sealed; start += segment) if (covers(start, segment)) found.push(`0 ${start}`);
  for (let start = 0; start < 2 * node; start += node) if (covers(start, node)) found.push(`1 ${start}`);
  return found.sort();
}

const borders = [0, 1, segment, node, 2 * node, sealed, end].flatMap((at) => [at - 1, at, at + 1]);
const places = borders.filter((at) => at >= 0 && at <= end);

test("every object of a range is named once, parents first", async () => {
  const log = open();
  for (const from of places)
    for (const to of places.filter((at) => at >= from)) {
      const found = await indexObjects(log, { tree: manifest, from, to });
      expect(found.map(({ level, start }) => `${level} ${start}`).sort()).toEqual(
        from >= Math.min(to, sealed) ? [] : expected(from, Math.min(to, sealed)),
      );
      expect(new Set(found.map(({ ref }) => nodeRefKey(ref))).size).toBe(found.length);
      const levels = found.filter(({ start }) => start < node).map(({ level }) => level);
      expect(levels).toEqual([...levels].sort((a, b) => b - a));
    }
});

test("every step of a range is visited once, with its own batch", async () => {
  const log = open();
  for (const [from, to] of [
    [0, end],
    [1, 2],
    [segment - 1, segment + 1],
    [node - 1, node + 1],
    [2 * node - 70, 2 * node + 70],
    [sealed - 1, sealed + 1],
    [sealed, end],
    [sealed + 1, end - 1],
    [end, end],
  ] as const) {
    const seen: number[] = [];
    await visitSteps(
      log,
      { tree: manifest, from, to },
      ({ seq }, step) => seen.push(seq === step ? step : Number.NaN),
      3,
    );
    expect(seen.sort((a, b) => a - b)).toEqual(Array.from({ length: to - from }, (_, i) => from + i));
  }
});

const level = (i: number): IndexLevel => manifest.index[i] as IndexLevel;
const refOf = (i: number, k: number): NodeRef => level(i).refs[k] as NodeRef;

/** Stores a node and refers to it. */
async function nodeWith(start: number, refs: readonly (NodeRef | null)[], at = 1): Promise<NodeRef> {
  const bytes = encodeNode(spec.uuid, { level: at, start: asStep(start), refs });
  const ref = { base: asVersion(9), commitId: "0000000000aa", k: made++, check: crc32(bytes) };
  await store.put(nodeRefKey(ref), bytes);
  return ref;
}

async function childrenOf(k: number): Promise<(NodeRef | null)[]> {
  const found = await indexObjects(open(), { tree: manifest, from: k * node, to: (k + 1) * node });
  return found.filter((object) => object.level === 0).map(({ ref }) => ref);
}

test("a hole is refused, and said to end where the next reference begins", async () => {
  const [first, second] = [await childrenOf(0), await childrenOf(1)];
  const without = (refs: readonly (NodeRef | null)[], k: number) => refs.map((ref, i) => (i === k ? null : ref));
  const segments = { start: 2 * indexFanout, refs: level(0).refs };
  const nodes = { start: 0, refs: level(1).refs };
  const holed = await nodeWith(0, without(first, 3));
  const holedAtFirst = await nodeWith(node, without(second, 0));
  const cases: [string, readonly IndexLevel[], number, number][] = [
    ["no segments", [{ ...segments, refs: [] }, nodes], 2 * node + 1, sealed],
    ["no nodes", [segments, { start: 0, refs: [] }], 100, 2 * node],
    ["no first node", [segments, { start: 1, refs: [refOf(1, 1)] }], 100, node],
    [
      "no first segment",
      [{ start: 2 * indexFanout + 1, refs: level(0).refs.slice(1) }, nodes],
      2 * node,
      2 * node + segment,
    ],
    ["no last segment", [{ ...segments, refs: level(0).refs.slice(0, 2) }, nodes], sealed - 1, sealed],
    ["a node without one", [segments, { start: 0, refs: [holed, refOf(1, 1)] }], 3 * segment + 7, 4 * segment],
    ["a second node without its first", [segments, { start: 1, refs: [holedAtFirst] }], node, node + segment],
    ["a node without its first", [segments, { start: 0, refs: [refOf(1, 0), holedAtFirst] }], node, node + segment],
  ];
  for (const [name, index, step, until] of cases) {
    const tree = { ...manifest, index };
    const error = await open()
      .locate(tree, asStep(step))
      .catch((e) => e);
    expect([name, error.code, unreadableUntil(error)]).toEqual([name, "CORRUPT", until]);
    await expect(indexObjects(open(), { tree, from: 0, to: end }), name).rejects.toMatchObject({ code: "CORRUPT" });
    expect((await open().locate(tree, asStep(until))).descriptor.seq, name).toBe(until);
  }
});

test("a reference that leads elsewhere is refused by whoever follows it", async () => {
  const [first] = [await childrenOf(0)];
  const swapped = await nodeWith(0, [first[1] as NodeRef, first[0] as NodeRef, ...first.slice(2)]);
  const shifted = await nodeWith(node, first);
  const higher = await nodeWith(0, first, 2);
  const cases: [string, readonly IndexLevel[]][] = [
    ["two segments swapped", [level(0), { start: 0, refs: [swapped, refOf(1, 1)] }]],
    ["a node of another place", [level(0), { start: 0, refs: [shifted, refOf(1, 1)] }]],
    ["a node of another level", [level(0), { start: 0, refs: [higher, refOf(1, 1)] }]],
    ["the second node for the first", [level(0), { start: 0, refs: [refOf(1, 1), refOf(1, 1)] }]],
  ];
  for (const [name, index] of cases) {
    const tree = { ...manifest, index };
    await expect(open().locate(tree, asStep(5)), name).rejects.toMatchObject({ code: "CORRUPT" });
    const visit = visitSteps(open(), { tree, from: 0, to: end }, () => {}, 2);
    await expect(visit, name).rejects.toMatchObject({ code: "CORRUPT" });
  }
});

test("an object that is gone takes with it what it covers, and no more", async () => {
  const [ref] = await childrenOf(0);
  for (const [gone, until] of [
    [ref as NodeRef, segment],
    [refOf(1, 0), node],
    [refOf(0, 0), 2 * node + segment],
  ] as const) {
    const key = nodeRefKey(gone);
    const bytes = (await store.get(key)) as Uint8Array;
    await store.delete([key]);
    const step = until - 1;
    const error = await open()
      .locate(manifest, asStep(step))
      .catch((e) => e);
    expect([error.code, unreadableUntil(error)]).toEqual(["MISSING_OBJECT", until]);
    await store.put(key, bytes);
    expect((await open().locate(manifest, asStep(step))).descriptor.seq).toBe(step);
  }
});

test("a fork that shares more than its ancestor's root holds is told so, and until where", async () => {
  const tail = { start: asStep(sealed), batches: [batchAt(sealed), batchAt(sealed + 1)] };
  const bytes = encodeRoot(spec.uuid, { index: manifest.index, tail });
  const root = { base: asVersion(9), commitId: "0000000000bb", k: made++, check: crc32(bytes) };
  await store.put(nodeRefKey(root), bytes);
  const ranges = [{ at: asStep(10), count: sealed + 5, from: asStep(0) }];
  const origins = [{ uuid: spec.uuid, uri: store.uri, format: 1 as const, root, ranges }];
  const start = asStep(10 + sealed + 5);
  const fork: NamespaceSpec = {
    ...spec,
    uuid: spec.uuid.replace("6f", "7f"),
    fork: { origins, tail: { start, batches: [] } },
  };
  const log = new Log({ store: new MemoryStore(), env: new AutoEnv(), spec: fork, openOrigin: async () => store });
  const tree = { ...genesisManifest(fork), steps: { trim: asStep(10), end: start } };
  for (const step of [10, 10 + node, 10 + sealed, 11 + sealed])
    expect((await log.locate(tree, asStep(step))).descriptor.seq).toBe(step - 10);
  const error = await log.locate(tree, asStep(12 + sealed)).catch((e) => e);
  expect([error.code, unreadableUntil(error)]).toEqual(["CORRUPT", 10 + sealed + 5]);
});
