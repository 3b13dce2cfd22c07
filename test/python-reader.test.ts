/**
 * Property: a reader written from FORMAT.md alone, in another language, sees what we see: every share of every rank on every mesh, resume points,
 * lineage, the deep index, trims, boundaries, sealed tables and forks; and it refuses damage. Method: make namespaces on files and compare the
 * digests that `test/python-reader/reader.py` prints with ours.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  asSeq,
  asStep,
  asVersion,
  boundaryKey,
  type Descriptor,
  encodeBoundary,
  encodeManifest,
  encodeNamespace,
  encodeRoot,
  encodeTable,
  genesisManifest,
  type Manifest,
  manifestKey,
  type NamespaceSpec,
} from "../src/format/index.js";
import { type ConsumerSettings, createNamespace, type Namespace, openFileStore, systemEnv } from "../src/index.js";
import { Draft, lifeStore } from "../src/log/index.js";
import type { ObjectStore } from "../src/store/index.js";
import { batchObject, spec as exampleSpec, extent, name } from "./format/worked-example.js";
import { root } from "./source-tree.js";

const folder = mkdtempSync(join(tmpdir(), "batchweave-python-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function python(path: string, ...args: string[]): { status: number | null; lines: string[]; error: string } {
  const reader = join(root, "test/python-reader/reader.py");
  const { status, stdout, stderr, error } = spawnSync("python3", ["-I", "-B", reader, path, ...args], {
    encoding: "utf8",
  });
  if (error) throw error;
  return { status, lines: stdout.split("\n").slice(0, -1), error: stderr };
}

function read(path: string, ...args: string[]): string[] {
  const { status, lines, error } = python(path, ...args);
  expect(error).toBe("");
  expect(status).toBe(0);
  return lines;
}

const digestLine = (iteration: number, slices: readonly Uint8Array[]): string => {
  const hash = createHash("sha256");
  for (const slice of slices) hash.update(slice);
  return `{"iteration":${iteration},"digest":"${hash.digest("hex")}"}`;
};

async function consumed(namespace: Namespace, settings: ConsumerSettings): Promise<string[]> {
  const lines: string[] = [];
  await using consumer = await namespace.consumer({ from: "earliest", environment: {}, ...settings });
  for await (const share of consumer)
    lines.push(
      digestLine(
        share.iteration,
        share.slices.map((s) => s.bytes),
      ),
    );
  return lines;
}

/** Slices of different lengths, some empty, that no two batches share. */
function slicesOf(producer: string, seq: number, cells: number): Uint8Array[] {
  return Array.from({ length: cells }, (_, cell) =>
    Buffer.from(`${producer}/${seq}/${cell} `.repeat((seq + cell) % 4)),
  );
}

const fast = { storeSettings: { durability: "process-crash" } } as const;

