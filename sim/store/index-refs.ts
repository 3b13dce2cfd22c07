/** What a manifest needs of `index/`. */
import {
  decodeNode,
  type IndexLevel,
  indexFanout,
  type Manifest,
  type NodeRef,
  nodeRefKey,
  stepsPerNode,
} from "../../src/format/index.js";

/** References to index objects that a version holds itself. */
export function* indexRefs(manifest: Manifest): Iterable<NodeRef> {
  for (const { refs } of manifest.index) yield* refs;
  yield* manifest.tables;
  for (const { resume } of manifest.producers.values()) if (resume.kind === "table") yield resume.table;
  for (const { root } of manifest.pins.values()) yield root;
}

/** Keys of every index object that covers any of the steps `[from, to)`, nodes and what is below them. */
export function* keysWithin(
  levels: readonly IndexLevel[],
  from: number,
  to: number,
  namespace: string,
  read: (key: string) => Uint8Array,
): Iterable<string> {
  const below = function* (ref: NodeRef, level: number, number: number): Iterable<string> {
    const span = stepsPerNode(level);
    if (number * span >= to || (number + 1) * span <= from) return;
    const key = nodeRefKey(ref);
    yield key;
    if (level === 0) return;
    for (const [i, child] of decodeNode(read(key), key, namespace).refs.entries())
      if (child) yield* below(child, level - 1, number * indexFanout + i);
  };
  for (const [level, { start, refs }] of levels.entries())
    for (const [i, ref] of refs.entries()) yield* below(ref, level, start + i);
}
