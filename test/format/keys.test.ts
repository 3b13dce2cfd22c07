/**
 * Properties of names: what a key is made of can be read from it, byte order is number order, foreign names are told from ours, and the
 * store accepts every key. Method: random names.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  assertName,
  asVersion,
  batchKey,
  boundaryKey,
  digits20,
  indexKey,
  manifestKey,
  namespaceKey,
  nodeRefKey,
  parseBatchKey,
  parseIndexKey,
  parseManifestKey,
} from "../../src/format/index.js";
import { isKey } from "../../src/store/index.js";
import * as any from "./arbitrary.js";

describe("keys", () => {
  test("round trip", () => {
    fc.assert(
      fc.property(any.batchName, any.nodeRef, any.whole, fc.nat({ max: 999 }), (name, ref, n, extent) => {
        expect(parseBatchKey(batchKey(name, extent))).toEqual({ name, extent });
        expect(parseIndexKey(nodeRefKey(ref))).toEqual({ base: ref.base, commitId: ref.commitId, k: ref.k });
        expect(parseManifestKey(manifestKey(asVersion(n)))).toBe(n);
      }),
    );
  });

  test("are keys for every store", () => {
    fc.assert(
      fc.property(any.batchName, any.nodeRef, any.whole, (name, ref, n) => {
        const keys = [batchKey(name, 999), nodeRefKey(ref), manifestKey(asVersion(n)), boundaryKey(n), namespaceKey];
        expect(keys.filter((key) => !isKey(key))).toEqual([]);
      }),
    );
  });

  test("byte order is number order", () => {
    fc.assert(
      fc.property(any.whole, any.whole, (a, b) => {
        expect(Math.sign(Buffer.compare(Buffer.from(digits20(a)), Buffer.from(digits20(b))))).toBe(Math.sign(a - b));
      }),
    );
  });

  test("different uploads have different keys", () => {
    fc.assert(
      fc.property(any.batchName, any.batchName, (a, b) => {
        expect(batchKey(a, 0) === batchKey(b, 0)).toBe(JSON.stringify(sorted(a)) === JSON.stringify(sorted(b)));
      }),
    );
  });

  test("a foreign name is not taken for ours", () => {
    const batch = batchKey(
      { producer: "a-1", epoch: 1, seq: 2, incarnation: "0123456789ab", attempt: 0, base: 3 } as never,
      0,
    );
    const index = indexKey(asVersion(3), "0123456789ab", 1);
    expect(parseBatchKey(batch)?.name.producer).toBe("a-1");
    const foreign = [
      batch.replace(/^batch\/../, "batch/zz"),
      batch.replace(/^batch\/../, (head) => (head === "batch/00" ? "batch/01" : "batch/00")),
      batch.replace(".0.tgb", ".00.tgb"),
      batch.replace(".tgb", ".tgb.tmp"),
      batch.replace("/00000000000000000003/", "/3/"),
      batch.replace("/00000000000000000003/", "/99999999999999999999/"),
    ];
    expect(foreign.filter((key) => parseBatchKey(key))).toEqual([]);
    expect(
      [index.replace("-1.json", "-01.json"), `x${index}`, `${index}x`].filter((key) => parseIndexKey(key)),
    ).toEqual([]);
    const manifests = [
      "manifest/5.json",
      "manifest/99999999999999999999.json",
      `${manifestKey(asVersion(5))}~`,
      "manifest/x",
    ];
    expect(manifests.filter((key) => parseManifestKey(key) !== undefined)).toEqual([]);
  });

  test("names that would not fit into keys are refused", () => {
    for (const bad of ["", "a/b", "../x", ".x", "-x", "a b", "ä", "x".repeat(65), "__proto__", "a\n", "a~"])
      expect(() => assertName(bad, "producer id")).toThrow(/producer id .* is not allowed/);
    fc.assert(fc.property(any.producerId, (id) => assertName(id, "producer id")));
  });
});

function sorted(value: object): unknown {
  return Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
}
