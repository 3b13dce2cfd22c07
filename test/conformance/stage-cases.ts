/** Cases of the commit rules: what each change makes of a base, and when it is refused. */
import { sealJson } from "../../src/format/index.js";
import type { ConformanceCase } from "./case-runner.js";
import { manifestFields, specBytes, uuid } from "./codec-cases.js";

const stamp = { id: "c0c0c0c0c0c0", by: "p", time: 1_760_000_002_000, boundaryHint: 1 };
const b64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");
const incarnation = "0123456789ab";

function batch(
  seq: number,
  change: { base?: number; attempt?: number; check?: number; producer?: string; epoch?: number } = {},
): unknown[] {
  const { base = 4, attempt = 0, check = 1000 + seq, producer = "p", epoch = 1 } = change;
  return [producer, epoch, incarnation, seq, base, attempt, [[2, 249, 121, check]]];
}

/** A base whose producer p (epoch 1) has `seq` batches in the log; the tail begins at `tailStart`. */
function baseOf(change: object = {}, seq = 3, tailStart = 0): { version: number; bytes: string } {
  const fields = manifestFields({
    index: [],
    tail: { start: tailStart, batches: Array.from({ length: seq }, (_, i) => batch(i)) },
    steps: { trim: 0, end: tailStart + seq },
    waiting: undefined,
    producers: {
      p: [1, incarnation, seq, 8, [4, 0, 0, 249, 1000 + seq - 1], 0, "kept"],
      q: [5, "0123456789aq", 2, 4, 0],
    },
    tables: [],
    ...change,
  });
  return { version: 9, bytes: b64(sealJson("manifest", uuid, fields)) };
}

const holder = { producer: "p", epoch: 1, incarnation };
const reference = [3, "v0u1t2s3r4q5", 0, 77];
const silent = { state: [2, incarnation, 6, 1, [1, 0, 0, 249, 9]], table: reference, hasResumePoint: true };

function batchChanges(): ConformanceCase[] {
  const of = (name: string, batches: unknown[], base: unknown = baseOf(), more: object = {}): ConformanceCase => ({
    name: `batches: ${name}`,
    op: "stage",
    spec: b64(specBytes()),
    base,
    stamp,
    change: { kind: "batches", holder, batches, ...more },
  });
  const many = (from: number, n: number): unknown[] => Array.from({ length: n }, (_, i) => batch(from + i));
  return [
    of("the next two", many(3, 2)),
    of("one that is in and one that is not", [batch(2), batch(3)]),
    of("all in", [batch(1), batch(2)]),
    of("in with other content", [batch(2, { check: 7 })]),
    of("a gap", [batch(4)]),
    of("below the cutoff", [batch(3, { base: 2 }), batch(4)], baseOf({ orphanCutoff: 3 })),
    of(
      "a backlog below the cutoff, and one above",
      [batch(3, { base: 2 }), batch(4, { base: 2 }), batch(5)],
      baseOf({ orphanCutoff: 3 }),
    ),
    of("another attempt of it", [batch(3, { base: 9, attempt: 2 })]),
    of("closed", [batch(3)], baseOf({ closed: true })),
    of("closed, but in", [batch(2)], baseOf({ closed: true })),
    of("fenced by epoch", [batch(3)], baseOf({ producers: { p: [2, incarnation, 3, 8, 0] } })),
    of(
      "fenced by incarnation",
      [batch(3)],
      baseOf({ producers: { p: [1, "zzzzzzzzzzzz".replace(/z/g, "v"), 3, 8, 0] } }),
    ),
    of("unknown producer", [batch(3)], baseOf({ producers: {} })),
    of("returns from a table", [batch(6)], baseOf({ producers: {}, tables: [reference] }), {
      silent: { ...silent, state: [1, ...silent.state.slice(1)] },
    }),
    of("seals a segment", many(60, 10), baseOf({}, 60)),
    of("seals two segments at once", many(60, 140), baseOf({}, 60)),
    of(
      "seals a segment and a node over a trimmed past",
      many(60, 5),
      baseOf({ steps: { trim: 4090, end: 4092 }, index: [[63, []]] }, 60, 4032),
    ),
    of("returns from a table though it is in", [batch(5)], baseOf({ producers: {}, tables: [reference] }), {
      silent: { ...silent, state: [1, ...silent.state.slice(1)] },
    }),
    of("a starving step goes when the end moves", [batch(3)], baseOf({ starving: 3 })),
    of("first commit on the genesis", [batch(0)], null),
    { ...of("the kind of a commit is written down", [batch(3)]), stamp: { ...stamp, kind: "carrier" } },
  ];
}

