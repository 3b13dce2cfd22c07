/**
 * Property: a batch whose slices have one length is read with one request a share and without its slice table; a slice that is damaged, or that is
 * another place's, another batch's or another namespace's, is never handed out; what was not sealed reads as before; both languages write and
 * read it, in extents, through carriers and in forks, and verify finds it clean. Method: a store that counts range reads; objects exchanged under
 * their keys; the Python client on the same folder.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { auditBatchObject, type Descriptor, encodeExtent, sealSlices } from "../../src/format/index.js";
import {
  type ConsumerSettings,
  createNamespace,
  isBatchWeaveError,
  type Namespace,
  openNamespace,
  type ProducerSettings,
} from "../../src/index.js";
import { root } from "../source-tree.js";
import { WatchedStore } from "./watched-store.js";

const folder = mkdtempSync(join(tmpdir(), "batchweave-sealed-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const grid = { rows: 4, chunks: 2 };
const length = 5_000;
const stride = length + 8;
const slice = (step: number, cell: number, bytes = length): Uint8Array =>
  Uint8Array.from({ length: bytes }, (_, i) => (step * 31 + cell * 7 + i) % 251);
const cadence = { kind: "interval", intervalMs: 2 } as const;

async function write(
  ns: Namespace,
  steps: number,
  settings: Partial<ProducerSettings> = {},
  make: (step: number, cell: number) => Uint8Array = slice,
): Promise<void> {
  await using producer = await ns.producer({ id: "p", cadence, ...settings });
  for (let step = 0; step < steps; step++)
    await producer.append(Array.from({ length: grid.rows * grid.chunks }, (_, cell) => make(step, cell)));
}

async function digests(ns: Namespace, settings: ConsumerSettings): Promise<string[]> {
  const found: string[] = [];
  await using consumer = await ns.consumer(settings);
  for await (const share of consumer)
    found.push(share.slices.map(({ bytes }) => createHash("sha256").update(bytes).digest("hex")).join());
  return found;
}

async function firstFailure(ns: Namespace): Promise<string> {
  try {
    await digests(ns, { mesh: { dp: 1 }, rank: 0, policy: "global-batch" });
  } catch (error) {
    if (isBatchWeaveError(error, "CORRUPT")) return error.message;
    throw error;
  }
  return "read";
}

describe("one request a share", () => {
  const open = async (store: WatchedStore): Promise<Namespace> => createNamespace("memory:sealed", { grid }, { store });

  test.each([
    ["a row", { mesh: { dp: 4 }, rank: 2 }, 1, 2 * stride],
    ["a chunk", { mesh: { dp: 4, cp: 2 }, rank: 3 }, 1, stride],
    ["a batch", { mesh: { dp: 1 }, rank: 0, policy: "global-batch" }, 1, 8 * stride],
    ["four rows at once", { mesh: { dp: 1 }, rank: 0, rowsPerRank: 4 }, 1, 8 * stride],
  ] as const)("%s", async (_, settings, requests, bytes) => {
    const store = new WatchedStore();
    const ns = await open(store);
    await write(ns, 3);
    await ns.endLog();
    const seen = await digests(ns, settings as ConsumerSettings);
    expect(seen.length).toBe(3);
    const batchReads = store.calls.filter(({ key }) => key.includes("batch/"));
    expect(batchReads.length).toBe(3 * requests);
    expect(batchReads.map((call) => call.length)).toEqual(new Array(3 * requests).fill(bytes));
    const [first] = seen;
    const whole = (cell: number) => createHash("sha256").update(slice(0, cell)).digest("hex");
    const cells = settings.mesh.dp === 4 ? ("cp" in settings.mesh ? [3] : [4, 5]) : [0, 1, 2, 3, 4, 5, 6, 7];
    expect(first).toBe(cells.map(whole).join());
    expect(await ns.verify({ level: "bytes" })).toMatchObject({ problems: [] });
    expect(await ns.verify({ level: "footers" })).toMatchObject({ problems: [] });
  });

  test("in several extents", async () => {
    const store = new WatchedStore();
    const ns = await open(store);
    await write(ns, 2, { extentBytesMax: 3 * length });
    await ns.endLog();
    expect((await ns.inspect(0)).keys.length).toBe(3);
    expect((await digests(ns, { mesh: { dp: 4 }, rank: 3 })).length).toBe(2);
    expect(await firstFailure(ns)).toBe("read");
    expect(await ns.verify({ level: "bytes" })).toMatchObject({ problems: [] });
  });

  test.each([
    ["lengths differ", (step: number, cell: number) => slice(step, cell, length + cell)],
    ["they are short", (step: number, cell: number) => slice(step, cell, 100)],
  ])("not where %s: the table says where they are", async (_, make) => {
    const store = new WatchedStore();
    const ns = await open(store);
    await write(ns, 1, {}, make);
    await ns.endLog();
    expect((await digests(ns, { mesh: { dp: 4 }, rank: 0 })).length).toBe(1);
    expect(store.calls.filter(({ key }) => key.includes("batch/")).length).toBe(2);
    expect((await ns.inspect(0)).slices[0]?.encoding).toBe("none");
  });
});

describe("what is not this slice is never handed out", () => {
  const make = async (): Promise<{ store: WatchedStore; ns: Namespace; keys: string[] }> => {
    const store = new WatchedStore();
    const ns = await createNamespace("memory:sealed", { grid }, { store });
    // The same bytes in every batch and every cell: only whose they are tells them apart.
    await write(ns, 2, {}, () => slice(0, 0));
    await ns.endLog();
    const keys = [...(await ns.inspect(0)).keys, ...(await ns.inspect(1)).keys];
    return { store, ns, keys: (await Promise.all(keys.map((key) => keyOf(store, key)))) as string[] };
  };
  const keyOf = async (store: WatchedStore, key: string): Promise<string | undefined> =>
    (await store.list("")).objects.find((object) => object.key.endsWith(key))?.key;

  test("a flipped bit of a slice or of its seal", async () => {
    for (const at of [17, length - 1, length, length + 5, 3 * stride + 100]) {
      const { store, ns, keys } = await make();
      await store.damage(keys[0] as string, at);
      expect(await firstFailure(ns)).toMatch(/slice/);
    }
  });

  test("another place's slice, another batch's object", async () => {
    const { store, ns, keys } = await make();
    const [first = "", second = ""] = keys;
    const bytes = Uint8Array.from((await store.get(first)) as Uint8Array);
    const moved = Uint8Array.from(bytes);
    moved.copyWithin(0, stride, 2 * stride);
    await store.put(first, moved);
    expect(await firstFailure(ns)).toMatch(/not that slice of this batch/);
    const { problems } = await ns.verify({ level: "bytes" });
    expect(problems.length).toBeGreaterThan(0);
    await store.put(first, (await store.get(second)) as Uint8Array);
    expect(await firstFailure(ns)).toMatch(/not that slice of this batch/);
    await store.put(first, bytes);
    expect(await firstFailure(ns)).toBe("read");
  });

  test("a stride that the table contradicts", () => {
    const name = { producer: "p", epoch: 1, seq: 0, incarnation: "0123456789ab", attempt: 0, base: 1 } as Descriptor;
    const ns = "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5";
    const stored = [0, 1].map((cell) => ({ bytes: slice(0, cell), rawLength: length, encoding: 0 }));
    const sealed = sealSlices(ns, name, stored);
    const { body, entry } = encodeExtent(ns, name, { extent: 0, firstCell: 0 }, sealed.slices, {});
    const audit = (given: number | undefined) =>
      auditBatchObject(Buffer.concat(body), "x", ns, { ...name, stride: given }, { extent: 0, firstCell: 0 }, entry);
    expect(audit(sealed.stride).rawBytes).toBe(2 * length);
    expect(audit(undefined).rawBytes).toBe(2 * length);
    expect(() => audit(stride + 1)).toThrow(/its table does not/);
  });
});

describe("Python", () => {
  const python = (...args: string[]): { lines: { iteration: number; digest: string }[]; error: string } => {
    const env = { ...process.env, PYTHONPATH: join(root, "python") };
    const { stdout, stderr, status } = spawnSync("python3", args, { encoding: "utf8", env });
    if (status !== 0) throw new Error(stderr);
    const lines = stdout
      .trim()
      .split("\n")
      .filter((line) => line.startsWith("{"));
    return { lines: lines.map((line) => JSON.parse(line)), error: stderr };
  };
  const consume = (uri: string, dp: number, rank: number) =>
    python("-m", "batchweave", "consume", uri, "--dp", String(dp), "--rank", String(rank), "--json").lines.map(
      ({ digest }) => digest,
    );
  const here = async (uri: string, dp: number, rank: number): Promise<string[]> => {
    const ns = await openNamespace(uri);
    const found: string[] = [];
    await using consumer = await ns.consumer({ mesh: { dp }, rank, environment: {} });
    for await (const share of consumer) {
      const hash = createHash("sha256");
      for (const { bytes } of share.slices) hash.update(bytes);
      found.push(hash.digest("hex"));
    }
    return found;
  };

  test("each reads what the other wrote, in one log and in its fork", async () => {
    const uri = pathToFileURL(join(folder, "both")).href;
    const ns = await createNamespace(uri, { grid });
    await write(ns, 3);
    const script = `
import sys
from batchweave import open_namespace
ns = open_namespace(sys.argv[1])
with ns.producer("q") as p:
    for step in range(3):
        p.append([bytes((step * 5 + cell * 3 + i) % 251 for i in range(${length})) for cell in range(8)])
    p.append([bytes(10 + cell) for cell in range(8)])
`;
    python("-c", script, uri);
    await ns.endLog();
    const infos = await Promise.all([0, 1, 2, 3, 4, 5, 6].map((step) => ns.inspect(step)));
    expect(infos.map(({ slices }) => slices[0]?.encoding)).toEqual([...new Array(6).fill("sealed"), "none"]);
    expect(await ns.verify({ level: "bytes" })).toMatchObject({ problems: [] });
    const forked = pathToFileURL(join(folder, "fork")).href;
    await ns.fork(forked, { at: 5 });
    for (const [log, steps] of [
      [uri, 7],
      [forked, 5],
    ] as const) {
      const closed = await openNamespace(log);
      if (log === forked) await closed.endLog();
      for (const [dp, rank] of [
        [1, 0],
        [4, 3],
      ] as const) {
        const seen = await here(log, dp, rank);
        expect(seen.length).toBe((steps * grid.rows) / dp);
        expect(consume(log, dp, rank)).toEqual(seen);
      }
      expect(await closed.verify({ level: "bytes" })).toMatchObject({ problems: [] });
    }
  });
});
