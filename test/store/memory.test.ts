/**
 * Property: the memory store keeps the contract of every store, and what it holds cannot be changed from outside.
 * Method: the conformance suite, and a look at the bytes after their caller changed its copies.
 */
import { expect, test } from "vitest";
import { MemoryStore } from "../../src/store/index.js";
import { bytes, describeStoreConformance } from "./conformance.js";

describeStoreConformance("memory", async () => ({ store: new MemoryStore() }));

test("bytes that were read can be changed without changing the object", async () => {
  const store = new MemoryStore();
  await store.put("k", bytes("abc"));
  (await store.get("k"))?.fill(0);
  (await store.getRange("k", 0, 3))?.fill(0);
  expect(await store.get("k")).toEqual(bytes("abc"));
});
