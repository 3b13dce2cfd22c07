/** Cases of input that a hostile or careless writer left under a right checksum: both languages refuse it, or skip it, alike. */
import {
  asEpoch,
  asSeq,
  asVersion,
  crc32,
  crcText,
  encodeExtent,
  makeCursor,
  sealJson,
} from "../../src/format/index.js";
import type { ConformanceCase } from "./case-runner.js";
import { descriptor, foreign, manifestFields, sealText, uuid } from "./codec-cases.js";

const b64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");
const incarnation = "0123456789ab";

function manifests(): ConformanceCase[] {
  const whole = Buffer.from(sealJson("manifest", uuid, manifestFields()))
    .toString("utf8")
    .slice(0, -21);
  const of = (name: string, bytes: Uint8Array): ConformanceCase => ({
    name: `hostile manifest: ${name}`,
    op: "decode",
    what: "manifest",
    namespace: uuid,
    version: 9,
    input: b64(bytes),
  });
  const tail = (first: unknown[]): object => ({ tail: { start: 0, batches: [first, descriptor(1)] } });
  const pin = {
    fork: foreign,
    uri: "file:///x",
    created: 5,
    confirmed: true,
    from: 0,
    to: 1,
    root: [3, "v0u1t2s3r4q5", 0, 7],
  };
  const changes: Record<string, object> = {
    "a step below the trim that holds nothing": {
      ...tail(["trimmed", 0, "", 0, 0, 0, []]),
      steps: { trim: 1, end: 2 },
    },
    "a batch without extents": tail(["p", 1, incarnation, 0, 1, 0, []]),
    "a batch without incarnation": tail(["p", 1, "", 0, 1, 0, [[2, 249, 121, 5]]]),
    "a batch of 1,001 extents": tail(["p", 1, incarnation, 0, 1, 0, Array.from({ length: 1_001 }, () => [1, 2, 3, 4])]),
    "an incarnation that leaves the folder": tail(["p", 1, "/../../../ab", 0, 1, 0, [[2, 249, 121, 5]]]),
    "a producer that leaves the folder": tail(["../p", 1, incarnation, 0, 1, 0, [[2, 249, 121, 5]]]),
    "a reference that leaves the folder": { tables: [[1, "../../../etc", 0, 7]] },
    "a commit id of another length": { commit: { id: "v0u1t2s3r4q", by: "p", time: 1 } },
    "a producer id with a terminal's escape": { producers: { "\u001b[2J": [1, incarnation, 0, 5, 0] } },
    "a producer called __proto__": { producers: JSON.parse(`{"__proto__":[1,"${incarnation}",0,5,0]}`) },
    "a group with a slash": { checkpoints: { "a/b": { live: {}, released: [] } } },
    "a checkpoint id with a line break": { checkpoints: { run: { live: { "a\n": [3, 1, 8] }, released: [] } } },
    "a released id that is empty": { checkpoints: { run: { live: {}, released: [""] } } },
    "a pin for what is no uuid": { pins: { [foreign]: { ...pin, fork: "x" } } },
  };
  return [
    ...Object.entries(changes).map(([name, change]) => of(name, sealJson("manifest", uuid, manifestFields(change)))),
    of("a name twice", sealText(`${whole},"closed":false}`)),
    of("a name twice, once in disguise", sealText(`${whole},"cl\\u006fsed":false}`)),
    of("a name twice, further down", sealText(`${whole},"x":[{"a":1,"b":{},"a":1}]}`)),
    of("a name twice in different objects", sealText(`${whole},"x":[{"a":{"a":"\\"a\\":"}},{"a":1}]}`)),
    of("a minus zero", sealText(`${whole.replace('"orphanCutoff":1', '"orphanCutoff":-0')}}`)),
    of(
      "a number that is whole only by rounding",
      sealText(`${whole.replace('"orphanCutoff":1', '"orphanCutoff":9007199254740990.5')}}`),
    ),
    of(
      "a number beyond 2^53 - 1",
      sealText(`${whole.replace('"orphanCutoff":1', '"orphanCutoff":9007199254740992')}}`),
    ),
    of(
      "a number of a thousand digits",
      sealText(`${whole.replace('"orphanCutoff":1', `"orphanCutoff":1${"0".repeat(1_000)}`)}}`),
    ),
    of("a byte order mark", sealText(`\ufeff${whole}}`)),
  ];
}

