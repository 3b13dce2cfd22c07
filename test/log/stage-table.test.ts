/**
 * Property: what staging decides is exact, at every border: which checkpoint goes, which limit is the last that fits, what a closed log of lanes has, what a carrier may carry, which
 * intents are spent, who is silent. Method: the pure functions, table by table, with the value before each border, at it and behind it.
 */
import { describe, expect, test } from "vitest";
import {
  asEpoch,
  asSeq,
  asStep,
  asVersion,
  type Descriptor,
  genesisManifest,
  type Manifest,
  type NamespaceSpec,
  type NodeRef,
  type ProducerState,
} from "../../src/format/index.js";
import { Draft } from "../../src/log/draft.js";
import {
  firstOwnStep,
  laneNumber,
  laneSeqAt,
  seqInLog,
  stageBatches,
  stageClosing,
  stageLeaving,
  stageOpening,
  stageReturn,
} from "../../src/log/stage.js";
import { checkpointsMax, newestFirst, stageCheckpoint, stageRelease } from "../../src/log/stage-checkpoint.js";
import {
  sameRef,
  stageConfirmation,
  stageCutoff,
  stagePin,
  stagePinCopy,
  stageSettings,
  stageTrim,
  stageUnpin,
} from "../../src/log/stage-retention.js";

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

const holder = (producer: string, epoch = 1) => ({ producer, epoch, incarnation });
const state = (more: Partial<ProducerState> = {}): ProducerState => ({
  epoch: asEpoch(1),
  incarnation,
  seq: asSeq(0),
  at: asVersion(1),
  resume: { kind: "none" },
  ...more,
});

