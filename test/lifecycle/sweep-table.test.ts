/**
 * Property: a sweep lists exactly the pages it needs and takes exactly what is dead: below the cutoff or the boundary, not live, and of our own naming. Method: a store whose pages are
 * made up, names on both sides of every border.
 */
import { describe, expect, test } from "vitest";
import { BatchWeaveError, type ErrorCode } from "../../src/errors.js";
import {
  asEpoch,
  asSeq,
  asVersion,
  type BatchName,
  batchIntents,
  batchKey,
  type Descriptor,
  genesisManifest,
  indexKey,
  type Manifest,
  manifestKey,
  openingIntentKey,
  type ProducerState,
} from "../../src/format/index.js";
import {
  type DeadObject,
  type Sweep,
  sweepBatches,
  sweepIndex,
  sweepIntents,
  sweepManifests,
  sweepUploads,
} from "../../src/lifecycle/sweep.js";
import { Tally } from "../../src/lifecycle/tally.js";
import type { ListOptions, ListPage } from "../../src/store/index.js";
import { spec } from "../log/scripted-log.js";

const incarnation = "0123456789ab";
const name = (base: number, seq = 1, producer = "p"): BatchName => ({
  ...{ producer, epoch: asEpoch(1), seq: asSeq(seq), incarnation },
  ...{ attempt: 0, base: asVersion(base) },
});
const state = (more: Partial<ProducerState> = {}): ProducerState => ({
  ...{ epoch: asEpoch(1), incarnation, seq: asSeq(5), at: asVersion(1) },
  ...{ resume: { kind: "none" } },
  ...more,
});

type List = (prefix: string, options: ListOptions | undefined) => ListPage;

function swept(
  list: List,
  more: Partial<Sweep> = {},
  store: object = {},
): Sweep & { lists: string[]; dead: DeadObject[]; warnings: string[] } {
  const lists: string[] = [];
  const dead: DeadObject[] = [];
  const warnings: string[] = [];
  const manifest: Manifest = { ...genesisManifest(spec), version: asVersion(50), producers: new Map([["p", state()]]) };
  return {
    ...{ lists, dead, warnings, manifest },
    log: {
      spec,
      store: {
        uri: "memory:sweep",
        list: async (prefix: string, options?: ListOptions) => {
          lists.push(`${prefix} ${options?.startAfter ?? ""}`.trim());
          return list(prefix, options);
        },
        ...store,
      },
    } as never,
    live: {
      hasBatch: ({ seq }: BatchName) => seq === 3,
      hasIndexObject: (key: string) => key.includes("11.json"),
    } as never,
    ...{ cutoff: asVersion(20), fromBase: 10, boundary: asVersion(30), fromBoundary: 5, inFlightMax: 2, dryRun: false },
    take: async (objects) => void dead.push(...objects),
    took: (objects) => void dead.push(...objects),
    warn: (warning) => void warnings.push(warning),
    ...more,
  };
}

const page = (keys: readonly string[], more = false): ListPage => ({
  objects: keys.map((key) => ({ key, size: 7 })),
  more,
});
const one =
  (keys: readonly string[]): List =>
  () =>
    page(keys);

