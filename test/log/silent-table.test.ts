/**
 * Property: what is carried, which intents are spent and who is silent is decided exactly, at every border. Method: the pure functions, table by table, with the value before each
 * border, at it and behind it; a log whose producers fall silent and come back.
 */
import { describe, expect, test } from "vitest";
import { openProducer } from "../../src/cadence/index.js";
import {
  asEpoch,
  asSeq,
  asVersion,
  type Descriptor,
  genesisManifest,
  type Intent,
  type Manifest,
  type NamespaceSpec,
  type NodeRef,
  openingIntentKey,
  type ProducerState,
  type SilentProducer,
} from "../../src/format/index.js";
import { Draft } from "../../src/log/draft.js";
import { type Holder, type Log, listIntents, publishIntents } from "../../src/log/index.js";
import { type Intents, noIntents, spentIntents, stageIntents } from "../../src/log/intents.js";
import { findSilent, lookUpSilence, stageSilence } from "../../src/log/silent.js";
import { HookedStore } from "../lifecycle/hooked-store.js";
import { SmallWorld, Writer } from "../lifecycle/small-world.js";

const spec: NamespaceSpec = {
  format: 1,
  uuid: "0d0c7a3e-5d1c-4f5e-9a53-2f4d2f6d8a11",
  grid: { rows: 2, chunks: 1 },
  order: { kind: "commit" },
  created: 0,
  rest: {},
};
const lanes3: NamespaceSpec = { ...spec, order: { kind: "lanes", lanes: 3 } };
const incarnation = "aaaaaaaaaaaa";
const stamp = { id: "c00000000000", by: "p", time: 0, boundaryHint: 0 };
const ref = (k: number): NodeRef => ({ base: asVersion(1), commitId: "c00000000000", k, check: k });

/** A draft on a base that is changed first. */
function draftOn(change: Partial<Manifest> = {}, of: NamespaceSpec = spec): Draft {
  return new Draft({ ...genesisManifest(of), ...change }, stamp);
}

function batch(producer: string, seq: number, more: Partial<Descriptor> = {}): Descriptor {
  const extents = [{ cells: 2, size: 228, table: 100, check: seq }];
  const name = { producer, epoch: asEpoch(1), seq: asSeq(seq), incarnation, attempt: 0, base: asVersion(5) };
  return { ...name, extents, ...more };
}

const _holder = (producer: string, epoch = 1) => ({ producer, epoch, incarnation });
const state = (more: Partial<ProducerState> = {}): ProducerState => ({
  epoch: asEpoch(1),
  incarnation,
  seq: asSeq(0),
  at: asVersion(1),
  resume: { kind: "none" },
  ...more,
});

