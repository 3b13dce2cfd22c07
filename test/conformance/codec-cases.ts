/** Cases of every stored object: whole, extended by fields of the future, and damaged in every way that must be noticed. */
import {
  asEpoch,
  asSeq,
  asVersion,
  batchIntents,
  crc32,
  crcText,
  encodeExtent,
  encodeLineage,
  encodeNamespace,
  encodeSafetensors,
  leavingIntentKey,
  makeCursor,
  type NamespaceSpec,
  openingIntentKey,
  sealJson,
  sealSlices,
} from "../../src/format/index.js";
import type { ConformanceCase } from "./case-runner.js";

export const uuid = "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5";
export const foreign = "00000000-1111-4222-8333-444444444444";
const b64 = (bytes: Uint8Array | string): string => Buffer.from(bytes).toString("base64");

/** Any JSON text under a right checksum. */
export function sealText(text: string): Uint8Array {
  const body = Buffer.from(text.slice(0, -1));
  return Buffer.concat([body, Buffer.from(`,"crc32":"${crcText(crc32(body))}"}\n`)]);
}

const reference = [3, "v0u1t2s3r4q5", 0, 77];
export const descriptor = (seq: number, more: object = {}): unknown[] => [
  "p",
  1,
  "0123456789ab",
  seq,
  1,
  0,
  [[2, 249, 121, 1156262482]],
  ...Object.values(more),
];

/** Fields of a manifest that has a little of everything, and much that no version knows yet. */
export function manifestFields(change: object = {}): Record<string, unknown> {
  return {
    version: 9,
    commit: { id: "v0u1t2s3r4q5", by: "p", time: 1_760_000_001_000 },
    steps: { trim: 0, end: 2 },
    closed: false,
    index: [[0, [reference]]],
    tail: { start: 0, batches: [descriptor(0), descriptor(1, { origin: -1, later: { x: [1, null] } })] },
    waiting: [[5, descriptor(7)]],
    producers: {
      p: [1, "0123456789ab", 8, 9, [1, 0, 0, 249, 1156262482]],
      q: [3, "0123456789ac", 2, 4, [1, 0, 0, 249, 7, 2, "0123456789ad"], 0, "later", 1.5],
      r: [1, "0123456789ae", 0, 5, 0, 1],
      s: [2, "0123456789af", 4, 6, { table: reference }],
    },
    tables: [reference],
    checkpoints: { run: { live: { a: [3, 1, 8], "b.2": [4, 2, 7] }, released: ["old"], note: "ä€😀" } },
    pins: {
      [foreign]: {
        fork: foreign,
        uri: "file:///x",
        created: 5,
        confirmed: true,
        from: 0,
        to: 1,
        root: reference,
        kept: true,
      },
    },
    settings: { maxLag: 100, colour: "red" },
    orphanCutoff: 1,
    boundaryHint: 2,
    future: { deep: [[[1]]], text: "\u2028\u0000" },
    ...change,
  };
}

function nested(levels: number): unknown {
  let value: unknown = 1;
  for (let i = 0; i < levels; i++) value = [value];
  return value;
}