describe("a namespace made by producers", () => {
  const path = join(folder, "produced");
  let namespace: Namespace;

  beforeAll(async () => {
    namespace = await createNamespace(pathToFileURL(path).href, { grid: { rows: 4, chunks: 4 } }, fast);
    const batches = { "tok-0": 60, "tok-1": 45 };
    for (const [id, count] of Object.entries(batches)) {
      // Opened twice, so that one resume point is of an earlier epoch; small extents, so that batches have several.
      await using first = await namespace.producer({ id, extentBytesMax: 64 });
      for (let seq = 0; seq < count; seq++) {
        await first.append(slicesOf(id, seq, 16), {
          resumePoint: { at: seq + 1, text: "ä\u2028" },
          ...(seq % 2 === 0
            ? {
                lineage: [
                  { source: "web", id: String(seq), tokens: 7 },
                  { source: "web", id: "x", tokens: 1 },
                ],
              }
            : {}),
        });
      }
      await first.flush();
    }
    await using again = await namespace.producer({ id: "tok-1" });
    expect(again.resumePoint).toEqual({ at: 45, text: "ä\u2028" });
    await namespace.endLog();
  });

  const flags = (mesh: Record<string, number>): string[] =>
    Object.entries(mesh).flatMap(([axis, n]) => [`--${axis}`, String(n)]);

  test.each<[Record<string, number>, ConsumerSettings, string[]]>([
    [{ dp: 1 }, {}, []],
    [{ dp: 3 }, {}, []],
    [{ dp: 2, cp: 2, tp: 2, pp: 2 }, {}, []],
    [{ dp: 8, cp: 4 }, {}, []],
    [{ dp: 3, cp: 2 }, { layout: "zigzag", rowsPerRank: 2 }, ["--layout", "zigzag", "--rows-per-rank", "2"]],
    [
      { dp: 2, cp: 2 },
      { policy: "global-batch", layout: "zigzag" },
      ["--policy", "global-batch", "--layout", "zigzag"],
    ],
  ])("gives the same shares on the mesh %o %o", async (mesh, settings, args) => {
    const ranks = Object.values(mesh).reduce((a, b) => a * b, 1);
    // Every rank of small meshes, some of larger ones.
    for (let rank = 0; rank < ranks; rank += ranks > 8 ? 5 : 1) {
      const ours = await consumed(namespace, { mesh: mesh as { dp: number }, rank, ...settings });
      expect(ours.length).toBeGreaterThan(10);
      expect(read(path, ...flags(mesh), "--rank", String(rank), ...args)).toEqual(ours);
    }
  });

  test("goes on from a cursor on another mesh", async () => {
    await using consumer = await namespace.consumer({ mesh: { dp: 3 }, rank: 0, environment: {} });
    for (let i = 0; i < 5; i++) await consumer.next();
    const { value: share } = await consumer.next();
    const cursor = share?.next;
    expect(cursor).toBeDefined();
    const ours = await consumed(namespace, { mesh: { dp: 2 }, rank: 1, from: cursor });
    expect(read(path, "--dp", "2", "--rank", "1", "--cursor", JSON.stringify(cursor))).toEqual(ours);
    const other = JSON.stringify({ ...cursor, row: 7 });
    expect(python(path, "--cursor", other)).toMatchObject({ status: 1, error: "refused: the cursor is damaged\n" });
  });

  test("tells resume points, epochs and lineage alike", () => {
    const [line] = read(path, "--state");
    const state = JSON.parse(line as string);
    expect(state.closed).toBe(true);
    expect(state.producers).toEqual({
      "tok-0": { epoch: 1, seq: 60, resumePoint: { at: 60, text: "ä\u2028" } },
      "tok-1": { epoch: 2, seq: 45, resumePoint: { at: 45, text: "ä\u2028" } },
    });
    expect(state.batches).toHaveLength(105);
    for (const [, seq, samples] of state.batches)
      expect(samples).toEqual(
        seq % 2 === 0
          ? [
              ["web", String(seq), 7],
              ["web", "x", 1],
            ]
          : null,
      );
  });

  test("refuses a damaged byte in every kind of object, and names it", () => {
    const files = readdirSync(path, { recursive: true, encoding: "utf8" }).filter((file) => /\.(json|tgb)$/.test(file));
    const one = (pattern: RegExp): string =>
      files
        .filter((file) => pattern.test(file))
        .sort()
        .at(-1) as string;
    const intact = read(path);
    for (const file of [one(/^namespace/), one(/\/manifest\//), one(/\/index\//), one(/\/batch\//)]) {
      const bytes = readFileSync(join(path, file));
      for (const at of [0, bytes.length >> 1, bytes.length - 1]) {
        const damaged = Buffer.from(bytes);
        (damaged[at] as number) ^= 1;
        writeFileSync(join(path, file), damaged);
        const found = python(path);
        // A byte that no share needs, of the metadata, may be damaged: then the shares are right all the same.
        if (found.status === 0) expect(found.lines).toEqual(intact);
        else expect(found.error).toContain(file.replace(/^life\/[^/]*\//, ""));
        if (!file.includes("/batch/") || at === bytes.length - 1) expect(found.status).toBe(1);
      }
      writeFileSync(join(path, file), bytes);
    }
    expect(python(path).status).toBe(0);
  });
});

test("a namespace in lanes has the same order everywhere", async () => {
  const path = join(folder, "lanes");
  const settings = { grid: { rows: 2, chunks: 1 }, order: "lanes", lanes: 3 } as const;
  const namespace = await createNamespace(pathToFileURL(path).href, settings, fast);
  for (const lane of [2, 0, 1]) {
    await using producer = await namespace.producer({ id: `lane-${lane}` });
    for (let seq = 0; seq < 20; seq++) await producer.append(slicesOf(`lane-${lane}`, seq, 2), {});
    await producer.flush();
  }
  await namespace.endLog();
  const expected = Array.from({ length: 60 }, (_, step) =>
    digestLine(step, slicesOf(`lane-${step % 3}`, Math.floor(step / 3), 2)),
  );
  expect(read(path, "--rows-per-rank", "2")).toEqual(expected);
});

/** Makes a log by hand, faster than time allows a real one: any number of steps on a few batch objects. */
class HandMadeLog {
  readonly store: ObjectStore;
  readonly spec: NamespaceSpec;
  manifest: Manifest;

  constructor(store: ObjectStore, spec: NamespaceSpec) {
    this.store = store;
    this.spec = spec;
    this.manifest = genesisManifest(spec);
  }

  async commit(change: (draft: Draft) => void): Promise<void> {
    const id = (this.manifest.version + 1).toString(32).padStart(12, "0");
    const draft = new Draft(this.manifest, { id, by: "test", time: 0, boundaryHint: 0 });
    change(draft);
    this.manifest = draft.finish();
    for (const { key, bytes } of draft.sealed) await this.store.put(key, bytes);
    await this.store.create(manifestKey(this.manifest.version), encodeManifest(this.manifest));
  }
}

test("a long log, trimmed, with a boundary, sealed tables and a fork", async () => {
  const paths = [join(folder, "long"), join(folder, "fork")] as const;
  const place = await openFileStore(paths[0], systemEnv, fast.storeSettings);
  const fork = await openFileStore(paths[1], systemEnv, fast.storeSettings);
  const store = lifeStore(place, exampleSpec);
  const log = new HandMadeLog(store, exampleSpec);
  await place.create("namespace.json", encodeNamespace(exampleSpec));
  const descriptor: Descriptor = { ...name, extents: [extent] };
  await store.put(`batch/da/00000000000000000001/p-1-0-0123456789ab0.0.tgb`, batchObject);

  for (let i = 0; i < 9; i++) {
    await log.commit((draft) => {
      for (let n = 0; n < 1003; n++) draft.push(descriptor);
      draft.trim = asStep(500 * i);
    });
  }
  const silent = { epoch: name.epoch, incarnation: name.incarnation, seq: asSeq(1), at: asVersion(2) };
  let rootRef = log.manifest.tables[0];
  await log.commit((draft) => {
    const state = { ...silent, resume: { kind: "none" as const } };
    draft.tables.push(draft.seal(encodeTable(exampleSpec.uuid, new Map([["old", { state, resumePoint: { n: 1 } }]]))));
    const { index, tail } = log.manifest;
    rootRef = draft.seal(encodeRoot(exampleSpec.uuid, { index, tail }));
  });
  await store.create(boundaryKey(1), encodeBoundary(exampleSpec.uuid, { n: 1, upTo: asVersion(4) }));
  await store.create(boundaryKey(2), encodeBoundary(exampleSpec.uuid, { n: 2, upTo: asVersion(8) }));
  await store.delete([1, 2, 3, 4, 5, 6].map((v) => manifestKey(asVersion(v))));

  const { trim, end } = log.manifest.steps;
  expect([trim, end]).toEqual([4000, 9027]);
  const lines = (count: number): string[] =>
    Array.from({ length: count }, (_, i) => digestLine(i, [Buffer.from("hello"), Buffer.from("hi!")]));
  expect(read(paths[0], "--rows-per-rank", "2")).toEqual(lines(end - trim));
  expect(JSON.parse(read(paths[0], "--state")[0] as string).producers).toEqual({
    old: { epoch: 1, seq: 1, resumePoint: { n: 1 } },
  });

  // Steps [0, 192) of the fork are two ranges of its ancestor, the next ten are in its tail, the rest is its own.
  const ranges = [
    { at: asStep(0), count: 100, from: asStep(4001) },
    { at: asStep(100), count: 92, from: asStep(8930) },
  ];
  const origin = {
    uuid: exampleSpec.uuid,
    uri: pathToFileURL(paths[0]).href,
    format: exampleSpec.format,
    root: rootRef as NonNullable<typeof rootRef>,
    ranges,
  };
  const tail = { start: asStep(192), batches: Array.from({ length: 10 }, () => ({ ...descriptor, origin: 0 })) };
  const forkSpec: NamespaceSpec = {
    ...exampleSpec,
    uuid: "11111111-2222-4333-8444-555555555555",
    fork: { origins: [origin], tail },
  };
  await fork.create("namespace.json", encodeNamespace(forkSpec));
  expect(read(paths[1], "--rows-per-rank", "2")).toEqual(lines(202));
  const forked = new HandMadeLog(lifeStore(fork, forkSpec), forkSpec);
  await forked.commit((draft) => {
    for (let n = 0; n < 100; n++) draft.push({ ...descriptor, origin: 0 });
  });
  expect(read(paths[1], "--rows-per-rank", "2")).toEqual(lines(302));

  // A fork of the fork: its first 64 steps are sealed there and were inherited, so the objects are the grandparent's, known here as origin 1.
  let forkRoot = rootRef;
  await forked.commit((draft) => {
    forkRoot = draft.seal(encodeRoot(forkSpec.uuid, { index: forked.manifest.index, tail: forked.manifest.tail }));
  });
  const parent = {
    uuid: forkSpec.uuid,
    uri: pathToFileURL(paths[1]).href,
    format: forkSpec.format,
    root: forkRoot as NonNullable<typeof forkRoot>,
    ranges: [{ at: asStep(0), count: 64, from: asStep(200) }],
    via: [1],
  };
  const grandchild: NamespaceSpec = {
    ...exampleSpec,
    uuid: "11111111-2222-4333-8444-666666666666",
    fork: { origins: [parent, { ...origin, ranges: [] }], tail: { start: asStep(64), batches: [] } },
  };
  const third = await openFileStore(join(folder, "grandchild"), systemEnv, fast.storeSettings);
  await third.create("namespace.json", encodeNamespace(grandchild));
  expect(read(join(folder, "grandchild"), "--rows-per-rank", "2")).toEqual(lines(64));

  // A stale writer's manifest below the boundary is not believed, even when nothing else is there.
  await store.delete([7, 8, 9, 10].map((v) => manifestKey(asVersion(v))));
  await store.create(
    manifestKey(asVersion(5)),
    encodeManifest({ ...genesisManifest(exampleSpec), version: asVersion(5) }),
  );
  expect(python(paths[0])).toMatchObject({ status: 1, error: "refused: manifest/: no version above the boundary\n" });
});