describe("batches", () => {
  const names = [name(9), name(10), name(19), name(20), name(15, 3), name(15, 4), name(15, 5), name(15, 1, "stranger")];
  const keys = [...names.map((of) => batchKey(of, 0)), "batch/strange"];
  const dead = [names[1], names[2], names[5], names[6], names[7]].map((of) => batchKey(of as BatchName, 0));

  test("of one page: those from the last cutoff to this one that are not live, with their reasons", async () => {
    const sweep = swept(one(keys));
    await sweepBatches(sweep);
    expect(sweep.lists).toEqual(["batch/"]);
    expect(sweep.dead.map(({ key }) => key)).toEqual(dead);
    expect(sweep.dead.map(({ reason }) => reason)).toEqual(["trimmed", "trimmed", "trimmed", "orphan", "orphan"]);
    expect(sweep.dead[0]).toEqual({ key: dead[0], size: 7, kind: "batch", reason: "trimmed" });
    const manifest = { ...sweep.manifest, tables: [{ base: asVersion(1), commitId: "c", k: 0, check: 0 }] };
    const again = swept(one(keys), { manifest });
    await sweepBatches(again);
    expect(again.dead.at(-1)?.reason).toBe("trimmed");
  });

  test("are not looked for when the cutoff is no newer", async () => {
    for (const [fromBase, lists] of [
      [19, 1],
      [20, 0],
      [21, 0],
    ] as const) {
      const sweep = swept(one([]), { fromBase });
      await sweepBatches(sweep);
      expect(sweep.lists).toHaveLength(lists);
    }
  });

  test("of many pages: hash by hash, from the last cutoff on, until a page ends behind this one", async () => {
    const list: List = (prefix, options) => {
      if (prefix === "batch/") return page(["batch/00/x"], true);
      if (prefix !== "batch/0a/") return page([]);
      const last = options?.startAfter?.includes("b2")
        ? `${"0".repeat(18)}20/b3`
        : options?.startAfter?.includes("b1")
          ? `${"0".repeat(18)}19/b2`
          : `${"0".repeat(18)}12/b1`;
      return page([`batch/0a/${last}`], true);
    };
    const sweep = swept(list);
    await sweepBatches(sweep);
    expect(sweep.lists).toHaveLength(1 + 255 + 3);
    const from = (hash: string, rest: string): string => `batch/${hash}/ batch/${hash}/${"0".repeat(18)}${rest}`;
    expect(sweep.lists.filter((text) => text.includes("/0a/")).sort()).toEqual([
      from("0a", "10/"),
      from("0a", "12/b1"),
      from("0a", "19/b2"),
    ]);
    expect([sweep.lists[1], sweep.lists.includes(from("ff", "10/"))]).toEqual([from("00", "10/"), true]);
    const full = swept(list, { fromBase: 0 });
    await sweepBatches(full);
    expect(full.lists).toContain("batch/ff/");
  });
});

describe("uploads", () => {
  const keys = [name(9), name(19), name(20), name(15, 3)].map((of) => batchKey(of, 0));

  test("below the cutoff that are not live are aborted, or only counted", async () => {
    for (const dryRun of [false, true]) {
      const asked: unknown[] = [];
      const abortUploads = async (prefix: string, before: number, { only }: { only: (key: string) => boolean }) => {
        asked.push(prefix, before, ["batch/strange", ...keys].map(only));
      };
      const sweep = swept(one([]), { dryRun }, { abortUploads });
      await sweepUploads(sweep);
      expect(asked).toEqual(["batch/", 0, [false, !dryRun, !dryRun, false, false]]);
      expect(sweep.dead).toEqual(
        keys.slice(0, 2).map((key) => ({ key, size: 0, kind: "upload", reason: "unfinished" })),
      );
    }
  });

  test("that may not be listed are a warning; any other failure is one; without the means nothing is done", async () => {
    const refuse = (code: ErrorCode) => ({
      abortUploads: () => Promise.reject(new BatchWeaveError(code, "refused", {})),
    });
    const denied = swept(one([]), {}, refuse("STORE_DENIED"));
    await sweepUploads(denied);
    expect([denied.warnings.length, denied.dead]).toEqual([1, []]);
    await expect(sweepUploads(swept(one([]), {}, refuse("STORE_UNAVAILABLE")))).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
    });
    await sweepUploads(swept(one([]), { fromBase: 20 }, refuse("STORE_UNAVAILABLE")));
    await sweepUploads(swept(one([])));
  });
});

