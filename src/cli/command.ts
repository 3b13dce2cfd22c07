/** What a command is: data for its help, and a function. */
import type { Env, Metrics, Namespace, NamespaceOptions } from "../index.js";
import type { Arguments } from "./arguments.js";
import type { Stopping } from "./stopping.js";
import type { Terminal } from "./terminal.js";

/** One option of a command. `value` names its argument; without it the option is a flag. */
interface OptionHelp {
  readonly value?: string;
  readonly help: string;
}

/** Options by name. */
export type OptionTable = Readonly<Record<string, OptionHelp>>;

/** One command of the CLI. */
export interface Command {
  /** After the command's name: `URI --rows R --chunks C`. */
  readonly usage: string;
  /** A few sentences: what it does and what must be known. */
  readonly about: string;
  readonly examples: readonly string[];
  /** Names of positional arguments; those in brackets may be left out. */
  readonly positionals: readonly string[];
  readonly options: OptionTable;
  /** Runs for as long as the work takes: has `--metrics`. */
  readonly isLong?: boolean;
  /** Returns an exit status when it is not 0. */
  run(call: Call): Promise<number | undefined>;
}

/** What a running command gets. */
export interface Call {
  readonly args: Arguments;
  readonly terminal: Terminal;
  readonly stopping: Stopping;
  readonly env: Env;
  readonly metrics: Metrics;
  /** Opens the namespace of the first positional argument, with the settings that the options say. */
  open(options?: Pick<NamespaceOptions, "waitMs">): Promise<Namespace>;
}
