/** Arguments of a benchmark: `--name value`, with defaults; a wrong one is told, not ignored. */
import { parseArgs } from "node:util";

/** Reads `--json` and the named options, all as text. */
export function readOptions<Name extends string>(
  args: readonly string[],
  names: readonly Name[],
): { readonly json: boolean } & { readonly [K in Name]?: string } {
  const options: Record<string, { type: "string" | "boolean" }> = { json: { type: "boolean" } };
  for (const name of names) options[name] = { type: "string" };
  const { values } = parseArgs({ args: [...args], options, strict: true });
  return { json: false, ...values } as { readonly json: boolean } & { readonly [K in Name]?: string };
}

/** A comma-separated list of positive numbers; `1e6` is one too. */
export function numbers(text: string | undefined, otherwise: readonly number[]): number[] {
  if (text === undefined) return [...otherwise];
  return text.split(",").map((item) => number(item, 0));
}

/** One positive number. */
export function number(text: string | undefined, otherwise: number): number {
  if (text === undefined) return otherwise;
  const value = Number(text);
  if (!(value > 0)) throw new Error(`${JSON.stringify(text)} is not a positive number.`);
  return value;
}