describe("index objects and manifests", () => {
  test("index objects below the cutoff that nothing names, page by page", async () => {
    const keys = [1, 11, 19, 20].map((base) => indexKey(asVersion(base), incarnation, base));
    const sweep = swept((_, options) =>
      options?.startAfter ? page(keys.slice(2), true) : page(["index/.strange", ...keys.slice(0, 2)], true),
    );
    await sweepIndex(sweep);
    expect(sweep.lists).toEqual(["index/", `index/ ${keys[1]}`]);
    expect(sweep.dead.map(({ key, reason }) => [key, reason])).toEqual(
      [keys[0], keys[1], keys[2]].filter((key) => !key?.includes("11.json")).map((key) => [key, "unreferenced"]),
    );
    const empty = swept(() => page([], true));
    await sweepIndex(empty);
    expect(empty.lists).toHaveLength(1);
  });

  test("manifests up to the boundary, never the head or above, and not again", async () => {
    const keys = [1, 30, 31].map((version) => manifestKey(asVersion(version)));
    const sweep = swept(one([...keys, "manifest/strange"]));
    await sweepManifests(sweep);
    expect(sweep.dead).toEqual(
      keys.slice(0, 2).map((key) => ({ key, size: 7, kind: "manifest", reason: "superseded" })),
    );
    for (const [version, count] of [
      [30, 1],
      [31, 2],
    ] as const) {
      const head = swept(one(keys), { manifest: { ...sweep.manifest, version: asVersion(version) } });
      await sweepManifests(head);
      expect(head.dead).toHaveLength(count);
    }
    const known = swept(one(keys), { fromBoundary: 30 });
    await sweepManifests(known);
    expect(known.lists).toEqual([]);
    const pages = swept((_, options) =>
      options?.startAfter ? page([keys[2] as string], true) : page([keys[0] as string], true),
    );
    await sweepManifests(pages);
    expect(pages.lists).toHaveLength(2);
  });
});

test("what is dead is deleted a thousand at a time at most, and what is left at the end of a kind", async () => {
  const deleted: number[] = [];
  const log = {
    spec: { ...spec, format: 2 },
    store: { delete: async (keys: readonly string[]) => void deleted.push(keys.length) },
  } as never;
  const tally = new Tally(log, false, undefined, undefined);
  const dead = (n: number): DeadObject[] =>
    Array.from({ length: n }, (_, i) => ({ key: `k${i}`, size: 2, kind: "batch", reason: "orphan" }));
  await tally.ways.take(dead(999));
  expect(deleted).toEqual([]);
  await tally.ways.take(dead(1));
  expect(deleted).toEqual([1_000]);
  await tally.ways.take(dead(3));
  await tally.flush();
  await tally.flush();
  expect([deleted, tally.counts().batches]).toEqual([[1_000, 3], { objects: 1_003, bytes: 2_006 }]);
  let asked = 0;
  const old = { spec, presence: { ask: async () => void asked++ }, store: { delete: async () => {} } } as never;
  const first = new Tally(old, false, undefined, undefined);
  await first.ways.take(dead(1));
  await first.flush();
  expect(asked).toBe(0);
  await first.ways.take([{ key: "m", size: 1, kind: "manifest", reason: "superseded" }]);
  await first.flush();
  expect(asked).toBe(1);
  const later = new Tally({ ...(old as object), spec: { ...spec, format: 2 } } as never, false, undefined, undefined);
  await later.ways.take([{ key: "m", size: 1, kind: "manifest", reason: "superseded" }]);
  await later.flush();
  expect(asked).toBe(1);
  const dry = new Tally(log, true, undefined, undefined);
  await dry.ways.take(dead(2));
  await dry.ways.take(dead(3));
  await dry.flush();
  expect([dry.dead?.length, dry.counts().batches.objects, deleted.length]).toEqual([3, 3, 2]);
});

describe("intents", () => {
  test("that are spent, expired or say nothing; all of them once the log is closed", async () => {
    const batch = (base: number, seq: number): Descriptor => ({
      ...name(base, seq),
      extents: [{ cells: 2, size: 228, table: 100, check: 1 }],
    });
    const key = (base: number, seq: number): string => batchIntents(spec.uuid, [batch(base, seq)]).keys[0] as string;
    const opening = openingIntentKey(spec.uuid, { producer: "q", before: asEpoch(1), incarnation });
    const [spent, expired, good, border] = [key(25, 4), key(19, 6), key(25, 7), key(20, 8)];
    const all = [spent, expired, good, border, opening, "intent/0/strange"];
    const taken = async (more: Partial<Sweep> = {}) => {
      const sweep = swept(one(all), more);
      await sweepIntents(sweep);
      return sweep.dead.map(({ key, reason, kind }) => `${kind} ${reason} ${key}`);
    };
    expect(await taken()).toEqual(
      [spent, expired, "intent/0/strange"]
        .sort()
        .map((of) => `intent ${of.endsWith("strange") ? "unreadable" : "spent"} ${of}`),
    );
    const manifest: Manifest = { ...swept(one([])).manifest, closed: true };
    expect(await taken({ manifest })).toHaveLength(6);
  });
});
