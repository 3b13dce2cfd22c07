/** What a command prints: results on stdout, notes and progress on stderr; people or JSON, never both. */
import type { Env } from "../index.js";
import { printable, printableJson } from "./printable.js";

const barWidth = 24;
const redrawMs = 100;
const plainLineMs = 5_000;

/** Output of one command. */
export class Terminal {
  readonly isJson: boolean;
  readonly #env: Env;
  #lineWidth = 0;
  #drawnAtMs = Number.NEGATIVE_INFINITY;
  #liveLines = 0;

  constructor(isJson: boolean, env: Env) {
    this.isJson = isJson;
    this.#env = env;
    // A log gets its first line of progress only when there is some; a terminal gets its bar at once.
    if (!this.isLive) this.#drawnAtMs = env.monotonic();
  }

  /** Whether notes and progress go to a person's terminal. */
  get isLive(): boolean {
    return !this.isJson && process.stderr.isTTY === true;
  }

  /** A result: `value` as one JSON line, or `text` for people. */
  result(value: unknown, text: string | (() => string)): void {
    this.#erase();
    if (this.isJson) process.stdout.write(`${printableJson(value)}\n`);
    else process.stdout.write(`${printable(typeof text === "string" ? text : text())}\n`);
  }

  /** A remark for people; nothing that a script needs. */
  note(text: string): void {
    if (this.isJson) return;
    this.#erase();
    process.stderr.write(`${printable(text)}\n`);
  }

  /** Progress: a bar that is drawn over on a terminal, a plain line now and then in a log. `total` may be unknown. */
  progress(label: string, done: number, total: number | undefined, detail = ""): void {
    if (this.isJson) return;
    const nowMs = this.#env.monotonic();
    const isLast = total !== undefined && done >= total;
    if (!isLast && nowMs - this.#drawnAtMs < (this.isLive ? redrawMs : plainLineMs)) return;
    this.#drawnAtMs = nowMs;
    const count = total === undefined ? String(done) : `${done}/${total}`;
    const bar = total === undefined || !this.isLive ? "" : ` ${drawBar(done / Math.max(1, total))}`;
    const text = `${printable(label)}${bar} ${count}${detail === "" ? "" : `  ${detail}`}`;
    if (!this.isLive) {
      process.stderr.write(`${text}\n`);
      return;
    }
    const line = text.slice(0, Math.max(20, (process.stderr.columns || 80) - 1));
    process.stderr.write(`\r${line.padEnd(this.#lineWidth)}`);
    this.#lineWidth = line.length;
  }

  /** Several lines that are drawn over on a terminal. Elsewhere only `plain` is printed. */
  live(lines: readonly string[], plain: string): void {
    if (this.isJson) return;
    if (!this.isLive) {
      process.stderr.write(`${printable(plain)}\n`);
      return;
    }
    this.#erase();
    const columns = Math.max(20, (process.stderr.columns || 80) - 1);
    const shown = lines.flatMap((line) => fitted(printable(line), columns));
    process.stderr.write(shown.map((line) => `${line}\n`).join(""));
    this.#liveLines = shown.length;
  }

  /** Leaves what was drawn last standing. */
  settle(): void {
    if (this.#lineWidth > 0) process.stderr.write("\n");
    this.#lineWidth = 0;
    this.#liveLines = 0;
  }

  #erase(): void {
    if (this.#lineWidth > 0) process.stderr.write(`\r${" ".repeat(this.#lineWidth)}\r`);
    if (this.#liveLines > 0) process.stderr.write(`\u001b[${this.#liveLines}A\u001b[J`);
    this.#lineWidth = 0;
    this.#liveLines = 0;
  }
}

/** A sentence is wrapped, a row of a table (which has gaps) is cut. */
function fitted(line: string, columns: number): readonly string[] {
  if (line.length <= columns || /\S {2}/.test(line)) return [line.slice(0, columns)];
  const rows = [""];
  for (const word of line.split(" ")) {
    const last = rows.at(-1) as string;
    if (last !== "" && last.length + 1 + word.length > columns) rows.push(`   ${word}`.slice(0, columns));
    else rows[rows.length - 1] = (last === "" && rows.length === 1 ? word : `${last} ${word}`).slice(0, columns);
  }
  return rows;
}

function drawBar(fraction: number): string {
  const filled = Math.round(Math.min(1, fraction) * barWidth);
  return `[${"#".repeat(filled)}${"-".repeat(barWidth - filled)}]`;
}

/** Columns under a header; numbers to the right. */
export function table(header: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const cells = [header, ...rows.map((row) => row.map(String))];
  const widths = header.map((_, i) => Math.max(...cells.map((row) => (row[i] ?? "").length)));
  const isNumber = header.map((_, i) => rows.length > 0 && rows.every((row) => typeof row[i] === "number"));
  return cells
    .map((row) =>
      widths
        .map((width, i) => (isNumber[i] ? (row[i] ?? "").padStart(width) : (row[i] ?? "").padEnd(width)))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

/** `1 lane`, `2 lanes`, `3 batches`. */
export function counted(count: number, one: string): string {
  const many = /(s|x|ch|sh)$/.test(one) ? `${one}es` : `${one}s`;
  return `${count} ${count === 1 ? one : many}`;
}

/** `0 to 288`: steps are told by the first and the last, everywhere. */
export function stepsText({ trim, end }: { readonly trim: number; readonly end: number }): string {
  return trim < end ? `${trim} to ${end - 1}` : end === 0 ? "none yet" : "none left";
}

/** `1.5 MB`: decimal units, as object stores bill them. */
export function formatBytes(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let [value, unit] = [bytes, 0];
  while (value >= 1_000 && unit < units.length - 1) [value, unit] = [value / 1_000, unit + 1];
  return `${unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** `3.2 s`, `4 min`, `2.5 h`. */
export function formatMs(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  return `${(ms / 3_600_000).toFixed(1)} h`;
}