describe("intents", () => {
  const intents = (more: Partial<Intents>): Intents => ({ ...noIntents, ...more });
  const carried = (batches: readonly Descriptor[], change: Partial<Manifest> = {}): number => {
    const draft = draftOn({ producers: new Map([["p", state({ seq: asSeq(3) })]]), ...change });
    return stageIntents(draft, spec, intents({ batches: new Map([["p", batches]]) }), new Map());
  };

  test("a carrier carries from the next seq to the first gap, of the holder, while the log is open", () => {
    const of = (...seqs: readonly number[]) => seqs.map((seq) => batch("p", seq));
    expect([carried(of(1, 2, 3, 4)), carried(of(3, 3, 4)), carried(of(4)), carried(of(3, 5))]).toEqual([2, 2, 0, 1]);
    expect(carried(of(3), { closed: true })).toBe(0);
    expect(carried(of(3), { producers: new Map() })).toBe(0);
    expect(carried([batch("p", 3, { epoch: asEpoch(2) })])).toBe(0);
    expect(carried(of(3, 4), { orphanCutoff: asVersion(6) })).toBe(0);
  });

  test("an intent that staging refuses is its owner's business, and stops nobody", () => {
    const draft = draftOn(
      {
        producers: new Map([
          ["stranger", state()],
          ["lane-0", state()],
        ]),
      },
      lanes3,
    );
    const batches = new Map([
      ["s", [batch("stranger", 0)]],
      ["l", [batch("lane-0", 0)]],
    ]);
    expect(stageIntents(draft, lanes3, intents({ batches }), new Map())).toBe(1);
    expect(draft.end).toBe(1);
  });

  test("a descriptor that cannot be right is not carried", () => {
    const extent = { cells: 2, size: 228, table: 100, check: 1 };
    const one = { cells: 1, size: 204, table: 100, check: 1 };
    const well = (extents: Descriptor["extents"], stride?: number) =>
      carried([batch("p", 3, { extents, ...(stride === undefined ? {} : { stride }) })]);
    expect([well([extent]), well([one, one]), well([extent], 50), well([extent], 51)]).toEqual([1, 1, 1, 0]);
    expect([
      well([one]),
      well([extent, one]),
      well([{ ...extent, size: 227 }]),
      well([{ ...extent, size: 229 }]),
    ]).toEqual([0, 0, 0, 0]);
  });

  test("a batch of two chunks has two cells a row", () => {
    const wide = { ...spec, grid: { rows: 1, chunks: 2 } };
    const draft = draftOn({ producers: new Map([["p", state()]]) }, wide);
    expect(stageIntents(draft, wide, intents({ batches: new Map([["p", [batch("p", 0)]]]) }), new Map())).toBe(1);
  });

  test("an opening is carried only for the epoch that its opener saw, and not where a table may hold the state", () => {
    const opens = (before: number, change: Partial<Manifest>, silent?: SilentProducer): unknown => {
      const draft = draftOn(change);
      const opening = { producer: "p", before: asEpoch(before), incarnation: "bbbbbbbbbbbb" };
      const found = silent && { state: silent.state, table: ref(1), hasResumePoint: false };
      const n = stageIntents(draft, spec, intents({ openings: [opening] }), new Map(found ? [["p", found]] : []));
      return [n, draft.producers.get("p")?.epoch];
    };
    const producers = new Map([["p", state({ epoch: asEpoch(3) })]]);
    expect(opens(0, {})).toEqual([1, 1]);
    expect(opens(1, {})).toEqual([0, undefined]);
    expect(opens(3, { producers })).toEqual([1, 4]);
    expect(opens(2, { producers })).toEqual([0, 3]);
    expect(opens(3, { producers, closed: true })).toEqual([0, 3]);
    expect(opens(3, { producers, tables: [ref(1)] })).toEqual([1, 4]);
    expect(opens(0, { tables: [ref(1)] })).toEqual([0, undefined]);
    expect(opens(5, { tables: [ref(1)] }, { state: state({ epoch: asEpoch(5) }), resumePoint: undefined })).toEqual([
      1, 6,
    ]);
    const leaving = { producer: "p", epoch: asEpoch(3), incarnation };
    const draft = draftOn({ producers });
    expect(stageIntents(draft, spec, intents({ leavings: [leaving, leaving] }), new Map())).toBe(1);
  });

  test("spent is what is in, fenced, opened or left, and nothing before that", () => {
    const spent = (intent: Intent, of: ProducerState | undefined): boolean =>
      spentIntents(intents({ keys: new Map([["k", intent]]) }), new Map(of ? [["p", of]] : [])).length === 1;
    const opening: Intent = { kind: "opening", opening: { producer: "p", before: asEpoch(2), incarnation } };
    const at = (epoch: number, more: Partial<ProducerState> = {}) => state({ epoch: asEpoch(epoch), ...more });
    expect([spent(opening, undefined), spent(opening, at(2)), spent(opening, at(3))]).toEqual([false, false, true]);
    const leaving: Intent = { kind: "leaving", leaving: { producer: "p", epoch: asEpoch(2), incarnation } };
    expect([spent(leaving, undefined), spent(leaving, at(2)), spent(leaving, at(3))]).toEqual([false, false, true]);
    expect([spent(leaving, at(2, { left: asEpoch(2) })), spent(leaving, at(2, { left: asEpoch(1) }))]).toEqual([
      true,
      false,
    ]);
    const own: Intent = { kind: "batches", batches: [batch("p", 4), batch("p", 5)] };
    expect([undefined, at(1, { seq: asSeq(5) }), at(1, { seq: asSeq(6) }), at(2)].map((of) => spent(own, of))).toEqual([
      false,
      false,
      true,
      true,
    ]);
    expect(spent(own, at(1, { seq: asSeq(9), incarnation: "bbbbbbbbbbbb" }))).toBe(false);
  });
});