describe("checkpoints", () => {
  const at = (id: string, row: number, more: object = {}) => ({ group: "g", id, row, iteration: 0, ...more });
  const long = { steps: { trim: asStep(10), end: asStep(100) }, tail: { start: asStep(100), batches: [] } };

  test("rows from the first of the trim to the one behind the last fit, and no others", () => {
    for (const [row, code] of [
      [19, "RECLAIMED"],
      [20, undefined],
      [200, undefined],
      [201, "INVALID_ARGUMENT"],
    ] as const) {
      const draft = draftOn(long);
      const stage = (): boolean => stageCheckpoint(draft, 2, at("c", row));
      if (code) expect(stage).toThrow(expect.objectContaining({ code }));
      else expect([stage(), draft.checkpoints.get("g")?.live.get("c")]).toEqual([false, { row, iteration: 0, at: 1 }]);
    }
  });

  test("the same again is there already; another row or iteration is a conflict; a released id is used up", () => {
    const draft = draftOn(long);
    expect(stageCheckpoint(draft, 2, at("c", 30))).toBe(false);
    expect(stageCheckpoint(draft, 2, at("c", 30))).toBe(true);
    for (const other of [at("c", 31), at("c", 30, { iteration: 1 })])
      expect(() => stageCheckpoint(draft, 2, other)).toThrow(expect.objectContaining({ code: "CHECKPOINT_CONFLICT" }));
    expect(stageRelease(draft, "g", "c")).toBe(false);
    expect(draft.checkpoints.get("g")).toEqual({ live: new Map(), released: ["c"] });
    expect(stageRelease(draft, "g", "c")).toBe(true);
    expect(() => stageCheckpoint(draft, 2, at("c", 30))).toThrow(
      expect.objectContaining({ code: "CHECKPOINT_RELEASED" }),
    );
    for (const [group, id] of [
      ["g", "d"],
      ["h", "c"],
    ] as const)
      expect(() => stageRelease(draft, group, id)).toThrow(expect.objectContaining({ code: "NO_CHECKPOINT" }));
  });

  test("newest is registered last, then furthest, then last by name; keepLast keeps those", () => {
    const mark = (row: number, version: number) => ({ row: row as never, iteration: 0, at: asVersion(version) });
    const live = new Map([
      ["a", mark(50, 3)],
      ["b", mark(90, 2)],
      ["c", mark(40, 3)],
      ["d", mark(40, 3)],
    ]);
    expect(newestFirst(live).map(([id]) => id)).toEqual(["a", "d", "c", "b"]);
    const draft = draftOn({ ...long, version: asVersion(9), checkpoints: new Map([["g", { live, released: ["z"] }]]) });
    stageCheckpoint(draft, 2, at("e", 20, { keepLast: 3 }));
    const group = draft.checkpoints.get("g");
    expect([[...(group?.live.keys() ?? [])], group?.released]).toEqual([
      ["a", "d", "e"],
      ["z", "c", "b"],
    ]);
  });

  test("1,024 live ones over all groups, 64 groups, 256 released names of a group, and not one more", () => {
    const many = (n: number, from = 0) =>
      new Map(
        Array.from({ length: n }, (_, i) => [`c${from + i}`, { row: 20 as never, iteration: 0, at: asVersion(1) }]),
      );
    const two = new Map([
      ["g", { live: many(1_000), released: [] }],
      ["h", { live: many(checkpointsMax - 1_001), released: [] }],
    ]);
    const draft = draftOn({ ...long, checkpoints: two });
    expect(stageCheckpoint(draft, 2, at("last", 20))).toBe(false);
    expect(() => stageCheckpoint(draft, 2, at("one more", 20))).toThrow(expect.objectContaining({ code: "LIMIT" }));
    const groups = (n: number, idle: number) =>
      new Map(Array.from({ length: n }, (_, i) => [`g${i}`, { live: many(i === idle ? 0 : 1, i), released: [] }]));
    const fits = draftOn({ ...long, checkpoints: groups(63, -1) });
    stageCheckpoint(fits, 2, at("c", 20));
    expect(fits.checkpoints.size).toBe(64);
    expect(() => stageCheckpoint(fits, 2, at("c", 20, { group: "new" }))).toThrow(
      expect.objectContaining({ code: "LIMIT" }),
    );
    stageCheckpoint(fits, 2, at("c2", 20));
    expect(fits.checkpoints.size).toBe(64);
    const idle = draftOn({ ...long, checkpoints: groups(64, 7) });
    stageCheckpoint(idle, 2, at("c", 20, { group: "new" }));
    expect([idle.checkpoints.size, idle.checkpoints.has("g7"), idle.checkpoints.has("new")]).toEqual([64, false, true]);
    const released = Array.from({ length: 256 }, (_, i) => `r${i}`);
    const used = draftOn({ ...long, checkpoints: new Map([["g", { live: many(1), released }]]) });
    stageRelease(used, "g", "c0");
    expect(used.checkpoints.get("g")?.released).toEqual([...released.slice(1), "c0"]);
  });

  test("the trim goes to the lowest of all groups, never back, never past the end, and stays without any", () => {
    const trimmed = (rows: readonly number[][], change: Partial<Manifest> = long): number => {
      const mark = (row: number) => ({ row: row as never, iteration: 0, at: asVersion(1) });
      const group = (marks: readonly number[]) => ({
        live: new Map(marks.map((row) => [`c${row}`, mark(row)])),
        released: [],
      });
      const draft = draftOn({ ...change, checkpoints: new Map(rows.map((marks, i) => [`g${i}`, group(marks)])) });
      stageTrim(draft, 2);
      return draft.trim;
    };
    expect([trimmed([]), trimmed([[]]), trimmed([[80, 61], [70]]), trimmed([[4]]), trimmed([[500]])]).toEqual([
      10, 10, 30, 10, 100,
    ]);
  });

  test("the cutoff rises to the base's version at most", () => {
    for (const [wanted, cutoff] of [
      [3, 5],
      [7, 7],
      [9, 9],
      [12, 9],
    ] as const) {
      const draft = draftOn({ version: asVersion(9), orphanCutoff: asVersion(5) });
      stageCutoff(draft, asVersion(wanted));
      expect(draft.orphanCutoff).toBe(cutoff);
    }
  });
});

