/** Rows of a benchmark, for tests. */
import { expect, vi } from "vitest";

/** One JSON line. */
export type Row = Record<string, number | string>;

/** Runs a benchmark of the sources with `--json` and gives its rows. */
export async function rowsOf(name: string, ...args: string[]): Promise<Row[]> {
  const lines: string[] = [];
  const log = vi.spyOn(console, "log").mockImplementation((line: string) => void lines.push(line));
  const { run } = (await import(`../../bench/${name}.ts`)) as { run(args: string[]): Promise<void> };
  try {
    await run([...args, "--json"]);
  } finally {
    log.mockRestore();
  }
  const rows = lines.map((line) => JSON.parse(line) as Row);
  expect(rows.map((row) => row["bench"])).toEqual(rows.map(() => name));
  return rows;
}

/** Rows have these fields and no others, and every number is positive. */
export function expectShape(rows: readonly Row[], fields: string): void {
  expect(rows.length).toBeGreaterThan(0);
  for (const row of rows) {
    expect(Object.keys(row)).toEqual(["bench", ...fields.split(" ")]);
    for (const value of Object.values(row)) if (typeof value === "number") expect(value).toBeGreaterThan(0);
  }
}