describe("silent producers", () => {
  const policy = { silentVersions: 100, inlineProducersMin: 20, movedMin: 4 };
  const base = (version: number, ats: readonly number[], tables: readonly NodeRef[] = []): Manifest => ({
    ...genesisManifest(spec),
    version: asVersion(version),
    tables,
    producers: new Map(ats.map((at, i) => [`p${i}`, state({ at: asVersion(at) })])),
  });
  const moved = async (of: Manifest, more: object = {}): Promise<string[] | undefined> => {
    const none = async () => new Map();
    const found = await lookUpSilence(of, { ...policy, ...more }, none, async (id) => `after ${id}`);
    return found && [...found.moved.keys()];
  };
  const young = Array.from({ length: 16 }, () => 900);

  test("those older than the limit move, oldest first, when enough of enough are", async () => {
    expect(await moved(base(1_000, [...young, 899, 897, 898, 896]))).toEqual(["p19", "p17", "p18", "p16"]);
    expect(await moved(base(1_000, [...young, 899, 897, 898, 900]))).toBeUndefined();
    expect(await moved(base(1_000, [...young.slice(1), 1, 2, 3, 4]))).toBeUndefined();
    expect(
      await moved(
        base(
          100,
          Array.from({ length: 20 }, () => -1),
        ),
      ),
    ).toBeUndefined();
    expect(
      await moved(
        base(
          101,
          Array.from({ length: 20 }, () => 0),
        ),
      ),
    ).toHaveLength(20);
    expect(
      await moved(
        base(
          1_000,
          Array.from({ length: 70 }, () => 1),
        ),
      ),
    ).toHaveLength(64);
    expect(
      await moved(base(1_000, [...young, ...young.slice(1).map(() => 1)]), { movedMin: undefined }),
    ).toBeUndefined();
    expect(await moved(base(1_000, [...young, ...young.map(() => 1)]), { movedMin: undefined })).toHaveLength(16);
  });

  test("one whose last batch is gone stays; any other failure is one", async () => {
    const { BatchWeaveError } = await import("../../src/errors.js");
    const of = base(1_000, [...young, 1, 2, 3, 4]);
    const fail = (code: "MISSING_OBJECT" | "CORRUPT") =>
      lookUpSilence(
        of,
        policy,
        async () => new Map(),
        async (id) => {
          if (id === "p17") throw new BatchWeaveError(code, "gone", {});
          return 1;
        },
      );
    expect([...((await fail("MISSING_OBJECT"))?.moved.keys() ?? [])]).toEqual(["p16", "p18", "p19"]);
    await expect(fail("CORRUPT")).rejects.toMatchObject({ code: "CORRUPT" });
  });

  test("eight tables are merged, the last alone where all would be too large, none where it would be too", async () => {
    const sizes = async (counts: readonly number[]): Promise<number[] | undefined> => {
      const table = (n: number) =>
        new Map(Array.from({ length: n }, (_, i) => [`t${i}`, { state: state(), resumePoint: 1 }]));
      const of = base(
        1_000,
        [...young, 1, 2, 3, 4],
        counts.map((_, i) => ref(i)),
      );
      const found = await lookUpSilence(
        of,
        policy,
        async ({ k }) => table(counts[k] as number),
        async () => 1,
      );
      return found?.merged.map(({ size }) => size);
    };
    expect(await sizes([9, 9, 9, 9, 9, 9, 9])).toEqual([]);
    expect(await sizes([1, 2, 3, 4, 5, 6, 7, 8])).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(await sizes([500, 1, 2, 3, 4, 5, 6, 7, 8])).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    // 4,096 of a table at most, with the four that move.
    expect(await sizes([4_085, 1, 1, 1, 1, 1, 1, 1])).toHaveLength(8);
    expect(await sizes([4_086, 1, 1, 1, 1, 1, 1, 1])).toEqual([1]);
    expect(await sizes([1, 1, 1, 1, 1, 1, 1, 4_092])).toEqual([4_092]);
    expect(await sizes([1, 1, 1, 1, 1, 1, 1, 4_093])).toEqual([]);
  });

  test("what moves makes one table of itself and the merged; who is back or changed stays where it is", () => {
    const draft = new Draft(base(1_000, [900, 1, 2], [ref(0), ref(1), ref(2)]), stamp);
    const entry = (n: number): SilentProducer => ({ state: state({ seq: asSeq(n) }), resumePoint: n });
    draft.producers.set("p2", state({ at: draft.version }));
    const own = draft.base.producers;
    const findings = {
      moved: new Map(["p1", "p2"].map((id) => [id, { state: own.get(id) as ProducerState, resumePoint: id }])),
      merged: [
        new Map([
          ["x", entry(1)],
          ["p0", entry(2)],
        ]),
        new Map([["x", entry(3)]]),
      ],
    };
    stageSilence(draft, findings);
    expect([...draft.producers.keys()]).toEqual(["p0", "p2"]);
    expect(draft.tables.map(({ k }) => k)).toEqual([0, 0]);
    const [sealed] = draft.sealed;
    const table = Buffer.from((sealed as { bytes: Uint8Array }).bytes).toString();
    expect([/"p1"/.test(table), /"p0"/.test(table), /"p2"/.test(table), table.split('"x"').length]).toEqual([
      true,
      false,
      false,
      2,
    ]);
    const quiet = new Draft(base(1_000, [900], [ref(0)]), stamp);
    stageSilence(quiet, undefined);
    stageSilence(quiet, { moved: new Map(), merged: [new Map()] });
    expect([quiet.tables, quiet.sealed]).toEqual([[ref(0)], []]);
  });

  test("the newest table that has an id is asked last by nobody", async () => {
    const entry = (seq: number, resumePoint: unknown): SilentProducer => ({
      state: state({ seq: asSeq(seq) }),
      resumePoint,
    });
    const tables = [
      new Map([["p", entry(1, 1)]]),
      new Map([["p", entry(2, undefined)]]),
      new Map([["q", entry(3, 3)]]),
    ];
    const of = base(9, [], [ref(0), ref(1), ref(2)]);
    const asked: number[] = [];
    const read = async ({ k }: NodeRef) => {
      asked.push(k);
      return tables[k] as Map<string, SilentProducer>;
    };
    expect(await findSilent(of, "p", read)).toEqual({
      state: state({ seq: asSeq(2) }),
      table: ref(1),
      hasResumePoint: false,
    });
    expect(asked).toEqual([2, 1]);
    expect((await findSilent(of, "q", read))?.hasResumePoint).toBe(true);
    expect(await findSilent(of, "none", read)).toBeUndefined();
  });
});