function manifestCases(): ConformanceCase[] {
  const make = (name: string, bytes: Uint8Array, version = 9): ConformanceCase => ({
    name: `manifest: ${name}`,
    op: "decode",
    what: "manifest",
    namespace: uuid,
    version,
    input: b64(bytes),
  });
  const of = (change: object): Uint8Array => sealJson("manifest", uuid, manifestFields(change));
  const whole = of({});
  const text = Buffer.from(whole).toString("utf8");
  const flipped = Uint8Array.from(whole);
  flipped[40] = (flipped[40] as number) ^ 1;
  const wrong: Record<string, object> = {
    "a version that is not its name's": { version: 8 },
    "a commit without id": { commit: { by: "p", time: 1 } },
    "a trim above the end": { steps: { trim: 3, end: 2 } },
    "a tail that does not reach the end": { steps: { trim: 0, end: 3 } },
    "a negative step": { steps: { trim: -1, end: 2 } },
    "a fraction": { orphanCutoff: 1.5 },
    "a number too large": { orphanCutoff: 2 ** 53 },
    "a flag that is text": { closed: "no" },
    "an index level of three": { index: [[0, [reference], 1]] },
    "a reference of three": { tables: [[1, "v0u1t2s3r4q5", 0]] },
    "a descriptor without extents": { tail: { start: 0, batches: [["p", 1, "0123456789ab", 0, 1, 0], descriptor(1)] } },
    "an extent of five": {
      tail: { start: 0, batches: [descriptor(0), ["p", 1, "0123456789ab", 0, 1, 0, [[1, 2, 3, 4, 5]]]] },
    },
    "an extent of a kind to come": {
      tail: { start: 0, batches: [descriptor(0), ["p", 1, "0123456789ab", 0, 1, 0, [{}]]] },
    },
    "a producer state of four": { producers: { p: [1, "0123456789ab", 0, 1] } },
    "a last batch and no first": { producers: { p: [1, "0123456789ab", 0, 1, [1, 0, 0, 9, 9]] } },
    "a last of six": { producers: { p: [1, "0123456789ab", 1, 1, [1, 0, 0, 9, 9, 1]] } },
    "a checkpoint of two": { checkpoints: { run: { live: { a: [1, 2] }, released: [] } } },
    "a released id that is a number": { checkpoints: { run: { live: {}, released: [1] } } },
    "a pin without root": { pins: { x: { fork: "x", uri: "u", created: 1, confirmed: true, from: 0, to: 1 } } },
    "a waiting entry without descriptor": { waiting: [[1]] },
    "settings that are a list": { settings: [] },
    "a starving step that is text": { starving: "2" },
    "an unknown field nested too deeply": { future: nested(65) },
    "an unknown element nested too deeply": { producers: { p: [1, "0123456789ab", 0, 1, 0, 0, nested(66)] } },
    "a left that is a text": { producers: { p: [1, "0123456789ab", 0, 1, 0, "1"] } },
    "a kind that is a number": { commit: { id: "v0u1t2s3r4q5", by: "p", time: 1, kind: 7 } },
  };
  return [
    make("whole, with fields of the future", whole),
    make("an unknown field nested as deeply as allowed", of({ future: nested(64) })),
    make(
      "numbers written as 9.0 and 1e0",
      sealText(
        text
          .slice(0, -21)
          .replace('"version":9', '"version":9.0')
          .replace('"orphanCutoff":1', '"orphanCutoff":1e0')
          .concat("}"),
      ),
    ),
    make("no waiting, no settings, a starving step", of({ waiting: undefined, settings: undefined, starving: 2 })),
    make("a flipped bit", flipped),
    make("cut short", whole.subarray(0, whole.length - 1)),
    make("empty", new Uint8Array(0)),
    make("bytes after the end", Buffer.concat([whole, Buffer.from("\n")])),
    make("another kind", sealJson("segment", uuid, manifestFields())),
    make("another namespace", sealJson("manifest", foreign, manifestFields())),
    make("another format", sealText(text.slice(0, -21).replace('"format":1', '"format":3').concat("}"))),
    make("a checksum over what is not JSON", sealText('{"format":1,"kind":}')),
    make("a checksum over NaN", sealText('{"format":1,"kind":"manifest","version":NaN}')),
    make("a checksum over a list", sealText("[1,2,3,4,5,6,7,8,9,0]")),
    ...Object.entries(wrong).map(([name, change]) => make(name, of(change))),
  ];
}

