/** The examples of FORMAT.md, made by the code: text that stands between two markers of the document. */
import {
  asEpoch,
  asSeq,
  asStep,
  asVersion,
  type BatchName,
  batchKey,
  crcText,
  type Descriptor,
  decodeTrailer,
  encodeBoundary,
  encodeExtent,
  encodeManifest,
  encodeNamespace,
  encodeSlice,
  everyVersion,
  genesisManifest,
  lifeFolder,
  makeCursor,
  type NamespaceSpec,
} from "../../src/format/index.js";

export const spec: NamespaceSpec = {
  format: 2,
  uuid: "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5",
  grid: { rows: 2, chunks: 1 },
  order: { kind: "commit" },
  created: 1_760_000_000_000,
  rest: {},
};

export const name: BatchName = {
  producer: "p",
  epoch: asEpoch(1),
  seq: asSeq(0),
  incarnation: "0123456789ab",
  attempt: 0,
  base: asVersion(1),
};

export const place = { extent: 0, firstCell: 0 };
const encoded = encodeExtent(
  spec.uuid,
  name,
  place,
  ["hello", "hi!"].map((text) => encodeSlice(Buffer.from(text), "none")),
  { contentType: "text/plain", resumePoint: { at: 2 } },
);
export const extent = encoded.entry;
export const batchObject: Buffer = Buffer.concat(encoded.body);

const descriptor: Descriptor = { ...name, extents: [extent] };
const manifest = encodeManifest({
  ...genesisManifest(spec),
  version: asVersion(2),
  commit: { id: "v0u1t2s3r4q5", by: "p", time: 1_760_000_001_000 },
  steps: { trim: asStep(0), end: asStep(1) },
  tail: { start: asStep(0), batches: [descriptor] },
  producers: new Map([
    [
      "p",
      {
        epoch: name.epoch,
        incarnation: name.incarnation,
        seq: asSeq(1),
        at: asVersion(2),
        resume: { kind: "batch", batch: { ...name, extent: 0, size: extent.size, check: extent.check } },
      },
    ],
  ]),
});

/** Samples of the lineage example, and a block that holds them. Its bytes are fixed: compressors differ. */
export const lineageSamples = [
  { source: "web", id: "1000", tokens: 812 },
  { source: "web", id: "1001", tokens: 90 },
  { source: "code", id: "repo/007", tokens: 4096 },
  { source: "web", id: "1003", tokens: 512 },
];

/** `offset  16 bytes in hex  |text|`. */
export function hexDump(bytes: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = Buffer.from(bytes.subarray(at, at + 16));
    const hex = row.toString("hex").replace(/(..)(?=.)/g, "$1 ");
    const text = row.toString("latin1").replace(/[^ -~]/g, ".");
    lines.push(`${at.toString(16).padStart(4, "0")}  ${hex.padEnd(47)}  |${text}|`);
  }
  return lines.join("\n");
}

function parts(): string {
  const trailer = decodeTrailer(batchObject.subarray(-80), "example", spec.uuid);
  return [
    `key       ${lifeFolder(spec)}/${batchKey(name, 0)}`,
    `extent    ${JSON.stringify([extent.cells, extent.size, extent.table, extent.check])}`,
    `metadata  offset ${trailer.metadata.offset}, length ${trailer.metadata.length}, CRC-32 ${crcText(trailer.metadata.crc)}`,
    `table     offset ${trailer.tableOffset}, length ${trailer.tableLength}, CRC-32 ${crcText(trailer.tableCrc)}`,
    `identity  ${trailer.identity.toString("hex")} = SHA-256("p-1-0-0123456789ab.0"), first 8 bytes`,
  ].join("\n");
}

/** Name -> the text that FORMAT.md must show. */
export const examples: Readonly<Record<string, string>> = {
  namespace: Buffer.from(encodeNamespace(spec)).toString().trimEnd(),
  batch: hexDump(batchObject),
  "batch-parts": parts(),
  manifest: Buffer.from(manifest).toString().trimEnd(),
  rest: [
    Buffer.from(encodeBoundary(spec.uuid, { n: 1, upTo: asVersion(1) }))
      .toString()
      .trimEnd(),
    Buffer.from(encodeBoundary(spec.uuid, { n: 2, upTo: everyVersion, deleted: true }))
      .toString()
      .trimEnd(),
    JSON.stringify(makeCursor(spec.uuid, 1, 1)),
  ].join("\n"),
};
