/**
 * Property: bad input and bad content get one clear sentence with a documented code, exit status 2, and change nothing on the store.
 * Method: run the built command on a real folder; compare every file of the folder before and after.
 */
import { cpSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { sealJson } from "../../src/format/index.js";
import { buildIfStale, must, run, Workspace } from "./command-line.js";

const space = new Workspace();
let good: string;

beforeAll(async () => {
  buildIfStale();
  good = space.uri("good");
  await must("create", good, "--rows", "4", "--chunks", "2");
  await must("produce", good, "--id", "p0", "--batches", "3", "--bytes", "1000", "--close");
  await must("create", space.uri("other"), "--rows", "4", "--chunks", "2");
  await must("produce", space.uri("other"), "--id", "p0", "--batches", "2", "--bytes", "1000");
  await must("create", space.uri("lanes"), "--rows", "4", "--order", "lanes", "--lanes", "2");
  writeFileSync(space.path("slice.bin"), "some bytes");
  writeFileSync(space.path("cursor.json"), "not a cursor");
});

afterAll(() => space.remove());

/** Copies the good namespace and damages one object of it. */
function damaged(name: string, folder: string, damage: (bytes: Buffer) => Buffer): string {
  cpSync(space.path("good"), space.path(name), { recursive: true });
  const path = folder.includes(".") ? space.path(name, folder) : lastFile(name, folder);
  writeFileSync(path, damage(readFileSync(path)));
  return space.uri(name);
}

function lastFile(name: string, folder: string): string {
  const files = Object.keys(space.snapshot(name)).filter((path) => path.includes(`/${folder}/`));
  return files.at(-1) as string;
}

/** Changes JSON fields of a stored object and seals it again, as a newer BatchWeave would have written it. */
function reseal(bytes: Buffer, fields: Record<string, unknown>): Buffer {
  const { crc32: _old, kind, namespace, ...rest } = JSON.parse(bytes.toString("utf8"));
  return Buffer.from(sealJson(kind, namespace, { ...rest, ...fields }));
}

async function refused(code: string, words: RegExp, ...args: string[]): Promise<void> {
  const before = space.snapshot();
  const plain = await run(...args);
  expect(plain.stderr.trim().split("\n").at(-1)).toMatch(new RegExp(`^error\\[${code}\\]: `));
  expect(plain.stderr).toMatch(words);
  expect(plain.stderr).not.toMatch(/\n\s+at /);
  expect(plain.status).toBe(2);
  const json = await run(...args, "--json");
  expect(json.error).toMatchObject({ code, message: expect.stringMatching(words), remedy: expect.any(String) });
  expect([json.status, json.stdout]).toEqual([2, ""]);
  expect(space.snapshot()).toEqual(before);
}

test("unknown URI scheme", () => refused("UNKNOWN_SCHEME", /memory:, file:/, "info", "ftp://host/run"));

test("a link to nowhere: refused, not tried for ever", () => {
  symlinkSync(space.path("not-mounted"), space.path("link"));
  return refused("INVALID_ARGUMENT", /link to nowhere/, "create", `${space.uri("link")}/run`, "--rows", "4");
});

test("a negative number: says what is allowed", async () => {
  await refused("INVALID_ARGUMENT", /--rows must be .* of at least 1, .*not "-1"/, "create", good, "--rows", "-1");
  const batches = ["produce", good, "--id", "p0", "--batches"];
  await refused("INVALID_ARGUMENT", /--batches must be .* of at least 0, .*not "-3"/, ...batches, "-3");
  await refused("INVALID_ARGUMENT", /--batches needs a value, and what follows .* hyphen\./, ...batches, "--close");
});

test("a number that is none says what would be one", async () => {
  await refused("INVALID_ARGUMENT", /at least 1, such as 8, not "two"/, "create", good, "--rows", "two");
  await refused("INVALID_ARGUMENT", /Units are k, m and g/, "produce", good, "--id", "p0", "--bytes", "64q");
  await refused("INVALID_ARGUMENT", /--interval must be a number/, "info", good, "--interval", "soon");
});

test("help of a command that is none", () =>
  refused("INVALID_ARGUMENT", /There is no command "nosuch"/, "help", "nosuch"));

test("a row that is none", () =>
  refused("INVALID_ARGUMENT", /step:N or row:N/, "consume", good, "--dp", "4", "--rank", "0", "--from", "row:-3"));

test("a path instead of a URI", () => refused("UNKNOWN_SCHEME", /file:\/\//, "info", "/data/run"));

test("missing namespace", () =>
  refused("NO_NAMESPACE", /batchweave create/, "produce", space.uri("none"), "--id", "p0"));

test("another grid than the one that is there", () =>
  refused("GRID_MISMATCH", /4 rows x 2 chunks/, "create", good, "--rows", "8", "--chunks", "2"));

test("a grid that is none", () =>
  refused("INVALID_ARGUMENT", /at least 1/, "create", space.uri("none"), "--rows", "0", "--chunks", "2"));

test("a grid that is too large", () =>
  refused("INVALID_ARGUMENT", /65536/, "create", space.uri("none"), "--rows", "99999", "--chunks", "99"));

test("a mesh that does not divide the grid: says which sizes work", () =>
  refused("MESH_MISMATCH", /cp can be 1 or 2/, "consume", good, "--dp", "2", "--cp", "3", "--rank", "0"));

test("a mesh that does not go with the policy", () =>
  refused("MESH_MISMATCH", /1, 2 or 4/, "consume", good, "--dp", "3", "--rank", "0", "--policy", "global-batch"));

test("rank out of range", () =>
  refused("MESH_MISMATCH", /from 0 to 3/, "consume", good, "--dp", "2", "--cp", "2", "--rank", "4"));

test("slices of the wrong count", () =>
  refused(
    "INVALID_ARGUMENT",
    /8 slices .*1 files/,
    "produce",
    space.uri("other"),
    "--id",
    "p9",
    "--slices",
    space.path("slice.bin"),
  ));

test("a resume point that is not JSON", () => {
  const slices = Array(8).fill(space.path("slice.bin")).join(",");
  const args = ["produce", space.uri("other"), "--id", "p9", "--slices", slices, "--resume-point", "{offset: 1}"];
  return refused("INVALID_ARGUMENT", /not JSON/, ...args);
});

test("a producer id with a slash", () =>
  refused("INVALID_ARGUMENT", /a\/b.*letters, digits/, "produce", space.uri("other"), "--id", "a/b"));

test("a producer id that is no lane", () =>
  refused("INVALID_ARGUMENT", /lane-0 to lane-1/, "produce", space.uri("lanes"), "--id", "p0"));

test("a cursor of another namespace", async () => {
  const cursor = space.path("other-cursor.json");
  await must("consume", space.uri("other"), "--iterations", "2", "--cursor-file", cursor);
  await refused("WRONG_NAMESPACE", /belongs to namespace/, "consume", good, "--from", `@${cursor}`);
});

test("a cursor that is none", () =>
  refused("INVALID_ARGUMENT", /not a cursor/, "consume", good, "--cursor-file", space.path("cursor.json")));

test("a checkpoint that is not there", () =>
  refused("NO_CHECKPOINT", /has none/, "consume", good, "--from", "checkpoint:iter-7"));

test("a place among another namespace's objects, for a namespace and for a fork", async () => {
  const inside = /lies among the objects of the namespace at/;
  await refused("NOT_EMPTY", inside, "create", `${good}/index/mine`, "--rows", "2");
  await refused("NOT_EMPTY", inside, "fork", space.uri("other"), `${good}/batch`);
});

test("an id too many, and one that is empty", async () => {
  await refused("INVALID_ARGUMENT", /takes no ID/, "checkpoint", good, "list", "mine");
  await refused("INVALID_ARGUMENT", /this one is empty/, "find", good, "--sample", "");
});

test("a newer format: namespace.json", () =>
  refused(
    "UNSUPPORTED_FORMAT",
    /Install|version/,
    "info",
    damaged("newer", "namespace.json", (b) => reseal(b, { format: 3 })),
  ));

test("a newer format: manifest", () =>
  refused(
    "UNSUPPORTED_FORMAT",
    /manifest\//,
    "info",
    damaged("newer-manifest", "manifest", (b) => reseal(b, { format: 3 })),
  ));

test("garbage instead of namespace.json", () =>
  refused(
    "CORRUPT",
    /namespace\.json/,
    "produce",
    damaged("garbage-1", "namespace.json", () => Buffer.from("garbage")),
    "--id",
    "p0",
  ));

test("garbage instead of a manifest", () =>
  refused(
    "CORRUPT",
    /manifest\//,
    "consume",
    damaged("garbage-2", "manifest", () => Buffer.from("{}")),
  ));

test("garbage instead of a batch", async () => {
  const uri = damaged("garbage-3", "batch", (bytes) => Buffer.alloc(bytes.length, 7));
  const before = space.snapshot();
  const ended = await run("consume", uri, "--json");
  expect([ended.status, ended.error?.code]).toEqual([2, "CORRUPT"]);
  expect(ended.error?.message).toMatch(/batch\//);
  expect(space.snapshot()).toEqual(before);
});

test("a place to start that is none", () =>
  refused("INVALID_ARGUMENT", /checkpoint:ID/, "consume", good, "--dp", "4", "--rank", "0", "--from", "banana"));

test("a start that a closed log will never reach; its very end is one", async () => {
  const rank = ["--dp", "4", "--rank", "0", "--from"];
  await refused(
    "INVALID_ARGUMENT",
    /Row 16 \(step 4\) will never exist: .* last row is 11/,
    "consume",
    good,
    ...rank,
    "step:4",
  );
  await refused("INVALID_ARGUMENT", /Row 13 /, "consume", good, ...rank, "row:13");
  await must("consume", good, ...rank, "step:3");
});

test("a step that is not there", () =>
  refused("INVALID_ARGUMENT", /the last step is 2/, "inspect", good, "--step", "9"));

test("a slice that is not there", () =>
  refused("INVALID_ARGUMENT", /chunks from 0 to 1/, "inspect", good, "--step", "0", "--slice", "0,2"));

test("delete without a word that it is meant", () => refused("NOT_EMPTY", /--yes/, "delete", good));

test("an option that is not known, one that is missing, one that is no number, one argument too many", async () => {
  await refused("INVALID_ARGUMENT", /--sizes/, "create", good, "--sizes", "2");
  await refused("INVALID_ARGUMENT", /--rows R is missing/, "create", good);
  await refused("INVALID_ARGUMENT", /whole number/, "create", good, "--rows", "four");
  await refused("INVALID_ARGUMENT", /too many/, "info", good, "more");
  await refused("INVALID_ARGUMENT", /no command/, "launch");
});

test("a cursor file in a folder that is not there", async () => {
  const file = join(space.path("no-folder"), "cursor.json");
  const { status, error } = await run("consume", good, "--dp", "4", "--rank", "0", "--cursor-file", file, "--json");
  expect(error).toMatchObject({
    code: "INVALID_ARGUMENT",
    message: expect.stringMatching(/cursor file .* cannot be written/),
  });
  expect(status).toBe(2);
});

test("verify says a missing index object once, and produce says when there was nothing to do", async () => {
  const uri = space.uri("long");
  await must("create", uri, "--rows", "1");
  await must("produce", uri, "--id", "p0", "--batches", "70", "--bytes", "10");
  const again = await run("produce", uri, "--id", "p0", "--batches", "70", "--bytes", "10");
  expect(again.stdout).toMatch(/wrote nothing: 70 batches/);
  for (const path of Object.keys(space.snapshot("long"))) if (path.includes("/index/")) rmSync(path);
  const { stdout, status } = await run("verify", uri);
  expect(stdout.match(/^error\[missing\]: Steps 0 to 63 cannot be found: index\//gm)).toHaveLength(1);
  expect(stdout.match(/index\/\d/g)).toHaveLength(1);
  expect(status).toBe(2);
});

test("a watcher that would never rest", async () => {
  for (const command of ["reclaim", "info"])
    await refused("INVALID_ARGUMENT", /at least 0.1 seconds/, command, good, "--watch", "--interval", "0");
});

test("a step that was reclaimed: what is left, and no cursors", async () => {
  const uri = space.uri("trimmed");
  await must("create", uri, "--rows", "1");
  await must("produce", uri, "--id", "p0", "--batches", "9", "--bytes", "10", "--close");
  await must("consume", uri, "--dp", "1", "--rank", "0", "--iterations", "6", "--checkpoint-every", "6");
  await must("reclaim", uri);
  const { error, status } = await run("inspect", uri, "--step", "2", "--json");
  expect(error).toMatchObject({
    code: "RECLAIMED",
    message: expect.stringContaining("holds steps 6 to 8; ask for one"),
  });
  expect(error?.message).not.toContain("cursor");
  expect(status).toBe(2);
});

test("verify names a damaged batch once", async () => {
  cpSync(space.path("good"), space.path("once"), { recursive: true });
  const uri = space.uri("once");
  const { lines } = await must("inspect", uri, "--step", "2", "--json");
  const key = (lines[0] as { keys: string[] }).keys[0] as string;
  rmSync(space.path("once", ...key.split("/")));
  const { stdout, stderr, status } = await run("verify", uri);
  // In the report keys are relative to the folder of the life.
  const local = key.split("/").slice(2).join("/");
  expect(`${stdout}${stderr}`.split(local).length - 1).toBe(1);
  expect(stderr).toMatch(/^error\[CORRUPT\]: .* is damaged: one error, named in the report/m);
  expect(status).toBe(2);
});