function namespaces(): ConformanceCase[] {
  const base = { grid: { rows: 2, chunks: 1 }, order: { kind: "commit" }, created: 5 };
  const of = (name: string, change: object, of: string = uuid): ConformanceCase => ({
    name: `hostile namespace: ${name}`,
    op: "decode",
    what: "namespace",
    namespace: uuid,
    input: b64(sealJson("namespace", of, { ...base, ...change })),
  });
  const origin = { uuid: foreign, uri: "file:///o", root: [3, "v0u1t2s3r4q5", 0, 77], ranges: [[0, 64, 0]] };
  const hole = ["trimmed", 0, "", 0, 0, 0, []];
  const fork = { origins: [origin], tail: { start: 64, batches: [hole, [...descriptor(0), 0]] }, trim: 65 };
  return [
    of("a thousand million rows", { grid: { rows: 1e9, chunks: 1 } }),
    of("rows and chunks that are too many together", { grid: { rows: 65_536, chunks: 2 } }),
    of("as many slices as there may be", { grid: { rows: 256, chunks: 256 } }),
    of("5,000 lanes", { order: { kind: "lanes", lanes: 5_000 } }),
    of("a uuid in capitals", {}, uuid.toUpperCase()),
    of("an origin that is no uuid", { fork: { ...fork, origins: [{ ...origin, uuid: "x" }] } }),
    of("a fork whose tail begins below its trim", { fork }),
    of("a fork with an origin that nothing leads to", {
      fork: { ...fork, origins: [{ ...origin, via: [2 ** 53 - 1] }] },
    }),
  ];
}

function intents(): ConformanceCase[] {
  const named = (name: string): string => `intent/0/${name}-${crcText(crc32(Buffer.from(`${uuid}/${name}`)))}`;
  const names = {
    "a leading zero": "p-1-007-0123456789ab0-7-2.249.121.5",
    "a seq beyond 2^53 - 1": "p-1-9007199254740992-0123456789ab0-7-2.249.121.5",
    "a second batch beyond 2^53 - 1": "p-1-9007199254740991-0123456789ab0-7-2.249.121.5_...6",
    "the last seq there is": "p-1-9007199254740991-0123456789ab0-7-2.249.121.5",
    "a size of a hundred digits": `p-1-0-0123456789ab0-7-2.${"9".repeat(100)}.121.5`,
    "a producer with a terminal's escape": "\u001b[2J-1-0-0123456789ab0-7-2.249.121.5",
    "a producer called __proto__": "__proto__-1-0-0123456789ab0-7-2.249.121.5",
    "an opening of nobody": "--1-open-0123456789ab",
    "an opening with a leading zero": "p-01-open-0123456789ab",
  };
  return Object.entries(names).map(([name, text]) => ({
    name: `hostile intent: ${name}`,
    op: "intent",
    namespace: uuid,
    key: named(text),
  }));
}

function cursors(): ConformanceCase[] {
  const text = JSON.stringify(makeCursor(uuid, 12, 3));
  const inputs: Record<string, unknown> = {
    "a name twice": text.replace('"row":12', '"row":12,"row":12'),
    "numbers written as 12.0 and 3e0": text
      .replace('"row":12', '"row":12.0')
      .replace('"iteration":3', '"iteration":3e0'),
    "a row beyond 2^53 - 1": text.replace('"row":12', '"row":9007199254740993'),
    "a thousand brackets": "[".repeat(1_000),
    "an empty text": "",
  };
  return Object.entries(inputs).map(([name, input]) => ({ name: `hostile cursor: ${name}`, op: "cursor", input }));
}

/** Metadata is JSON without a checksum of its own ending: the same rules. */
function batches(): ConformanceCase[] {
  const name = { producer: "p", epoch: asEpoch(1), seq: asSeq(4), incarnation, attempt: 2, base: asVersion(7) };
  const cell = { bytes: Buffer.from("hello"), rawLength: 5, encoding: 0 };
  const metadata = { user: { toJSON: () => JSON.parse('{"a":1}') } };
  const { body, entry } = encodeExtent(uuid, name, { extent: 0, firstCell: 0 }, [cell], metadata);
  const bytes = Buffer.concat(body);
  // The same length, so that only the checksums of metadata and trailer have to follow.
  const at = bytes.indexOf('"seq":4');
  bytes.write('"user":', at, "latin1");
  const trailer = bytes.subarray(entry.size - 80);
  const [offset, length] = [Number(trailer.readBigUInt64LE(0)), trailer.readUInt32LE(8)];
  trailer.writeUInt32LE(crc32(bytes.subarray(offset, offset + length)), 12);
  trailer.writeUInt32LE(crc32(trailer.subarray(0, 72)), 72);
  const check = crc32(bytes.subarray(entry.table, entry.size - 8));
  return [
    {
      name: "hostile batch: metadata with a name twice, or no JSON",
      op: "decode",
      what: "batch",
      namespace: uuid,
      descriptor: ["p", 1, incarnation, 4, 7, 2, [[entry.cells, entry.size, entry.table, check]]],
      input: b64(bytes),
    },
  ];
}

/** All of them. */
export function hostileCases(): ConformanceCase[] {
  return [...manifests(), ...namespaces(), ...intents(), ...cursors(), ...batches()];
}