describe("pins and settings", () => {
  const pin = (fork: string, from: number, to: number) => ({
    fork,
    uri: "memory:f",
    created: 3,
    from: asStep(from),
    to: asStep(to),
  });
  const long = { steps: { trim: asStep(10), end: asStep(20) }, tail: { start: asStep(20), batches: [] } };

  test("what is not live is not pinned; what is gets a root of this base; 256 forks fit", () => {
    for (const [from, to, fits] of [
      [9, 20, false],
      [10, 21, false],
      [10, 20, true],
    ] as const) {
      const draft = draftOn(long);
      const root = stagePin(draft, pin("f", from, to));
      expect(root !== undefined).toBe(fits);
      if (fits) expect(draft.pins.get("f")).toEqual({ ...pin("f", from, to), confirmed: false, root });
    }
    const pins = (n: number) =>
      new Map(
        Array.from({ length: n }, (_, i) => [`f${i}`, { ...pin(`f${i}`, 10, 20), confirmed: true, root: ref(i) }]),
      );
    expect(stagePin(draftOn({ ...long, pins: pins(255) }), pin("f", 10, 20))).toBeDefined();
    const full = draftOn({ ...long, pins: pins(256) });
    expect(() => stagePin(full, pin("f", 10, 20))).toThrow(expect.objectContaining({ code: "LIMIT" }));
    expect(() => stagePinCopy(full, "f1", ref(1), pin("f", 0, 0))).toThrow(expect.objectContaining({ code: "LIMIT" }));
  });

  test("a copy needs the very root; a confirmation and an unpin are done once", () => {
    const pins = new Map([["f", { ...pin("f", 10, 12), confirmed: false, root: ref(4) }]]);
    const draft = draftOn({ ...long, pins });
    const { from: _, to: __, ...wanted } = pin("ff", 0, 0);
    expect(stagePinCopy(draft, "none", ref(4), wanted)).toBe(false);
    expect(stagePinCopy(draft, "f", ref(5), wanted)).toBe(false);
    expect(stagePinCopy(draft, "f", ref(4), wanted)).toBe(true);
    expect(draft.pins.get("ff")).toEqual({ ...pin("ff", 10, 12), confirmed: false, root: ref(4) });
    expect([stageConfirmation(draft, "f"), stageConfirmation(draft, "f"), stageConfirmation(draft, "x")]).toEqual([
      "staged",
      "done",
      "gone",
    ]);
    expect(draft.pins.get("f")?.confirmed).toBe(true);
    expect([stageUnpin(draft, "f", true), draft.pins.has("f")]).toEqual([true, true]);
    expect([stageUnpin(draft, "ff", true), draft.pins.has("ff")]).toEqual([false, false]);
    expect([stageUnpin(draft, "f", false), draft.pins.has("f"), stageUnpin(draft, "f", false)]).toEqual([
      false,
      false,
      true,
    ]);
  });

  test("two references are the same when all of them is", () => {
    const one = ref(3);
    expect(sameRef(one, { ...one })).toBe(true);
    for (const other of [{ base: asVersion(2) }, { commitId: "c00000000001" }, { k: 4 }, { check: 4 }])
      expect(sameRef(one, { ...one, ...other })).toBe(false);
  });

  test("a setting is changed once, and leaves others alone", () => {
    const draft = draftOn({ settings: { maxLag: 3, other: 1 } as never });
    expect([stageSettings(draft, { maxLag: 3 }), stageSettings(draft, { maxLag: 4 })]).toEqual([true, false]);
    expect(draft.settings).toEqual({ maxLag: 4, other: 1 });
    expect([stageSettings(draft, { maxLag: undefined }), stageSettings(draft, { maxLag: undefined })]).toEqual([
      false,
      true,
    ]);
    expect(draft.settings).toEqual({ other: 1 });
  });
});

