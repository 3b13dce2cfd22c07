/** Rows of figures: an aligned table for people, or one JSON line per row as soon as it is known. */

/** A figure or a name; numbers are shown rounded. */
export type Cell = number | string | boolean | undefined;

/** Collects the rows of one benchmark. */
export class Report {
  readonly #bench: string;
  readonly #json: boolean;
  readonly #rows: Record<string, Cell>[] = [];

  constructor(bench: string, json: boolean) {
    this.#bench = bench;
    this.#json = json;
  }

  /** Adds a row. `details` are shown to people only. */
  row(figures: Readonly<Record<string, Cell>>, details: Readonly<Record<string, Cell>> = {}): void {
    if (this.#json) console.log(JSON.stringify({ bench: this.#bench, ...rounded(figures) }));
    else this.#rows.push({ ...figures, ...details });
  }

  /** Says what is going on, apart from the figures: on stderr, so that stdout holds them alone. */
  note(text: string): void {
    process.stderr.write(`${text}\n`);
  }

  /** Prints the table, unless the rows were printed as JSON. */
  end(): void {
    if (this.#json) return;
    const columns = [...new Set(this.#rows.flatMap((row) => Object.keys(row)))];
    const lines = [columns, ...this.#rows.map((row) => columns.map((column) => cellText(row[column])))];
    const widths = columns.map((_, i) => Math.max(...lines.map((line) => (line[i] as string).length)));
    const show = (line: readonly string[]): string =>
      line.map((cell, i) => cell.padStart(widths[i] as number)).join("  ");
    for (const line of lines) console.log(show(line));
  }
}

/** Three decimals, or three digits of what is smaller. */
export function round(value: number): number {
  if (!Number.isFinite(value) || Number.isInteger(value)) return value;
  return Math.abs(value) >= 1 ? Number(value.toFixed(3)) : Number(value.toPrecision(3));
}

function rounded(figures: Readonly<Record<string, Cell>>): Record<string, Cell> {
  return Object.fromEntries(
    Object.entries(figures).map(([name, value]) => [name, typeof value === "number" ? round(value) : value]),
  );
}

function cellText(value: Cell): string {
  return typeof value === "number" ? String(round(value)) : String(value ?? "-");
}
