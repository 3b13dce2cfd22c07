/**
 * Property: `listNamespaces` gives every namespace that `createNamespace` accepted, under a URI that opens it, wherever it lies and whatever it is
 * called; and none can be made among another's own objects, however the place is written.
 * Method: odd names on files and on a flat store, created and then listed; the contents of large ones are not walked.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { createNamespace, isBatchWeaveError, listNamespaces, openNamespace } from "../../src/index.js";
import { MemoryStore, withPrefix } from "../../src/store/index.js";

const folder = mkdtempSync(join(tmpdir(), "batchweave-listing-"));
const root = pathToFileURL(folder).href;
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const grid = { rows: 1, chunks: 1 };

async function listed(uri: string, store?: MemoryStore): Promise<string[]> {
  const found: string[] = [];
  for await (const one of listNamespaces(uri, store ? { store } : {})) found.push(one.uri);
  return found.sort();
}

const nested = ["plain", "plain/foo", "plain/zoo", "other/batch/ab/00000000000000000001/ns", "other/manifest"];

describe("on files", () => {
  const names = [
    ...nested,
    ...["my~run", "temp~1/x", "a%20b", "%C3%BC", "x%23y", "100%25", ".hidden", "-dash", "a%3Fb", "a%0Ab", "%1b%5b2J"],
  ];
  test("every name that create takes is listed, and what is listed opens", async () => {
    for (const name of names) {
      const namespace = await createNamespace(`${root}/${name}`, { grid });
      const producer = await namespace.producer({ id: "p", cadence: { kind: "interval", intervalMs: 1 } });
      await producer.append([Buffer.from("x")]);
      await producer.close();
    }
    const found = await listed(root);
    const uuids = await Promise.all(found.map(async (uri) => (await openNamespace(uri)).uuid));
    const expected = await Promise.all(names.map(async (name) => (await openNamespace(`${root}/${name}`)).uuid));
    expect(uuids.sort()).toEqual(expected.sort());
  });

  test.each(["batch/x", "%62atch/x", "./index/../%69ndex", "foo/../manifest/y"])(
    "plain/%s lies among the objects of plain and is refused",
    async (name) => {
      const failure = await createNamespace(`${root}/plain/${name}`, { grid }).catch((e: unknown) => e);
      expect(isBatchWeaveError(failure, "NOT_EMPTY")).toBe(true);
      expect((failure as Error).message).toContain("lies among the objects");
    },
  );
});

test("on a flat store, and with few requests where a namespace holds much", async () => {
  const store = new MemoryStore();
  for (const name of nested) {
    const inner = withPrefix(store, `${name}/`);
    await createNamespace(`memory:${name}`, { grid }, { store: inner });
    for (let i = 0; i < 300; i++)
      await inner.put(
        `batch/${(i % 256).toString(16).padStart(2, "0")}/${"0".repeat(20)}/p-1-${i}-0123456789ab0.0.tgb`,
        Buffer.alloc(0),
      );
  }
  let lists = 0;
  const list = store.list.bind(store);
  store.list = (...args) => {
    lists++;
    return list(...args);
  };
  expect(await listed("memory:", store)).toEqual(nested.map((name) => `memory:/${name}`).sort());
  expect(lists).toBeLessThan(5 * nested.length);
});
