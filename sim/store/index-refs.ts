/** What a manifest needs of `index/`. */
import type { Manifest, NodeRef } from "../../src/format/index.js";

/** References to index objects that a version holds itself. */
export function* indexRefs(manifest: Manifest): Iterable<NodeRef> {
  for (const { refs } of manifest.index) yield* refs;
  yield* manifest.tables;
  for (const { resume } of manifest.producers.values()) if (resume.kind === "table") yield resume.table;
  for (const { root } of manifest.pins.values()) yield root;
}
