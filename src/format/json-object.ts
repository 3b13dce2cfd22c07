/**
 * Stored JSON objects: one line of JSON that ends `,"crc32":"xxxxxxxx"}\n`. The checksum covers every byte before
 * that ending, so any language checks it on the raw bytes without a canonical form, and the file is still plain JSON.
 */
import { BatchWeaveError, shown } from "../errors.js";
import { crc32 } from "./crc.js";
import { parseJson } from "./json-text.js";
import { asInteger, asRecord, asText, corrupt } from "./shape.js";

/** The version of an object that the first FORMAT.md describes. What it has no word for says the newest; a reader stops at any other. */
export const formatVersion = 1;
/** The newest version of FORMAT.md. */
const formatVersionMax = 2;

/** Bytes of a stored JSON object at most: whatever is larger is not read. */
export const storedJsonBytesMax: number = 64 * 1024 * 1024;

/** What a stored JSON object is. */
type ObjectKind = "namespace" | "manifest" | "boundary" | "segment" | "node" | "table" | "root" | "pulse";

const endingBytes = ',"crc32":"00000000"}\n'.length;
const encoder = new TextEncoder();

/** A value that is written already. */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** Writes parts of immutable state once: most of a manifest's producers and batches were in the version before it. */
export function remembered<T extends object>(encode: (value: T) => unknown): (value: T) => string {
  const texts = new WeakMap<T, string>();
  return (value) => {
    let text = texts.get(value);
    if (text === undefined) {
      text = JSON.stringify(encode(value));
      texts.set(value, text);
    }
    return text;
  };
}

/** Encodes a JSON object with format version, kind and namespace in front and its checksum at the end. A field may be a {@link JsonText}. */
export function sealJson(
  kind: ObjectKind,
  namespace: string,
  fields: object,
  format: 1 | 2 = formatVersion,
): Uint8Array {
  let text = "";
  for (const [name, value] of Object.entries<unknown>({ format, kind, namespace, ...fields })) {
    const written = value instanceof JsonText ? value.text : JSON.stringify(value);
    if (written !== undefined) text += `${text === "" ? "{" : ","}${JSON.stringify(name)}:${written}`;
  }
  const body = Buffer.from(text, "utf8");
  if (body.length + endingBytes > storedJsonBytesMax) {
    const found = body.length + endingBytes;
    throw new BatchWeaveError(
      "LIMIT",
      `A ${kind} of ${found} bytes would be larger than the ${storedJsonBytesMax} that readers take. Release checkpoints and forks, or let fewer batches wait.`,
      { found, limit: storedJsonBytesMax },
    );
  }
  return Buffer.concat([body, encoder.encode(`,"crc32":"${crcText(crc32(body))}"}\n`)]);
}

/** 8 lower-case hex digits. */
export function crcText(crc: number): string {
  return crc.toString(16).padStart(8, "0");
}

/**
 * Decodes what {@link sealJson} made. Checks ending, checksum, JSON, format version, kind and, when given, namespace,
 * in this order: garbage is CORRUPT, a newer format is UNSUPPORTED_FORMAT, another namespace's object WRONG_NAMESPACE.
 */
export function openJson(
  bytes: Uint8Array,
  where: string,
  kind: ObjectKind,
  namespace?: string,
): Record<string, unknown> {
  const fields = parseSealed(bytes, where);
  const format = asInteger(fields["format"], where, "format");
  if (format < formatVersion || format > formatVersionMax) throw unsupportedFormat(where, format);
  if (fields["kind"] !== kind) corrupt(where, `it is a ${shown(fields["kind"])}, expected a ${kind}`);
  if (namespace !== undefined && fields["namespace"] !== namespace)
    throw wrongNamespace(where, asText(fields["namespace"], where, "namespace"), namespace);
  return fields;
}

/** UNSUPPORTED_FORMAT: a version of FORMAT.md that this code does not read. */
export function unsupportedFormat(where: string, found: number): BatchWeaveError {
  return new BatchWeaveError(
    "UNSUPPORTED_FORMAT",
    `${where} has format version ${found}; this BatchWeave reads versions ${formatVersion} to ${formatVersionMax}. Install a version that reads it.`,
    { key: where, found, supported: formatVersionMax },
  );
}

/** WRONG_NAMESPACE: an object that another namespace's writer left under this key. */
export function wrongNamespace(where: string, found: string, expected: string): BatchWeaveError {
  return new BatchWeaveError(
    "WRONG_NAMESPACE",
    `${where} belongs to namespace ${found}, expected ${expected}: the namespace was deleted and made again, or its folder holds two. Open it anew, or delete the leftovers.`,
    { key: where, found, expected },
  );
}

function parseSealed(bytes: Uint8Array, where: string): Record<string, unknown> {
  if (bytes.length <= endingBytes) corrupt(where, `it has only ${bytes.length} bytes`);
  const split = bytes.length - endingBytes;
  const found = crcText(crc32(bytes.subarray(0, split)));
  const ending = Buffer.from(bytes.buffer, bytes.byteOffset + split, endingBytes).toString("latin1");
  if (ending !== `,"crc32":"${found}"}\n`) {
    corrupt(where, "its checksum does not match its bytes", { expected: ending.slice(10, 18), found });
  }
  let value: unknown;
  try {
    value = parseJson(bytes);
  } catch {
    corrupt(where, "it is not JSON, or a name in it occurs twice");
  }
  return asRecord(value, where, "the object");
}
