/** Reading values whose shape somebody else wrote: every mismatch is CORRUPT and names the object and the field. */
import { BatchWeaveError } from "../errors.js";

/** Throws CORRUPT for the object `where`. */
export function corrupt(where: string, what: string, details: Record<string, unknown> = {}): never {
  throw new BatchWeaveError(
    "CORRUPT",
    `${where} is corrupt: ${what}. Do not delete anything; restore the object from a replica or a backup, or report this with \`batchweave verify\`.`,
    { key: where, what, ...details },
  );
}

/** A non-negative safe integer. */
export function asInteger(value: unknown, where: string, field: string): number {
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0) return value;
  return corrupt(where, `${field} is not a whole number`);
}

/** A string. */
export function asText(value: unknown, where: string, field: string): string {
  if (typeof value === "string") return value;
  return corrupt(where, `${field} is not a string`);
}

/** A boolean. */
export function asFlag(value: unknown, where: string, field: string): boolean {
  if (typeof value === "boolean") return value;
  return corrupt(where, `${field} is not true or false`);
}

/** An array. */
export function asList(value: unknown, where: string, field: string): readonly unknown[] {
  if (Array.isArray(value)) return value;
  return corrupt(where, `${field} is not a list`);
}

/** A plain object. */
export function asRecord(value: unknown, where: string, field: string): Record<string, unknown> {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  return corrupt(where, `${field} is not an object`);
}

/** The fields of `record` that this version does not know; whoever rewrites state keeps them. */
export function unknownFields(record: Record<string, unknown>, known: ReadonlySet<string>): Record<string, unknown> {
  const rest: Record<string, unknown> = {};
  for (const key of Object.keys(record)) if (!known.has(key)) rest[key] = record[key];
  return rest;
}