function objectCases(): ConformanceCase[] {
  const make = (what: string, name: string, bytes: Uint8Array, more: object = {}): ConformanceCase => ({
    name: `${what}: ${name}`,
    op: "decode",
    what,
    namespace: uuid,
    input: b64(bytes),
    ...more,
  });
  const batches = Array.from({ length: 64 }, (_, seq) => descriptor(seq));
  const refs = Array.from({ length: 64 }, (_, i) => (i < 3 ? 0 : [i, "v0u1t2s3r4q5", 0, i]));
  const table = {
    p: [[1, "0123456789ab", 8, 9, [1, 0, 0, 249, 5]], { at: 2 }],
    q: [[1, "0123456789ab", 0, 9, 0], null],
  };
  const spec = (change: object): Uint8Array =>
    sealJson("namespace", uuid, { grid: { rows: 2, chunks: 1 }, order: { kind: "commit" }, created: 5, ...change });
  const origin = { uuid: foreign, uri: "file:///o", root: reference, ranges: [[0, 64, 0]] };
  const fork = { origins: [origin], tail: { start: 64, batches: [[...descriptor(0), 0]] }, trim: 3 };
  return [
    make("namespace", "plain, with a field of the future", spec({ colour: "red" })),
    make("namespace", "lanes", spec({ order: { kind: "lanes", lanes: 3 } })),
    make("namespace", "no lanes", spec({ order: { kind: "lanes", lanes: 0 } })),
    make("namespace", "an order to come", spec({ order: { kind: "random" } })),
    make("namespace", "an empty grid", spec({ grid: { rows: 0, chunks: 1 } })),
    make(
      "namespace",
      "a fork",
      spec({
        fork: {
          ...fork,
          ancestors: [
            {
              uuid: foreign,
              uri: "file:///o",
              ranges: [
                [0, 0, 0],
                [0, 65, 0],
                [65, 0, 65],
              ],
            },
          ],
        },
      }),
    ),
    make("namespace", "a fork trimmed above its first own step", spec({ fork: { ...fork, trim: 66 } })),
    make(
      "namespace",
      "a fork with a range of two",
      spec({ fork: { ...fork, origins: [{ ...origin, ranges: [[0, 1]] }] } }),
    ),
    make("boundary", "whole", sealJson("boundary", uuid, { n: 3, upTo: 17 }), { n: 3 }),
    make("boundary", "another number", sealJson("boundary", uuid, { n: 3, upTo: 17 }), { n: 4 }),
    make("boundary", "the last", sealJson("boundary", uuid, { n: 3, upTo: 2 ** 53 - 1, deleted: true }, 2), { n: 3 }),
    make("boundary", "deleted by a number", sealJson("boundary", uuid, { n: 3, upTo: 17, deleted: 1 }, 2), { n: 3 }),
    make("boundary", "without upTo", sealJson("boundary", uuid, { n: 3 }), { n: 3 }),
    make("segment", "whole", sealJson("segment", uuid, { start: 128, batches })),
    make("segment", "63 batches", sealJson("segment", uuid, { start: 128, batches: batches.slice(1) })),
    make("segment", "a start between", sealJson("segment", uuid, { start: 1, batches })),
    make("node", "whole", sealJson("node", uuid, { level: 1, start: 4096, refs })),
    make("node", "63 references", sealJson("node", uuid, { level: 1, start: 4096, refs: refs.slice(1) })),
    make(
      "node",
      "null for a reference",
      sealJson("node", uuid, { level: 1, start: 4096, refs: [null, ...refs.slice(1)] }),
    ),
    make(
      "root",
      "whole",
      sealJson("root", uuid, { index: [[0, [reference]]], tail: { start: 64, batches: [descriptor(0)] } }),
    ),
    make("root", "without tail", sealJson("root", uuid, { index: [] })),
    make("table", "whole", sealJson("table", uuid, { producers: table })),
    make("table", "an entry of three", sealJson("table", uuid, { producers: { p: [...(table.p as unknown[]), 1] } })),
  ];
}

function batchCases(): ConformanceCase[] {
  const name = {
    producer: "p",
    epoch: asEpoch(1),
    seq: asSeq(4),
    incarnation: "0123456789ab",
    attempt: 2,
    base: asVersion(7),
  };
  const slice = (text: string) => ({ bytes: Buffer.from(text), rawLength: text.length, encoding: 0 });
  const metadata = {
    contentType: "text/plain",
    resumePoint: { at: [2, "é"] },
    user: { policy_version: 3 },
    created: 5,
  };
  const { body, entry } = encodeExtent(
    uuid,
    name,
    { extent: 0, firstCell: 0 },
    [slice("hello"), slice(""), slice("hi!")],
    metadata,
  );
  const bytes = Buffer.concat(body);
  const d = ["p", 1, "0123456789ab", 4, 7, 2, [[entry.cells, entry.size, entry.table, entry.check]]];
  const make = (what: string, input: Uint8Array, change: unknown[] = d, namespace = uuid): ConformanceCase => ({
    name: `batch: ${what}`,
    op: "decode",
    what: "batch",
    namespace,
    descriptor: change,
    input: b64(input),
  });
  const flips = [12, entry.table, entry.size - 80, entry.size - 40, entry.size - 7, entry.size - 1].map((at) => {
    const damaged = Uint8Array.from(bytes);
    damaged[at] = (damaged[at] as number) ^ 4;
    return make(`a flipped bit at ${at}`, damaged);
  });
  const long = Array.from({ length: 3 }, (_, i) => ({
    bytes: Buffer.alloc(4_096, i + 1),
    rawLength: 4_096,
    encoding: 0,
  }));
  const sealed = sealSlices(uuid, name, long);
  const uniform = encodeExtent(uuid, name, { extent: 0, firstCell: 0 }, sealed.slices, metadata);
  const { cells, size, table, check } = uniform.entry;
  const strided = [...d.slice(0, 6), [[cells, size, table, check]], -1, sealed.stride];
  return [
    make("sealed slices of one length", Buffer.concat(uniform.body), strided),
    make("whole", bytes),
    make("cut short", bytes.subarray(0, bytes.length - 1)),
    make("another seq", bytes, ["p", 1, "0123456789ab", 5, 7, 2, d[6]]),
    make("another check", bytes, [...d.slice(0, 6), [[entry.cells, entry.size, entry.table, entry.check ^ 1]]]),
    make("another namespace", bytes, d, foreign),
    ...flips,
  ];
}