function laneChanges(): ConformanceCase[] {
  const lane = (k: number, seq: number): unknown[] => [`lane-${k}`, 1, incarnation, seq, 4, 0, [[2, 249, 121, seq]]];
  const of = (name: string, k: number, batches: unknown[], change: object = {}): ConformanceCase => ({
    name: `lanes: ${name}`,
    op: "stage",
    spec: b64(specBytes({ order: { kind: "lanes", lanes: 3 } })),
    base: baseOf(
      {
        tail: { start: 0, batches: [] },
        steps: { trim: 0, end: 0 },
        producers: {
          "lane-0": [1, incarnation, 0, 8, 0],
          "lane-1": [1, incarnation, 0, 8, 0],
          "lane-2": [1, incarnation, 0, 8, 0],
          other: [1, incarnation, 0, 8, 0],
        },
        ...change,
      },
      0,
    ),
    stamp,
    change: { kind: "batches", holder: { producer: k < 0 ? "other" : `lane-${k}`, epoch: 1, incarnation }, batches },
  });
  const waiting = [
    [1, lane(1, 0)],
    [2, lane(2, 0)],
    [4, lane(1, 1)],
  ];
  const ahead = { "lane-1": [1, incarnation, 64, 8, [4, 0, 0, 249, 63]] };
  return [
    of("the first step", 0, [lane(0, 0)]),
    of("above a missing step", 1, [lane(1, 0), lane(1, 1)]),
    of("fills the gap", 0, [lane(0, 0)], { waiting }),
    of("fills two gaps", 0, [lane(0, 0), lane(0, 1)], { waiting }),
    of("too far ahead", 1, [lane(1, 64)], { producers: ahead }),
    of("in, and dropped when the log was closed", 1, [lane(1, 0), lane(1, 1)], {
      tail: { start: 0, batches: [lane(0, 0), lane(1, 0), lane(2, 0)] },
      steps: { trim: 0, end: 3 },
      closed: true,
      producers: { "lane-1": [1, incarnation, 2, 8, [4, 0, 0, 249, 1]] },
    }),
    of("not a lane", -1, [["other", 1, incarnation, 0, 4, 0, [[2, 249, 121, 1]]]]),
    { ...of("close while some wait", 0, [], { waiting }), change: { kind: "close", dropWaiting: false } },
    { ...of("close and drop", 0, [], { waiting }), change: { kind: "close", dropWaiting: true } },
  ];
}

