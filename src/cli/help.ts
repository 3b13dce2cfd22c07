/** Help texts, made from the commands' own data. */
import { optionsOf } from "./arguments.js";
import type { Command } from "./command.js";
import { commands } from "./command-list.js";

const exitCodes = `Exit status
  0    done
  1    failed: the store, another process, a check that did not hold
  2    bad input, or bad content on the store
  130  stopped by SIGINT (143: SIGTERM) after finishing cleanly; a second signal ends at once`;

/** `batchweave --help`. */
export function generalHelp(): string {
  const width = Math.max(...Object.keys(commands).map((name) => name.length));
  const lines = Object.entries(commands).map(([name, { summary }]) => `  ${name.padEnd(width)}  ${summary}`);
  return `batchweave: training batches on plain object storage, each seen exactly once and in one order by every rank

Usage
  batchweave COMMAND [options]      batchweave COMMAND --help

Commands
${lines.join("\n")}

A URI names a namespace: file:///absolute/path, s3://bucket/prefix, az://container/prefix, gs://bucket/prefix, memory: (this process only).
--json works with every command; errors are then JSON on stderr. BATCHWEAVE_DEBUG=1 adds stacks.

${exitCodes}`;
}

/** `batchweave COMMAND --help`. */
export function commandHelp(name: string, command: Command): string {
  const entries = Object.entries(optionsOf(command)).map(([option, { value, help }]) => ({
    left: `  --${option}${value === undefined ? "" : ` ${value}`}`,
    help,
  }));
  const width = Math.max(...entries.map(({ left }) => left.length));
  const options = entries.map(({ left, help }) => `${left.padEnd(width)}  ${help}`);
  return `batchweave ${name} ${command.usage}

${command.about}

Options
${options.join("\n")}

Examples
${command.examples.map((example) => `  ${example}`).join("\n")}

${exitCodes}`;
}
