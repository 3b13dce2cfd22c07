/**
 * The step index: an append-only radix tree of immutable objects. A segment holds the descriptors of 64 steps, a node of
 * level L the references of 64 objects of level L-1. The manifest keeps, per level, the references that do not fill a node
 * yet, so it stays small however long the history is and no object is ever rewritten.
 */
import { asStep, asVersion, type Step, type Version } from "./brand.js";
import { type Descriptor, decodeDescriptor, encodeDescriptor } from "./descriptor.js";
import { JsonText, openJson, remembered, sealJson } from "./json-object.js";
import { indexKey } from "./keys.js";
import { asId, asInteger, asList, asTuple, corrupt } from "./shape.js";

/** Children of a node, descriptors of a segment. */
export const indexFanout = 64;

/** A reference to an index object (segment, node, table, root): its key is derived from it. */
export interface NodeRef {
  readonly base: Version;
  readonly commitId: string;
  readonly k: number;
  /** CRC-32 of the whole object. */
  readonly check: number;
}

/** References of one level in the manifest; `start` is the number of the first among all objects of that level. */
export interface IndexLevel {
  readonly start: number;
  readonly refs: readonly NodeRef[];
}

/** Descriptors of steps `[start, start + batches.length)`. */
export interface Run {
  readonly start: Step;
  readonly batches: readonly Descriptor[];
}

/** References of 64 objects of the level below; null where the trim had passed before the node was made. */
export interface IndexNode {
  readonly level: number;
  readonly start: Step;
  readonly refs: readonly (NodeRef | null)[];
}

/** Steps under one object of a level (0: segments). */
export function stepsPerNode(level: number): number {
  return indexFanout ** (level + 1);
}

/** Key of a referenced index object. */
export function nodeRefKey(ref: NodeRef): string {
  return indexKey(ref.base, ref.commitId, ref.k);
}

export function encodeNodeRef(ref: NodeRef): unknown[] {
  return [ref.base, ref.commitId, ref.k, ref.check];
}

export function decodeNodeRef(value: unknown, where: string): NodeRef {
  const list = asTuple(value, 4, where, "reference");
  return {
    base: asVersion(asInteger(list[0], where, "reference.base")),
    commitId: asId(list[1], where, "reference.commitId"),
    k: asInteger(list[2], where, "reference.k"),
    check: asInteger(list[3], where, "reference.check"),
  };
}

export function encodeLevels(levels: readonly IndexLevel[]): unknown[] {
  return levels.map((level) => [level.start, level.refs.map(encodeNodeRef)]);
}

export function decodeLevels(value: unknown, where: string): IndexLevel[] {
  return asList(value, where, "index").map((item) => {
    const level = asTuple(item, 2, where, "index level");
    return {
      start: asInteger(level[0], where, "index level start"),
      refs: asList(level[1], where, "index level refs").map((ref) => decodeNodeRef(ref, where)),
    };
  });
}

export function encodeRun(run: Run): { start: Step; batches: unknown[] } {
  return { start: run.start, batches: run.batches.map(encodeDescriptor) };
}

const descriptorText = remembered(encodeDescriptor);

/** As {@link encodeRun}, for sealing. */
export function runText({ start, batches }: Run): JsonText {
  return new JsonText(`{"start":${start},"batches":[${batches.map(descriptorText).join(",")}]}`);
}

export function decodeRun(value: unknown, where: string): Run {
  const record = value as { start?: unknown; batches?: unknown } | null;
  if (typeof record !== "object" || record === null) return corrupt(where, "a run of batches is not an object");
  return {
    start: asStep(asInteger(record.start, where, "start")),
    batches: asList(record.batches, where, "batches").map((d) => decodeDescriptor(d, where)),
  };
}

/** A full segment: 64 descriptors. */
export function encodeSegment(namespace: string, run: Run): Uint8Array {
  return sealJson("segment", namespace, {
    start: run.start,
    batches: new JsonText(`[${run.batches.map(descriptorText).join(",")}]`),
  });
}

export function decodeSegment(bytes: Uint8Array, where: string, namespace: string): Run {
  const run = decodeRun(openJson(bytes, where, "segment", namespace), where);
  if (run.batches.length !== indexFanout || run.start % indexFanout !== 0) corrupt(where, "it is not a full segment");
  return run;
}

export function encodeNode(namespace: string, node: IndexNode): Uint8Array {
  const refs = node.refs.map((ref) => (ref === null ? 0 : encodeNodeRef(ref)));
  return sealJson("node", namespace, { level: node.level, start: node.start, refs });
}

export function decodeNode(bytes: Uint8Array, where: string, namespace: string): IndexNode {
  const fields = openJson(bytes, where, "node", namespace);
  const refs = asList(fields["refs"], where, "refs").map((ref) => (ref === 0 ? null : decodeNodeRef(ref, where)));
  if (refs.length !== indexFanout) corrupt(where, `it has ${refs.length} references, expected ${indexFanout}`);
  return {
    level: asInteger(fields["level"], where, "level"),
    start: asStep(asInteger(fields["start"], where, "start")),
    refs,
  };
}

/** What a pin keeps alive of a namespace: the index and the unsealed tail as of the version it was committed on. */
export interface IndexRoot {
  readonly index: readonly IndexLevel[];
  readonly tail: Run;
}

export function encodeRoot(namespace: string, root: IndexRoot): Uint8Array {
  return sealJson("root", namespace, { index: encodeLevels(root.index), tail: encodeRun(root.tail) });
}

export function decodeRoot(bytes: Uint8Array, where: string, namespace: string): IndexRoot {
  const fields = openJson(bytes, where, "root", namespace);
  return { index: decodeLevels(fields["index"], where), tail: decodeRun(fields["tail"], where) };
}