describe("a log with silent producers", () => {
  test("moves them to a table, knows where they stand, and takes them back: by batch, by opening, by a carrier", async () => {
    const world = new SmallWorld();
    const log = await world.create("memory:silent");
    const policy = { silentVersions: 4, inlineProducersMin: 2, movedMin: 1 };
    const view = (): Log => world.open("memory:silent", log.spec, undefined, policy);
    const quiet = ["a", "b", "c", "d"].map((id) => new Writer(view(), id));
    for (const one of quiet) await one.write(2);
    await new Writer(view(), "none").open();
    const busy = new Writer(view(), "busy");
    for (let i = 0; i < 8; i++) await busy.write(1);
    const head = await view().head.load();
    expect([...head.producers.keys()]).toEqual(["busy"]);
    expect(head.tables.length).toBeGreaterThan(0);
    expect(await view().peek("a")).toEqual({ seq: 2, resumePoint: { after: 1 } });
    expect(await view().peek("none")).toEqual({ seq: 0, resumePoint: undefined });
    expect(await view().peek("nobody")).toBeUndefined();
    // By its next batch: its holder is still the holder.
    const [a, b, c, d] = quiet as [Writer, Writer, Writer, Writer];
    await a.log.head.jump();
    await a.write(1);
    const back = (await view().head.load()).producers.get("a");
    expect([back?.epoch, back?.seq]).toEqual([1, 3]);
    // By an opening, which gets the resume point out of the table.
    const opening = await openProducer(view(), "b");
    expect([opening.holder.epoch, opening.state.seq, opening.resumePoint]).toEqual([2, 2, { after: 1 }]);
    // By a carrier, which looks them up: a batch that its holder announced, and an opening for the right epoch.
    await c.log.head.jump();
    await publishIntents(log.store, log.spec.uuid, [await c.upload()]);
    const wanted = { producer: "d", before: asEpoch(1), incarnation: "bbbbbbbbbbbb" };
    await log.store.put(openingIntentKey(log.spec.uuid, wanted), new Uint8Array(0));
    const carrier = view();
    const intents = await listIntents(log.store, log.spec.uuid);
    const { result, manifest } = await carrier.attemptBatches(busy.holder as Holder, [], {
      kind: "carrier",
      intents,
      fresh: true,
    });
    expect(result?.carried).toBe(1);
    expect(manifest.producers.get("d")).toMatchObject({ epoch: 2, incarnation: "bbbbbbbbbbbb", seq: 2 });
    expect([b.seq, d.seq]).toEqual([2, 2]);
  });

  test("an opener that lost carries the openings of others, also of those in a table", async () => {
    const world = new SmallWorld();
    const uri = "memory:openers";
    const log = await world.create(uri);
    const policy = { silentVersions: 4, inlineProducersMin: 2, movedMin: 1 };
    await new Writer(world.open(uri, log.spec, undefined, policy), "quiet").write(2);
    const busy = new Writer(world.open(uri, log.spec, undefined, policy), "busy");
    for (let i = 0; i < 8; i++) await busy.write(1);
    expect([...(await log.head.load()).producers.keys()]).toEqual(["busy"]);
    const wanted = { producer: "quiet", before: asEpoch(1), incarnation: "bbbbbbbbbbbb" };
    await log.store.put(openingIntentKey(log.spec.uuid, wanted), new Uint8Array(0));
    let isLost = false;
    const losing = new HookedStore(world.store(uri), {
      create: async (key, inner) => {
        if (!isLost && key.startsWith("manifest/")) {
          isLost = true;
          await busy.write(1);
        }
        return await inner();
      },
    });
    const opening = await openProducer(world.open(uri, log.spec, losing, policy), "new");
    expect([isLost, opening.holder.epoch]).toEqual([true, 1]);
    const head = await log.head.jump();
    expect(head.producers.get("quiet")).toMatchObject({ epoch: 2, incarnation: "bbbbbbbbbbbb", seq: 2 });
  });
});
