/** What a manifest needs of `index/`. */
import { type IndexLevel, type Manifest, type NodeRef, stepsPerNode } from "../../src/format/index.js";

/** References to index objects that a version holds itself. */
export function* indexRefs(manifest: Manifest): Iterable<NodeRef> {
  for (const { refs } of manifest.index) yield* refs;
  yield* manifest.tables;
  for (const { resume } of manifest.producers.values()) if (resume.kind === "table") yield resume.table;
  for (const { root } of manifest.pins.values()) yield root;
}

/** References to what covers any of the steps `[from, to)`. */
export function refsWithin(levels: readonly IndexLevel[], from: number, to: number): NodeRef[] {
  return levels.flatMap(({ start, refs }, level) => {
    const span = stepsPerNode(level);
    return refs.filter((_, i) => (start + i) * span < to && (start + i + 1) * span > from);
  });
}
