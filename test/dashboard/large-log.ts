/** A log of ten million steps and ten thousand producers, of which only those index objects exist that lie on the way to given steps. */
import {
  asEpoch,
  asSeq,
  asStep,
  asVersion,
  crc32,
  type Descriptor,
  encodeManifest,
  encodeNamespace,
  encodeNode,
  encodeSegment,
  genesisManifest,
  type IndexLevel,
  indexFanout,
  type Manifest,
  manifestKey,
  type NamespaceSpec,
  type NodeRef,
  namespaceKey,
  nodeRefKey,
  type ProducerState,
  stepsPerNode,
} from "../../src/format/index.js";
import { MemoryStore } from "../../src/store/index.js";

const spec: NamespaceSpec = {
  format: 1,
  uuid: "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5",
  grid: { rows: 2, chunks: 1 },
  order: { kind: "commit" },
  created: 0,
  rest: {},
};

const commitId = "0123456789ab";

function batchAt(step: number, producers: number): Descriptor {
  return {
    producer: `p-${step % producers}`,
    epoch: asEpoch(1),
    seq: asSeq(step),
    incarnation: commitId,
    attempt: 0,
    base: asVersion(0),
    extents: [{ cells: 2, size: 1_000 + (step % 7) * 100, table: 100, check: step }],
  };
}

/** Makes the log. `looked`: steps whose segments can be read. */
export async function largeLog(end: number, producers: number, looked: readonly number[]): Promise<MemoryStore> {
  const store = new MemoryStore();
  let k = 0;
  const put = async (bytes: Uint8Array): Promise<NodeRef> => {
    const ref = { base: asVersion(1), commitId, k: k++, check: crc32(bytes) };
    await store.put(nodeRefKey(ref), bytes);
    return ref;
  };
  const absent: NodeRef = { base: asVersion(1), commitId, k: 9_999_999, check: 1 };
  const isLooked = (start: number, level: number): boolean =>
    looked.some((step) => step >= start && step < start + stepsPerNode(level));
  const make = async (start: number, level: number): Promise<NodeRef> => {
    if (!isLooked(start, level)) return absent;
    if (level === 0) {
      const batches = Array.from({ length: indexFanout }, (_, i) => batchAt(start + i, producers));
      return await put(encodeSegment(spec.uuid, { start: asStep(start), batches }));
    }
    const refs: NodeRef[] = [];
    for (let i = 0; i < indexFanout; i++) refs.push(await make(start + i * stepsPerNode(level - 1), level - 1));
    return await put(encodeNode(spec.uuid, { level, start: asStep(start), refs }));
  };
  const tailStart = end - (end % indexFanout);
  const index: IndexLevel[] = [];
  for (let level = 0; stepsPerNode(level) <= tailStart; level++) {
    // Full objects of this level that no full object of the level above covers.
    const first = Math.floor(tailStart / stepsPerNode(level + 1)) * indexFanout;
    const count = Math.floor(tailStart / stepsPerNode(level)) - first;
    const refs: NodeRef[] = [];
    for (let i = 0; i < count; i++) refs.push(await make((first + i) * stepsPerNode(level), level));
    index.push({ start: first, refs });
  }
  const states = new Map<string, ProducerState>();
  for (let p = 0; p < producers; p++) {
    const at = asVersion(1 + (p % 60));
    states.set(`p-${p}`, { epoch: asEpoch(1), incarnation: commitId, seq: asSeq(p), at, resume: { kind: "none" } });
  }
  const genesis = genesisManifest(spec);
  const write = (version: number, change: Partial<Manifest>): Promise<void> => {
    const commit = { id: commitId, by: "p-0", time: Date.now() - (60 - version) * 60_000, kind: "carrier" };
    return store.put(
      manifestKey(asVersion(version)),
      encodeManifest({ ...genesis, version: asVersion(version), commit, ...change }),
    );
  };
  for (let version = 1; version < 60; version++) await write(version, {});
  await write(60, {
    steps: { trim: asStep(0), end: asStep(end) },
    index,
    tail: {
      start: asStep(tailStart),
      batches: Array.from({ length: end - tailStart }, (_, i) => batchAt(tailStart + i, producers)),
    },
    producers: states,
  });
  await store.put(namespaceKey, encodeNamespace(spec));
  return store;
}
