/** A command's arguments, checked when they are asked for. Every refusal says what would be right. */
import { type ParseArgsConfig, parseArgs } from "node:util";
import { BatchWeaveError } from "../index.js";
import type { Command, OptionTable } from "./command.js";
import { nearest } from "./nearest-word.js";

/** Shorter, and the store would be asked without end. */
const watchIntervalSecondsMin = 0.1;

/** Options that every command has. */
const commonOptions: OptionTable = {
  json: { help: "Print JSON lines on stdout, and nothing else there." },
  durability: {
    value: "LEVEL",
    help: "file: only. power-loss (default), or process-crash: faster, but a power failure may lose recent writes.",
  },
  help: { help: "Show this help (-h)." },
};

/** Options of commands that run for as long as the work takes. */
const longOptions: OptionTable = {
  metrics: {
    value: "[HOST:]PORT",
    help: "Serve Prometheus metrics (default host 127.0.0.1; 0.0.0.0: all addresses; port 0: any free one).",
  },
  "no-pulse": { help: "Leave no hints of life beside the log." },
  otlp: { value: "URL", help: "Send metrics and spans to this OTLP endpoint (default: OTEL_EXPORTER_OTLP_ENDPOINT)." },
};

/** All options of a command. */
export function optionsOf(command: Command): OptionTable {
  return { ...command.options, ...(command.isLong ? longOptions : {}), ...commonOptions };
}

/** INVALID_ARGUMENT. */
export function invalid(message: string, details: Record<string, unknown> = {}): BatchWeaveError {
  return new BatchWeaveError("INVALID_ARGUMENT", message, details);
}

/** Bounds of a number. */
interface Bounds {
  readonly min?: number;
  readonly max?: number;
}

/** Where something is served. */
export interface Address {
  readonly host: string;
  readonly port: number;
}

/** Parsed arguments of one call. */
export class Arguments {
  readonly #name: string;
  readonly #command: Command;
  readonly #values: Readonly<Record<string, string | boolean | undefined>>;
  readonly positionals: readonly string[];

  constructor(name: string, command: Command, argv: readonly string[]) {
    this.#name = name;
    this.#command = command;
    const options: NonNullable<ParseArgsConfig["options"]> = {};
    const known = optionsOf(command);
    for (const [option, { value }] of Object.entries(known))
      options[option] = {
        type: value === undefined ? "boolean" : "string",
        ...(option === "help" ? { short: "h" } : {}),
      };
    try {
      const parsed = parseArgs({ args: withNegatives(argv, known), options, allowPositionals: true, strict: true });
      this.#values = parsed.values as Record<string, string | boolean | undefined>;
      this.positionals = parsed.positionals;
    } catch (error) {
      const unknown = /^Unknown option '--([\w-]+)'/.exec(error instanceof Error ? error.message : "")?.[1];
      const near = unknown === undefined ? undefined : nearest(unknown, Object.keys(known));
      const meant = near === undefined ? "" : ` Did you mean --${near}?`;
      throw invalid(`${firstSentence(error)}.${meant} See \`batchweave ${name} --help\`.`, { command: name });
    }
    if (!this.flag("help")) this.#checkPositionals();
  }

  /** The namespace's URI: the first positional argument. */
  get uri(): string {
    return this.positionals[0] as string;
  }

  /** Whether a flag was given. */
  flag(option: string): boolean {
    return this.#values[option] === true;
  }

  /** The text of an option, or undefined when it was not given. */
  text(option: string): string | undefined {
    const value = this.#values[option];
    return typeof value === "string" ? value : undefined;
  }

  /** The text of an option that must be given. */
  required(option: string): string {
    return this.text(option) ?? this.#missing(option);
  }

  /** One of several words, or undefined when it was not given. */
  word<W extends string>(option: string, words: readonly W[]): W | undefined {
    const text = this.text(option);
    if (text === undefined || words.includes(text as W)) return text as W | undefined;
    throw invalid(`--${option} must be ${words.join(" or ")}, not ${JSON.stringify(text)}.`, { [option]: text });
  }

