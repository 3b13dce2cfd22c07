/** Arguments of a benchmark: `--name value`, with defaults; a wrong one is told, not ignored. */
import { parseArgs } from "node:util";

/** Wrong arguments, or `--help`: the message is for people, and there is no stack to show. */
export class Usage extends Error {
  readonly exit: number;

  constructor(message: string, exit = 2) {
    super(message);
    this.exit = exit;
  }
}

/** Reads `--json` and the named options, all as text. */
export function readOptions<Name extends string>(
  args: readonly string[],
  names: readonly Name[],
): { readonly json: boolean } & { readonly [K in Name]?: string } {
  const options: Record<string, { type: "string" | "boolean" }> = { json: { type: "boolean" } };
  for (const name of names) options[name] = { type: "string" };
  const usage = `npm run bench -- NAME ${names.map((name) => `[--${name} VALUE]`).join(" ")} [--json]`;
  if (args.includes("--help")) throw new Usage(usage, 0);
  const values = ((): object => {
    try {
      return parseArgs({ args: [...args], options, strict: true }).values;
    } catch (error) {
      throw new Usage(`${(error as Error).message}\n${usage}`);
    }
  })();
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
  if (!(value > 0)) throw new Usage(`${JSON.stringify(text)} is not a positive number; 8, 0.5 and 1e6 are.`);
  return value;
}