function tensorCases(): ConformanceCase[] {
  const make = (name: string, bytes: Uint8Array): ConformanceCase => ({
    name: `safetensors: ${name}`,
    op: "decode",
    what: "safetensors",
    input: b64(bytes),
  });
  const file = (header: string, data = ""): Uint8Array => {
    const bytes = Buffer.alloc(8 + header.length + data.length);
    bytes.writeBigUInt64LE(BigInt(header.length));
    bytes.write(header + data, 8, "latin1");
    return bytes;
  };
  const entry = (offsets: string, more = '"dtype":"U8","shape":[2]'): string => `{${more},"data_offsets":${offsets}}`;
  return [
    make(
      "three dtypes and texts",
      encodeSafetensors(
        {
          ids: { dtype: "I64", shape: [1, 2], data: BigInt64Array.of(5n, -6n) },
          mask: { dtype: "BOOL", shape: [3], data: Uint8Array.of(1, 0, 1) },
          half: { dtype: "BF16", shape: [], data: Uint8Array.of(1, 2) },
        },
        { made: "by us" },
      ),
    ),
    make("no tensors", file("{}")),
    make("too short", Buffer.from("1234567")),
    make("a header longer than the file", file("{}").subarray(0, 9)),
    make("no brace", file("[]")),
    make("not JSON", file("{x}")),
    make("an unknown dtype", file(`{"a":${entry("[0,2]", '"dtype":"F4","shape":[2]')}}`, "ab")),
    make("a negative shape", file(`{"a":${entry("[0,2]", '"dtype":"U8","shape":[-2]')}}`, "ab")),
    make("bytes that do not fit the shape", file(`{"a":${entry("[0,3]")}}`, "abc")),
    make("an overlap", file(`{"a":${entry("[0,2]")},"b":${entry("[1,3]")}}`, "abc")),
    make("a hole", file(`{"a":${entry("[0,2]")},"b":${entry("[3,5]")}}`, "abcde")),
    make("bytes left over", file(`{"a":${entry("[0,2]")}}`, "abc")),
    make("metadata that is not text", file('{"__metadata__":{"a":1}}')),
  ];
}

function lineageCases(): ConformanceCase[] {
  const whole = encodeLineage([
    { source: "web", id: "100", tokens: 5, row: 0 },
    { source: "web", id: "102", tokens: 6 },
    { source: "code", id: "a/007", tokens: 0, row: 1 },
    { source: "web", id: "99", tokens: 7, row: 1 },
  ]);
  const make = (name: string, bytes: Uint8Array): ConformanceCase => ({
    name: `lineage: ${name}`,
    op: "decode",
    what: "lineage",
    input: b64(bytes),
  });
  const flipped = (at: number): Uint8Array => whole.map((byte, i) => (i === at ? byte ^ 1 : byte));
  return [
    make("two sources", whole),
    make("none", encodeLineage([])),
    make("a flipped count", flipped(4)),
    make("a flipped body", flipped(20)),
    make("no lineage", Buffer.from("0123456789abcdefgh")),
  ];
}

function cursorCases(): ConformanceCase[] {
  const whole = makeCursor(uuid, 12, 3);
  const inputs: Record<string, unknown> = {
    whole,
    "as text": JSON.stringify(whole),
    "edited, without check": { batchweave: 1, namespace: uuid, row: 13, iteration: 3 },
    "edited, with check": { ...whole, row: 13 },
    "another version": { ...whole, batchweave: 2 },
    "no version": { namespace: uuid, row: 1, iteration: 1 },
    "a version that is text": { ...whole, batchweave: "1" },
    "no namespace": { batchweave: 1, row: 1, iteration: 1 },
    "a negative row": { ...whole, row: -1 },
    "a fraction": { batchweave: 1, namespace: uuid, row: 1.5, iteration: 0 },
    "a row that is true": { batchweave: 1, namespace: uuid, row: true, iteration: 0 },
    "a list": [1],
    "text that is not JSON": "earlier",
    null: null,
  };
  return Object.entries(inputs).map(([name, input]) => ({ name: `cursor: ${name}`, op: "cursor", input }));
}