function producerChanges(): ConformanceCase[] {
  const of = (name: string, change: object, base: unknown = baseOf()): ConformanceCase => ({
    name,
    op: "stage",
    spec: b64(specBytes()),
    base,
    stamp,
    change,
  });
  const open = (producer: string, more: object = {}): object => ({
    kind: "open",
    producer,
    incarnation: "newnewnewnew".replace(/w/g, "u"),
    ...more,
  });
  const opening = (producer: string, before: number): object => ({ producer, before, incarnation: "aaaaaaaaaaaa" });
  const left = {
    producers: { p: [1, incarnation, 3, 8, [4, 0, 0, 249, 1002], 1], q: [5, "0123456789aq", 2, 4, 0, 4, "kept"] },
  };
  const intents = (batches: unknown[], openings: unknown[] = [], more: object = {}): object => ({
    kind: "intents",
    batches,
    openings,
    ...more,
  });
  return [
    of("open: a new producer", open("new")),
    of("open: fences the holder and keeps its last batch's name", open("p")),
    of("open: one that never wrote", open("q")),
    of("open: again by the same incarnation", { kind: "open", producer: "p", incarnation }),
    of("open: one in a table", open("old", { silent }), baseOf({ tables: [reference] })),
    of(
      "open: one in a table that never wrote",
      open("old", { silent: { ...silent, state: [2, incarnation, 0, 1, 0], hasResumePoint: false } }),
      baseOf({ tables: [reference] }),
    ),
    of("open: on a closed log", open("p"), baseOf({ closed: true })),
    of("leave: the holder", { kind: "leave", holder }),
    of("leave: again", { kind: "leave", holder }, baseOf(left)),
    of("leave: a former holder", { kind: "leave", holder: { ...holder, epoch: 4 } }),
    of(
      "leave: one whose former holder left",
      { kind: "leave", holder: { producer: "q", epoch: 5, incarnation: "0123456789aq" } },
      baseOf(left),
    ),
    of("open: one that left", open("p"), baseOf(left)),
    of("leave: carried after its last batch", intents([batch(3)], [], { leavings: [holder] })),
    of(
      "leave: of a fenced incarnation, not carried",
      intents([], [], { leavings: [{ ...holder, incarnation: "aaaaaaaaaaaa" }] }),
    ),
    of("maxLag: set where other settings are", { kind: "maxLag", maxLag: 7 }, baseOf({ settings: { colour: "red" } })),
    of("maxLag: set where none are", { kind: "maxLag", maxLag: 7 }, baseOf({ settings: undefined })),
    of("maxLag: the same", { kind: "maxLag", maxLag: 100 }),
    of("maxLag: removed", { kind: "maxLag" }),
    of("close: an open log", { kind: "close", dropWaiting: false }),
    of("close: a closed one", { kind: "close", dropWaiting: false }, baseOf({ closed: true })),
    of("intents: two in a row, in any order", intents([batch(4), batch(3)])),
    of("intents: a gap stops", intents([batch(3), batch(5)])),
    of("intents: another epoch's", intents([batch(3, { epoch: 2 })])),
    of("intents: the newer attempt of two", intents([batch(3), batch(3, { attempt: 1, base: 9 })])),
    of("intents: below the cutoff", intents([batch(3, { base: 1 })]), baseOf({ orphanCutoff: 3 })),
    of("intents: poisoned size", intents([["p", 1, incarnation, 3, 4, 0, [[2, 250, 121, 5]]]])),
    of("intents: too few cells", intents([["p", 1, incarnation, 3, 4, 0, [[1, 225, 121, 5]]]])),
    of("intents: closed", intents([batch(3)]), baseOf({ closed: true })),
    of("intents: opens a new producer", intents([], [opening("new", 0)])),
    of("intents: opens where the epoch is as seen", intents([], [opening("q", 5)])),
    of("intents: a late opening fences nobody", intents([], [opening("q", 4)])),
    of("intents: not when a table may know it", intents([], [opening("new", 0)]), baseOf({ tables: [reference] })),
    of(
      "intents: a table's producer, looked up",
      intents([], [opening("old", 2)], { silent: { old: silent } }),
      baseOf({ tables: [reference] }),
    ),
  ];
}

function checkpointChanges(): ConformanceCase[] {
  const groups = (change: object): object => ({
    checkpoints: {
      run: { live: { a: [0, 0, 3], b: [2, 1, 5], c: [1, 1, 5] }, released: ["old"], note: "kept", ...change },
    },
  });
  const of = (name: string, change: object, base: unknown = baseOf(groups({}))): ConformanceCase => ({
    name: `checkpoint: ${name}`,
    op: "stage",
    spec: b64(specBytes()),
    base,
    stamp,
    change: { group: "run", ...change },
  });
  const at = (id: string, row: number, iteration: number, more: object = {}): object => ({
    kind: "checkpoint",
    id,
    row,
    iteration,
    ...more,
  });
  const full = Object.fromEntries(Array.from({ length: 1_024 }, (_, i) => [`c${i}`, [0, 0, 1]]));
  return [
    of("a new one", at("d", 4, 2)),
    of("the first of a group", { ...at("d", 4, 2), group: "other" }),
    of("the same again", at("b", 2, 1)),
    of("the same id elsewhere", at("b", 3, 1)),
    of("a released id", at("old", 4, 2)),
    of("below the trim", at("d", 1, 0), baseOf({ ...groups({}), steps: { trim: 1, end: 3 } })),
    of("beyond the end", at("d", 7, 0)),
    of("at the end", at("d", 6, 0)),
    of("keeps the last two", at("d", 4, 2, { keepLast: 2 })),
    of("keeps the last one", at("d", 4, 2, { keepLast: 1 })),
    of("one too many", at("d", 4, 2), baseOf(groups({ live: full }))),
    of("room by keepLast", at("d", 4, 2, { keepLast: 5 }), baseOf(groups({ live: full }))),
    of("release", { kind: "release", id: "a" }),
    of("release again", { kind: "release", id: "old" }),
    of("release what never was", { kind: "release", id: "x" }),
    of(
      "released ids are forgotten in the end",
      { kind: "release", id: "a" },
      baseOf(groups({ released: Array.from({ length: 256 }, (_, i) => `r${i}`) })),
    ),
  ];
}

/** All of them. */
export function stageCases(): ConformanceCase[] {
  return [...batchChanges(), ...laneChanges(), ...producerChanges(), ...checkpointChanges()];
}