  /** A whole number, or undefined when it was not given. Accepts 64k, 10m, 1g (powers of 1,024). */
  integer(option: string, { min = 0, max = Number.MAX_SAFE_INTEGER }: Bounds = {}): number | undefined {
    const text = this.text(option);
    if (text === undefined) return undefined;
    const [, digits, unit = ""] = /^(\d{1,16})([kmg]?)$/i.exec(text) ?? [];
    const value = Number(digits) * 1_024 ** " kmg".indexOf(unit.toLowerCase() || " ");
    if (digits !== undefined && Number.isSafeInteger(value) && value >= min && value <= max) return value;
    const range = max === Number.MAX_SAFE_INTEGER ? `of at least ${min}` : `from ${min} to ${max}`;
    const units = /\d[a-z]/i.test(text) ? " Units are k, m and g (powers of 1,024), such as 64k." : "";
    throw invalid(
      `--${option} must be a whole number ${range}, such as ${Math.max(min, Math.min(max, 8))}, not ${JSON.stringify(text)}.${units}`,
      { [option]: text },
    );
  }

  /** `PORT` or `HOST:PORT`, or undefined when it was not given. Without a host, only this machine can reach it. */
  address(option: string): Address | undefined {
    const text = this.text(option);
    if (text === undefined) return undefined;
    const [, host = "127.0.0.1", port] = /^(?:(\[[0-9a-fA-F:.]+\]|[\w.-]+):)?(\d{1,5})$/.exec(text) ?? [];
    if (port !== undefined && Number(port) <= 65_535) return { host: host.replace(/^\[|\]$/g, ""), port: Number(port) };
    throw invalid(`--${option} must be PORT or HOST:PORT, such as 9464 or 0.0.0.0:9464, not ${JSON.stringify(text)}.`, {
      [option]: text,
    });
  }

  /** A whole number that must be given. */
  requiredInteger(option: string, bounds?: Bounds): number {
    return this.integer(option, bounds) ?? this.#missing(option);
  }

  /** Milliseconds between two looks at the log, from `--interval` in seconds. */
  watchIntervalMs(): number | undefined {
    const seconds = this.number("interval");
    if (seconds !== undefined && seconds < watchIntervalSecondsMin)
      throw invalid(
        `--interval must be at least ${watchIntervalSecondsMin} seconds, not ${seconds}: every look reads the log, and it would never stop.`,
        { interval: seconds },
      );
    return seconds === undefined ? undefined : 1_000 * seconds;
  }

  /** A number of at least 0, or undefined when it was not given. */
  number(option: string): number | undefined {
    const text = this.text(option);
    if (text === undefined) return undefined;
    const value = text.trim() === "" ? Number.NaN : Number(text);
    if (Number.isFinite(value) && value >= 0) return value;
    throw invalid(`--${option} must be a number of at least 0, such as 0.5 or 20, not ${JSON.stringify(text)}.`, {
      [option]: text,
    });
  }

  /** `r,c` as two whole numbers, or undefined when it was not given. */
  pair(option: string): readonly [number, number] | undefined {
    const text = this.text(option);
    if (text === undefined) return undefined;
    const match = /^(\d{1,9}),(\d{1,9})$/.exec(text);
    if (match) return [Number(match[1]), Number(match[2])];
    throw invalid(`--${option} must be ROW,CHUNK, such as 3,0, not ${JSON.stringify(text)}.`, { [option]: text });
  }

  #missing(option: string): never {
    const { value } = optionsOf(this.#command)[option] ?? {};
    throw invalid(`--${option} ${value ?? ""} is missing. See \`batchweave ${this.#name} --help\`.`, { option });
  }

  #checkPositionals(): void {
    const names = this.#command.positionals;
    const needed = names.filter((name) => !name.startsWith("["));
    if (this.positionals.length >= needed.length && this.positionals.length <= names.length) return;
    const what =
      this.positionals.length < needed.length
        ? `${needed[this.positionals.length]} is missing`
        : `${JSON.stringify(this.positionals[names.length])} is one argument too many`;
    throw invalid(`${what}: batchweave ${this.#name} ${this.#command.usage}`, { command: this.#name });
  }
}

/** A negative number behind an option is its value, so that the refusal says what is allowed; Node would call it ambiguous. */
function withNegatives(argv: readonly string[], known: OptionTable): string[] {
  const args: string[] = [];
  for (const arg of argv) {
    const last = args.at(-1);
    if (/^-\d/.test(arg) && last?.startsWith("--") && known[last.slice(2)]?.value !== undefined)
      args[args.length - 1] = `${last}=${arg}`;
    else args.push(arg);
  }
  return args;
}

/** Node's messages go on with advice that does not fit here. */
function firstSentence(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  const first = message.split(/\.\s|\n/)[0]?.replace(/\.$/, "") ?? message;
  return first.replace(
    /^Option '(--[\w-]+)' argument is ambiguous$/,
    "$1 needs a value, and what follows it begins with a hyphen",
  );
}
