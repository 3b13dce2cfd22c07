/** The field of a sample that a ready-made transform was told to read. */
import { BatchWeaveError } from "../../index.js";

/**
 * The value of a field. One that is not there at all is no bad sample but a wrong setting, so it stops the pipeline whatever its policy. Whether
 * the value is of the right kind is for the transform to say, sample by sample.
 */
export function fieldOf(value: Readonly<Record<string, unknown>>, field: string): unknown {
  if (value[field] !== undefined) return value[field];
  const has = Object.keys(value ?? {}).filter((name) => value[name] !== undefined);
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `The sample has no field ${field}; it has ${has.length > 0 ? has.join(", ") : "none"}. Say which in the transform's field, or put one before it that makes it.`,
    { field, has },
  );
}
