/** What a reader may answer to damaged bytes. */
import { expect } from "vitest";
import { BatchWeaveError } from "../../src/errors.js";

export const refusals: readonly string[] = ["CORRUPT", "UNSUPPORTED_FORMAT", "WRONG_NAMESPACE"];

/** The error of `read`: one of {@link refusals} that names `key`. Fails if there is none or another. */
export function refusal(read: () => unknown, key: string): BatchWeaveError {
  let error: unknown;
  try {
    read();
  } catch (caught) {
    error = caught;
  }
  if (!(error instanceof BatchWeaveError)) expect.fail(`damage of ${key} was answered with ${String(error ?? "data")}`);
  // Called for every byte of every object, so without the cost of an assertion that holds.
  if (!refusals.includes(error.code)) expect.fail(`damage of ${key} was answered with ${error.code}: ${error.message}`);
  if (!error.message.includes(key)) expect.fail(`the error does not name ${key}: ${error.message}`);
  return error;
}
