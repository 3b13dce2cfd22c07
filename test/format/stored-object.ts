/** One example of every stored JSON object, with the decoder that a reader uses, so that a test can go through all of them. */
import fc from "fast-check";
import {
  asStep,
  asVersion,
  boundaryKey,
  decodeBoundary,
  decodeManifest,
  decodeNamespace,
  decodeNode,
  decodeRoot,
  decodeSegment,
  decodeTable,
  encodeBoundary,
  encodeManifest,
  encodeNamespace,
  encodeNode,
  encodeRoot,
  encodeSegment,
  encodeTable,
  type IndexNode,
  indexKey,
  manifestKey,
  namespaceKey,
} from "../../src/format/index.js";
import * as any from "./arbitrary.js";

/** A stored object, how it is read and how what was read is written again. */
export interface StoredObject {
  readonly kind: string;
  readonly key: string;
  readonly namespace: string;
  readonly bytes: Uint8Array;
  decode(bytes: Uint8Array): unknown;
  encode(value: unknown): Uint8Array;
}

type Make = (namespace: string) => fc.Arbitrary<Omit<StoredObject, "kind" | "namespace">>;

function made<T>(
  key: (value: T) => string,
  encode: (value: T) => Uint8Array,
  decode: (bytes: Uint8Array, key: string, value: T) => T,
): (value: T) => Omit<StoredObject, "kind" | "namespace"> {
  return (value) => ({
    key: key(value),
    bytes: encode(value),
    decode: (bytes) => decode(bytes, key(value), value),
    encode: (v) => encode(v as T),
  });
}

const indexName = (): string => indexKey(asVersion(7), "0123456789ab", 3);

const kinds: Record<string, Make> = {
  namespace: (namespace) =>
    any.namespaceSpec
      .map((spec) => ({ ...spec, uuid: namespace }))
      .map(made(() => namespaceKey, encodeNamespace, decodeNamespace)),
  manifest: (namespace) =>
    any.manifest
      .map((manifest) => ({ ...manifest, namespace }))
      .map(
        made(
          (m) => manifestKey(m.version),
          encodeManifest,
          (bytes, key, m) => decodeManifest(bytes, key, namespace, m.version),
        ),
      ),
  boundary: (namespace) =>
    fc.record({ n: any.whole, upTo: any.whole.map(asVersion) }).map(
      made(
        (marker) => boundaryKey(marker.n),
        (marker) => encodeBoundary(namespace, marker),
        (bytes, key, marker) => decodeBoundary(bytes, key, namespace, marker.n),
      ),
    ),
  segment: (namespace) =>
    any.run({ minLength: 64, maxLength: 64 }).map(
      made(
        indexName,
        (run) => encodeSegment(namespace, run),
        (bytes, key) => decodeSegment(bytes, key, namespace),
      ),
    ),
  node: (namespace) =>
    fc
      .record<IndexNode>({
        level: fc.integer({ min: 1, max: 5 }),
        start: any.whole.map(asStep),
        refs: fc.array(fc.option(any.nodeRef), { minLength: 64, maxLength: 64 }),
      })
      .map(
        made(
          indexName,
          (node) => encodeNode(namespace, node),
          (bytes, key) => decodeNode(bytes, key, namespace),
        ),
      ),
  table: (namespace) =>
    any.table.map(
      made(
        indexName,
        (table) => encodeTable(namespace, table),
        (bytes, key) => decodeTable(bytes, key, namespace),
      ),
    ),
  root: (namespace) =>
    any.root.map(
      made(
        indexName,
        (root) => encodeRoot(namespace, root),
        (bytes, key) => decodeRoot(bytes, key, namespace),
      ),
    ),
};

export const storedKinds: readonly string[] = Object.keys(kinds);

/** Random objects of one kind. */
export function storedObject(kind: string): fc.Arbitrary<StoredObject> {
  return any.uuid.chain((namespace) =>
    (kinds[kind] as Make)(namespace).map((object) => ({ ...object, kind, namespace })),
  );
}
