/**
 * Property: a URI opens the store it names; anything else is one sentence that says what to write instead.
 * Method: tables of URIs.
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, test } from "vitest";
import { openStore } from "../../src/store/index.js";
import { bytes, listAll } from "./conformance.js";
import { makeFolder, removeFolder } from "./temporary-folder.js";

test("memory: is a new store each time, memory:name the same throughout the process", async () => {
  const [a, b] = [await openStore("memory:"), await openStore("memory:")];
  await a.put("k", bytes("x"));
  expect(await b.get("k")).toBeUndefined();
  const [c, d] = [await openStore("memory:uri-test"), await openStore("MEMORY:uri-test")];
  await c.put("k", bytes("x"));
  expect(await d.get("k")).toEqual(bytes("x"));
  expect(c.uri).toBe("memory:uri-test");
});

test("file: takes absolute paths, percent-decoded", async () => {
  const folder = makeFolder();
  try {
    for (const name of ["plain", "with space", "100%", "ü", "a?b#c", "%41"]) {
      const path = join(folder, name);
      mkdirSync(path);
      const store = await openStore(pathToFileURL(path).href.replace("//", "//localhost"));
      await store.put("k", bytes(name));
      const again = await openStore(store.uri, { durability: "process-crash" });
      expect(await again.get("k")).toEqual(bytes(name));
    }
    const around = await openStore(`file://${folder}/x/../plain/./`);
    expect(await listAll(around, "")).toEqual(["k"]);
    expect(await listAll(await openStore(`file:${folder}/plain`), "")).toEqual(["k"]);
  } finally {
    removeFolder(folder);
  }
});

test.each([
  ["file://relative/path", /three slashes/],
  ["file://./path", /three slashes/],
  ["file:relative", /three slashes/],
  ["file://", /absolute/],
  ["file:///", /root of the whole file system/],
  ["file:///a/..", /root of the whole file system/],
  ["file:///a%2Fb", /encoded slash/],
  ["file:///a%00b", /NUL/],
  ["file:///a%zz", /%25/],
  ["file:///a%ff", /%25/],
  ["file:///a?b", /%3F/],
])("%s is refused with a hint", async (uri, hint) => {
  const e = await openStore(uri).catch((error: unknown) => error);
  expect(e).toMatchObject({ code: "INVALID_ARGUMENT", message: expect.stringMatching(hint) });
});

test.each([
  ["/data/run", /file:\/\/\/data\/run.*memory:, file:/],
  ["run", /file:\/\//],
  ["./run", /file:\/\//],
  ["", /file:\/\//],
  ["ftp://host/x", /"ftp:".*memory:, file:/],
  ["constructor:x", /"constructor:"/],
])("%j has no scheme we know: says which work", async (uri, hint) => {
  const e = await openStore(uri).catch((error: unknown) => error);
  expect(e).toMatchObject({ code: "UNKNOWN_SCHEME", message: expect.stringMatching(hint) });
});

test("a password in a URI is not repeated", async () => {
  const e = await openStore("http://user:hunter2@host/x?sig=hunter2").catch((error: unknown) => error);
  expect(JSON.stringify([String(e), e])).not.toContain("hunter2");
});