describe("lanes", () => {
  test("a lane is its producer id, below the number of lanes", () => {
    expect([0, 2].map((k) => laneNumber(`lane-${k}`, 3))).toEqual([0, 2]);
    for (const id of ["lane-3", "lane-01", "lane-", "lane-1x", "xlane-1", "p"])
      expect(() => laneNumber(id, 3)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
  });

  test("the seq of a lane at a step counts from the first own step", () => {
    const fork = { tail: { start: asStep(60), batches: [batch("x", 0), batch("x", 1)] } };
    const forked = { ...lanes3, fork: fork as never };
    expect([firstOwnStep(lanes3), firstOwnStep(forked)]).toEqual([0, 62]);
    const seqs = (of: NamespaceSpec, steps: readonly number[]) => steps.map((step) => laneSeqAt(of, "lane-1", step));
    expect(seqs(lanes3, [0, 1, 2, 4, 5, 7])).toEqual([0, 0, 1, 1, 2, 2]);
    expect(seqs(forked, [10, 62, 63, 64, 66, 67])).toEqual([0, 0, 0, 1, 1, 2]);
    expect([laneSeqAt(lanes3, "p", 5), laneSeqAt(spec, "lane-1", 5)]).toEqual([undefined, undefined]);
    const at = (closed: boolean, end: number) => ({ closed, steps: { trim: asStep(0), end: asStep(end) } });
    expect(seqInLog(lanes3, at(false, 4), "lane-1", 9)).toBe(9);
    expect(seqInLog(lanes3, at(true, 5), "lane-1", 9)).toBe(2);
    expect(seqInLog(lanes3, at(true, 50), "lane-1", 9)).toBe(9);
    expect(seqInLog(spec, at(true, 5), "p", 9)).toBe(9);
  });

  test("a lane may be 64 batches ahead; what waits is placed when its turn comes; closing drops it by name only", () => {
    const draft = draftOn({ producers: new Map(["lane-0", "lane-1", "lane-2"].map((id) => [id, state()])) }, lanes3);
    const put = (lane: number, from: number, to: number) =>
      stageBatches(
        draft,
        lanes3,
        holder(`lane-${lane}`),
        Array.from({ length: to - from }, (_, i) => batch(`lane-${lane}`, from + i)),
      );
    const verdicts = put(2, 0, 66);
    expect([verdicts.filter((v) => v === "staged").length, verdicts[64], verdicts[65]]).toEqual([
      64,
      "ahead",
      "blocked",
    ]);
    expect([draft.end, draft.waiting.size, draft.producers.get("lane-2")?.seq]).toEqual([0, 64, 64]);
    put(0, 0, 1);
    expect(draft.end).toBe(1);
    put(1, 0, 1);
    expect([draft.end, draft.waiting.size]).toEqual([3, 63]);
    expect(put(2, 64, 66)).toEqual(["staged", "ahead"]);
    const one = draftOn({ waiting: new Map([[asStep(3), batch("lane-0", 1)]]) }, lanes3);
    expect(() => stageClosing(one, false)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
    expect(() => stageClosing(draft, false)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
    expect([stageClosing(draft, true), draft.closed, draft.waiting.size, stageClosing(draft, false)]).toEqual([
      false,
      true,
      0,
      true,
    ]);
    expect(put(2, 0, 1)).toEqual(["in"]);
    expect(() => put(2, 1, 2)).toThrow(expect.objectContaining({ code: "CLOSED" }));
    expect(() => put(0, 1, 2)).toThrow(expect.objectContaining({ code: "CLOSED" }));
  });
});

describe("batches and producers", () => {
  test("below the cutoff an upload has expired, and so has all of the backlog that is", () => {
    const draft = draftOn({ orphanCutoff: asVersion(6), producers: new Map([["p", state()]]) });
    const old = (seq: number) => batch("p", seq);
    const young = (seq: number) => batch("p", seq, { base: asVersion(6) });
    expect(stageBatches(draft, spec, holder("p"), [young(0), old(1), young(2), old(3)])).toEqual([
      "staged",
      "expired",
      "blocked",
      "expired",
    ]);
    const { resume, seq, at } = draft.producers.get("p") as ProducerState;
    const last = { base: 6, attempt: 0, extent: 0, size: 228, check: 0, epoch: 1, incarnation, seq: 0 };
    expect([seq, at, resume]).toEqual([1, 1, { kind: "batch", batch: last }]);
  });

  test("only the holder stages, and only it leaves, once", () => {
    const draft = draftOn({ producers: new Map([["p", state({ epoch: asEpoch(2) })]]) });
    for (const wrong of [holder("p"), { ...holder("p", 2), incarnation: "bbbbbbbbbbbb" }, holder("q", 2)]) {
      expect(() => stageBatches(draft, spec, wrong, [])).toThrow(expect.objectContaining({ code: "FENCED" }));
      expect(stageLeaving(draft, wrong)).toBe(false);
    }
    expect([stageLeaving(draft, holder("p", 2)), stageLeaving(draft, holder("p", 2))]).toEqual([true, false]);
    expect(draft.producers.get("p")).toMatchObject({ at: 1, left: 2 });
  });

  test("an opening takes the next epoch and goes on where the id stood, inline or in a table", () => {
    const draft = draftOn();
    const opened = (id: string): ProducerState | undefined => draft.producers.get(id);
    expect([
      stageOpening(draft, "p", incarnation, undefined),
      stageOpening(draft, "p", incarnation, undefined),
    ]).toEqual([false, true]);
    expect(opened("p")).toEqual({ ...state(), at: 1 });
    stageOpening(draft, "p", "bbbbbbbbbbbb", undefined);
    expect(opened("p")).toMatchObject({ epoch: 2, incarnation: "bbbbbbbbbbbb", seq: 0 });
    const silent = {
      state: state({ epoch: asEpoch(4), seq: asSeq(7), rest: ["x"] }),
      table: ref(2),
      hasResumePoint: true,
    };
    stageOpening(draft, "q", "bbbbbbbbbbbb", silent);
    expect(opened("q")).toEqual({
      ...{ epoch: 5, incarnation: "bbbbbbbbbbbb", seq: 7, at: 1, rest: ["x"] },
      resume: { kind: "table", table: ref(2) },
    });
    stageOpening(draft, "r", "bbbbbbbbbbbb", { ...silent, hasResumePoint: false });
    expect(opened("r")?.resume).toEqual({ kind: "none" });
    expect(stageReturn(draft, holder("s", 4), silent)).toBe(true);
    expect(opened("s")).toEqual({ ...silent.state, at: 1, resume: { kind: "table", table: ref(2) } });
    expect(stageReturn(draft, holder("t", 4), { ...silent, hasResumePoint: false })).toBe(true);
    expect(opened("t")?.resume).toEqual({ kind: "none" });
    expect(stageReturn(draft, holder("s", 4), silent)).toBe(false);
    expect(stageReturn(draft, holder("u", 3), silent)).toBe(false);
    expect(stageReturn(draft, holder("u", 4), undefined)).toBe(false);
  });
});
