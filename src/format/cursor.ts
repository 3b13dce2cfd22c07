/** Cursors: where a consumer stands, independent of mesh and rank. Small JSON that a person can read and edit. */
import { BatchWeaveError, shown } from "../errors.js";
import { asRow, type Row } from "./brand.js";
import { crc32OfText } from "./crc.js";
import { crcText, formatVersion } from "./json-object.js";
import { parseJson } from "./json-text.js";

/** The next global row, the next iteration, and the namespace they belong to. `check` guards against damage; remove it to edit by hand. */
export interface Cursor {
  readonly batchweave: typeof formatVersion;
  readonly namespace: string;
  readonly row: Row;
  readonly iteration: number;
  readonly check?: string | undefined;
}

function checkOf(namespace: string, row: number, iteration: number): string {
  return crcText(crc32OfText(`${formatVersion}:${namespace}:${row}:${iteration}`));
}

/** Makes a cursor. */
export function makeCursor(namespace: string, row: number, iteration: number): Cursor {
  return {
    batchweave: formatVersion,
    namespace,
    row: asRow(row),
    iteration,
    check: checkOf(namespace, row, iteration),
  };
}

/** Reads a saved cursor: an object or its JSON text. Does not say whether it belongs to this namespace. */
export function parseCursor(value: unknown): Cursor {
  let cursor = value as Partial<Cursor> | null;
  if (typeof value === "string") {
    try {
      cursor = parseJson(Buffer.from(value)) as Partial<Cursor>;
    } catch {
      return invalid("it is not JSON", value);
    }
  }
  if (typeof cursor !== "object" || cursor === null) return invalid("it is not an object", value);
  const { batchweave, namespace, row, iteration, check } = cursor;
  if (Number.isSafeInteger(batchweave) && batchweave !== formatVersion) {
    throw new BatchWeaveError(
      "UNSUPPORTED_FORMAT",
      `The cursor has version ${shown(batchweave)}; this BatchWeave reads version ${formatVersion}. Install a version that reads it.`,
      { found: batchweave },
    );
  }
  if (batchweave !== formatVersion || typeof namespace !== "string")
    return invalid('it needs "batchweave": 1 and a "namespace"', value);
  if (!Number.isSafeInteger(row) || (row as number) < 0) return invalid('"row" is not a whole number', value);
  if (!Number.isSafeInteger(iteration) || (iteration as number) < 0)
    return invalid('"iteration" is not a whole number', value);
  if (check !== undefined && check !== checkOf(namespace, row as number, iteration as number)) {
    return invalid('its "check" does not match its content (remove "check" if you edited it on purpose)', value);
  }
  return makeCursor(namespace, row as number, iteration as number);
}

function invalid(what: string, value: unknown): never {
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `This is not a cursor: ${what}. Pass what \`share.next\` gave, or "earliest" or "latest".`,
    { value },
  );
}
