/** How a failure is told: one sentence and a code on stderr, and the exit status. */
import { isBatchWeaveError } from "../index.js";
import { printable, printableJson } from "./printable.js";
import { Stopped } from "./stopping.js";

/** Prints a failure and gives the exit status. */
export function reportFailure(error: unknown, isJson: boolean): number {
  if (error instanceof Stopped) return error.exit;
  const known = isBatchWeaveError(error) ? error : undefined;
  const message = (error instanceof Error ? error.message : String(error)).replace(/\s*\n\s*/g, " ");
  if (isJson) {
    const { code = "INTERNAL", remedy = "report", details = {} } = known ?? {};
    process.stderr.write(`${printableJson({ error: { code, message, remedy, details } })}\n`);
  } else {
    process.stderr.write(`error[${known?.code ?? "INTERNAL"}]: ${printable(message)}\n`);
  }
  if (process.env["BATCHWEAVE_DEBUG"]) printStacks(error);
  return known?.exit ?? 1;
}

function printStacks(error: unknown): void {
  for (let at = error; at instanceof Error; at = at.cause)
    process.stderr.write(`${printable(at.stack ?? at.message)}\n`);
}