/** A fork of steps 4 to 9 and 12 to 19 of its parent, whose own steps begin at 14. */
function translationCases(): ConformanceCase[] {
  const ranges = [
    [0, 0, 4],
    [0, 6, 4],
    [6, 8, 12],
    [14, 0, 20],
  ];
  const tail = { start: 0, batches: Array.from({ length: 14 }, (_, seq) => [...descriptor(seq), 0]) };
  const fork = { origins: [], tail, ancestors: [{ uuid: foreign, uri: "file:///o", ranges }] };
  const fields = { grid: { rows: 2, chunks: 1 }, order: { kind: "commit" }, created: 5, fork };
  const spec = b64(sealJson("namespace", uuid, fields));
  const rows = [0, 7, 8, 9, 19, 20, 21, 23, 24, 39, 40, 41, 42, 100];
  const cases = rows.map((row) => ({
    name: `translation: row ${row}`,
    op: "translate",
    spec,
    input: makeCursor(foreign, row, 3),
  }));
  return [...cases, { name: "translation: a stranger's", op: "translate", spec, input: makeCursor("other", 9, 3) }];
}

function intentCases(): ConformanceCase[] {
  const batch = {
    producer: "web-7.x",
    epoch: asEpoch(3),
    seq: asSeq(12),
    incarnation: "0123456789ab",
    attempt: 10,
    base: asVersion(99),
    extents: [
      { cells: 2, size: 249, table: 121, check: 5 },
      { cells: 1, size: 200, table: 96, check: 0 },
    ],
  };
  const [key = ""] = batchIntents(uuid, [batch]).keys;
  const extents = batch.extents.map((extent, i) => ({ ...extent, check: 1_000 + i }));
  const run = [
    batch,
    { ...batch, seq: asSeq(13), extents },
    { ...batch, seq: asSeq(14), extents: [...extents, ...extents] },
  ];
  // Under a right checksum, whatever it says.
  const named = (name: string): string => `intent/0/${name}-${crcText(crc32(Buffer.from(`${uuid}/${name}`)))}`;
  const opening = openingIntentKey(uuid, { producer: "p-1", before: asEpoch(4), incarnation: "0123456789ab" });
  const leaving = leavingIntentKey(uuid, { producer: "p-1", epoch: asEpoch(4), incarnation: "0123456789ab" });
  const keys = {
    "a batch of two extents": key,
    "a producer that closed": leaving,
    "three in a row": batchIntents(uuid, run).keys[0] as string,
    "a field left out of the first": named("p-1-0-0123456789ab0-7-2..121.5"),
    "a field left out of an extent that the batch before has not": named(
      "p-1-0-0123456789ab0-7-2.249.121.5_...6-1.200..7",
    ),
    "a field left out that need not be": named("p-1-0-0123456789ab0-7-2.249.121.5_2.249..6"),
    "nothing between two bars": named("p-1-0-0123456789ab0-7-2.249.121.5__...6"),
    "sealed slices of one length": batchIntents(
      uuid,
      run.map((one) => ({ ...one, stride: 60 })),
    ).keys[0] as string,
    "another length in the next": named("p-1-0-0123456789ab0-7-2.249.121.5s60_...6s61_...7_...8s"),
    "a stride as before, and none before": named("p-1-0-0123456789ab0-7-2.249.121.5_...6s"),
    "a stride in the middle": named("p-1-0-0123456789ab0-7-2.249.121.5s60-2.249.121.5"),
    "a stride shorter than a seal": named("p-1-0-0123456789ab0-7-2.249.121.5s8"),
    "a stride with a leading zero": named("p-1-0-0123456789ab0-7-2.249.121.5s060"),
    "an opening": opening,
    "another checksum": `${key.slice(0, -1)}${key.endsWith("0") ? "1" : "0"}`,
    "nothing like one": "intent/0/hello",
    "an old layout": "intent/p-1-0.json",
  };
  const cases: ConformanceCase[] = Object.entries(keys).map(([name, value]) => ({
    name: `intent: ${name}`,
    op: "intent",
    namespace: uuid,
    key: value,
  }));
  return [...cases, { name: "intent: another namespace's", op: "intent", namespace: foreign, key }];
}

/** All of them. */
export function codecCases(): ConformanceCase[] {
  return [
    ...manifestCases(),
    ...objectCases(),
    ...batchCases(),
    ...tensorCases(),
    ...lineageCases(),
    ...cursorCases(),
    ...translationCases(),
    ...intentCases(),
  ];
}

/** A namespace of 2 rows and 1 chunk, or as changed. */
export function specBytes(change: Partial<NamespaceSpec> = {}): Uint8Array {
  const spec: NamespaceSpec = {
    format: 1,
    uuid,
    grid: { rows: 2, chunks: 1 },
    order: { kind: "commit" },
    created: 5,
    rest: {},
    ...change,
  };
  return encodeNamespace(spec);
}
