/**
 * Lineage: which samples a batch was made of. Columns of JSON under zlib, so that Python's standard library reads it:
 *
 *   "LIN1" | u32 samples | u32 bytes of JSON | u32 CRC-32 of the 12 bytes before and of all after | zlib stream
 */
import { deflateSync, inflateSync } from "node:zlib";
import { BatchWeaveError, shown } from "../errors.js";
import { crc32 } from "./crc.js";
import { parseJson } from "./json-text.js";
import { asInteger, asList, asRecord, asText, corrupt } from "./shape.js";

/** One sample of a batch, in the order in which the batch holds them. */
export interface LineageSample {
  readonly source: string;
  /** The source's own name for it. */
  readonly id: string;
  readonly tokens: number;
  /** Row of the batch it went to, where that is known. */
  readonly row?: number | undefined;
}

const magic = "LIN1";
const headerBytes = 16;
/** JSON of one lineage block at most: some ten million samples. */
const lineageJsonBytesMax = 0x1000_0000;

/** Ids that are plain numbers take part in delta coding; anything else, such as `007`, is kept as a string. */
function asNumberId(id: string): number | undefined {
  return /^(0|[1-9]\d{0,15})$/.test(id) && Number.isSafeInteger(Number(id)) ? Number(id) : undefined;
}

/** Encodes the samples of a batch. */
export function encodeLineage(samples: readonly LineageSample[]): Uint8Array {
  const numbers = new Map<string, number>();
  const last: number[] = [];
  const columns = { source: [] as number[], id: [] as unknown[], tokens: [] as number[] };
  for (const sample of samples) {
    assertSample(sample);
    const source = numbers.get(sample.source) ?? numbers.size;
    numbers.set(sample.source, source);
    const number = asNumberId(sample.id);
    columns.source.push(source);
    columns.id.push(number === undefined ? sample.id : number - (last[source] ?? 0));
    columns.tokens.push(sample.tokens);
    if (number !== undefined) last[source] = number;
  }
  const rows = samples.some((s) => s.row !== undefined) ? { row: samples.map((s) => s.row ?? -1) } : {};
  const json = Buffer.from(JSON.stringify({ sources: [...numbers.keys()], ...columns, ...rows }));
  if (json.length > lineageJsonBytesMax) {
    throw new BatchWeaveError(
      "LIMIT",
      `The lineage of a batch takes ${json.length} bytes; at most ${lineageJsonBytesMax} are possible. Record less per sample.`,
      { found: json.length, limit: lineageJsonBytesMax },
    );
  }
  const body = deflateSync(json);
  const header = Buffer.alloc(headerBytes);
  header.write(magic, 0, "latin1");
  header.writeUInt32LE(samples.length, 4);
  header.writeUInt32LE(json.length, 8);
  header.writeUInt32LE(crc32(body, crc32(header.subarray(0, 12))), 12);
  return Buffer.concat([header, body]);
}

function assertSample(sample: LineageSample): void {
  const whole = (n: unknown): boolean => Number.isSafeInteger(n) && (n as number) >= 0;
  const valid =
    typeof sample.source === "string" &&
    typeof sample.id === "string" &&
    whole(sample.tokens) &&
    (sample.row === undefined || whole(sample.row));
  if (valid) return;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    "A sample of lineage needs a source and an id (strings), tokens and, if at all, row (whole numbers).",
    { sample },
  );
}

/** Decodes a lineage block. */
export function decodeLineage(bytes: Uint8Array, where: string): LineageSample[] {
  const block = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  if (block.length < headerBytes || block.toString("latin1", 0, 3) !== magic.slice(0, 3))
    return corrupt(where, "its lineage does not begin like one");
  const body = block.subarray(headerBytes);
  if (crc32(body, crc32(block.subarray(0, 12))) !== block.readUInt32LE(12))
    return corrupt(where, "its lineage does not match its checksum");
  if (block.toString("latin1", 0, 4) !== magic) {
    const found = block.toString("latin1", 0, 4);
    throw new BatchWeaveError(
      "UNSUPPORTED_FORMAT",
      `The lineage of ${where} has the layout ${shown(found)}; this BatchWeave reads ${magic}. Install a newer version.`,
      { key: where, found },
    );
  }
  return decodeColumns(inflateJson(body, block.readUInt32LE(8), where), block.readUInt32LE(4), where);
}

function inflateJson(body: Buffer, length: number, where: string): Record<string, unknown> {
  if (length > lineageJsonBytesMax) corrupt(where, `its lineage claims ${length} bytes`);
  try {
    const json = inflateSync(body, { maxOutputLength: Math.max(1, length) });
    if (json.length === length) return asRecord(parseJson(json), where, "lineage");
  } catch {
    return corrupt(where, "its lineage cannot be decompressed");
  }
  return corrupt(where, "its lineage has another length than it says");
}

function decodeColumns(fields: Record<string, unknown>, count: number, where: string): LineageSample[] {
  const column = (name: string): readonly unknown[] => {
    const list = asList(fields[name], where, `lineage.${name}`);
    return list.length === count ? list : corrupt(where, `lineage.${name} has not ${count} entries`);
  };
  const sources = asList(fields["sources"], where, "lineage.sources").map((s) => asText(s, where, "lineage.sources"));
  const [source, id, tokens] = [column("source"), column("id"), column("tokens")];
  const row = fields["row"] === undefined ? undefined : column("row");
  const last: number[] = [];
  return Array.from({ length: count }, (_, i) => {
    const number = asInteger(source[i], where, "lineage.source");
    const delta = id[i];
    // Only non-negative ids come out, so a difference that leads anywhere else is noticed.
    if (typeof delta === "number") last[number] = asInteger((last[number] ?? 0) + delta, where, "lineage.id");
    return {
      source: asText(sources[number], where, "lineage.source"),
      id: typeof delta === "number" ? String(last[number]) : asText(delta, where, "lineage.id"),
      tokens: asInteger(tokens[i], where, "lineage.tokens"),
      ...(row === undefined || row[i] === -1 ? {} : { row: asInteger(row[i], where, "lineage.row") }),
    };
  });
}
