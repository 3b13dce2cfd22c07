/** Reading values of any writer: every mismatch is CORRUPT and names the object and the field. */
import { BatchWeaveError } from "../errors.js";
import { isName } from "./keys.js";

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

/** A producer id, a checkpoint id or a group: it becomes part of keys. */
export function asName(value: unknown, where: string, field: string): string {
  if (isName(value)) return value;
  return corrupt(where, `${field} is not a name`);
}

/** A commit id or an incarnation: 12 characters of `0-9a-v`. It becomes part of keys. */
export function asId(value: unknown, where: string, field: string): string {
  if (typeof value === "string" && /^[0-9a-v]{12}$/.test(value)) return value;
  return corrupt(where, `${field} is not an id`);
}

/** The uuid of a namespace. */
export function asUuid(value: unknown, where: string, field: string): string {
  if (typeof value === "string" && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(value)) return value;
  return corrupt(where, `${field} is not a uuid`);
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

/** An array of exactly `length` elements: a fixed layout that only a new format version may extend. */
export function asTuple(value: unknown, length: number, where: string, field: string): readonly unknown[] {
  const list = asList(value, where, field);
  if (list.length === length) return list;
  return corrupt(where, `${field} has ${list.length} elements, expected ${length}`);
}

/** Levels of nesting in what is kept without being understood: writing it again is recursive, reading it is not. */
const unknownDepthMax = 64;

/** A value that this version does not know and that every writer of state keeps. */
export function asUnknown<T>(value: T, where: string): T {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > unknownDepthMax) corrupt(where, `an unknown field is nested more than ${unknownDepthMax} levels deep`);
    level = level.flatMap((item) => (typeof item === "object" && item !== null ? Object.values(item) : []));
  }
  return value;
}

/** The fields of `record` that this version does not know; every writer of state keeps them. */
export function unknownFields(
  record: Record<string, unknown>,
  known: ReadonlySet<string>,
  where: string,
): Record<string, unknown> {
  if (Object.keys(record).every((key) => known.has(key))) return {};
  // fromEntries, because assigning to `__proto__` would change the prototype and lose the field.
  return Object.fromEntries(
    Object.entries(record).flatMap(([key, value]) => (known.has(key) ? [] : [[key, asUnknown(value, where)]])),
  );
}
