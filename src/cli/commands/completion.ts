/** `batchweave completion`: a script for the shell, made from the commands' own data. */
import { invalid, optionsOf } from "../arguments.js";
import type { Call, Command, OptionTable } from "../command.js";
import { commands } from "../command-list.js";

interface Known {
  readonly name: string;
  readonly summary: string;
  readonly options: OptionTable;
}

async function run({ args, terminal }: Call): Promise<undefined> {
  const [shell] = args.positionals;
  const known = await Promise.all(
    Object.entries(commands).map(async ([name, { summary, load }]): Promise<Known> => {
      const { command: loaded } = await load();
      return { name, summary, options: optionsOf(loaded) };
    }),
  );
  const make = { bash, zsh, fish }[shell as string];
  if (!make) throw invalid(`There is completion for bash, zsh and fish, not for ${JSON.stringify(shell)}.`);
  const script = make(known);
  terminal.result({ shell, script }, script);
  return undefined;
}

/** For single quotes in any shell. */
const quoted = (text: string): string => `'${text.replace(/'/g, "'\\''")}'`;
const flags = ({ options }: Known): string[] => Object.keys(options).map((name) => `--${name}`);

function bash(known: readonly Known[]): string {
  const cases = known.map((one) => `    ${quoted(one.name)}) words=${quoted(flags(one).join(" "))} ;;`);
  const names = [...new Set(known.map(({ name }) => name.split(" ")[0] as string))];
  return `# bash completion of batchweave: source <(batchweave completion bash)
_batchweave() {
  local current="\${COMP_WORDS[COMP_CWORD]}" words
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W ${quoted([...names, "--help", "--version"].join(" "))} -- "$current"))
    return
  fi
  local name="\${COMP_WORDS[1]}"
  case "$name \${COMP_WORDS[2]}" in
${known
  .filter(({ name }) => name.includes(" "))
  .map(({ name }) => `    ${quoted(name)}) name=${quoted(name)} ;;`)
  .join("\n")}
  esac
  case "$name" in
${cases.join("\n")}
    *) words=${quoted(
      known
        .filter(({ name }) => name.includes(" "))
        .map(({ name }) => name.split(" ")[1])
        .join(" "),
    )} ;;
  esac
  case "$current" in
    -*|"") COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
    *) COMPREPLY=($(compgen -f -- "$current")) ;;
  esac
}
complete -o default -F _batchweave batchweave`;
}

function zsh(known: readonly Known[]): string {
  const described = (text: string): string => text.replace(/[:[\]]/g, " ").replace(/'/g, "'\\''");
  const cases = known.map(({ name, options }) => {
    const lines = Object.entries(options).map(
      ([option, { value, help }]) =>
        `'--${option}[${described(help)}]${value === undefined ? "" : `:${described(value)}:_files`}'`,
    );
    return `    ${quoted(name)}) _arguments ${lines.join(" ")} '*:file:_files' ;;`;
  });
  return `#compdef batchweave
# zsh completion of batchweave: batchweave completion zsh > "\${fpath[1]}/_batchweave"
_batchweave() {
  local -a names
  names=(${known
    .filter(({ name }) => !name.includes(" "))
    .map(({ name, summary }) => `'${name}:${described(summary)}'`)
    .join(" ")} 'fleet:Sizes and advice for a fleet')
  if (( CURRENT == 2 )); then
    _describe command names
    return
  fi
  local name="\${words[2]}"
  [[ "$name" == fleet ]] && name="fleet \${words[3]}"
  case "$name" in
${cases.join("\n")}
  esac
}
compdef _batchweave batchweave`;
}

function fish(known: readonly Known[]): string {
  const lines = known.flatMap(({ name, summary, options }) => {
    const [first, second] = name.split(" ") as [string, string | undefined];
    const seen = second === undefined ? first : `${first}; and __fish_seen_subcommand_from ${second}`;
    return [
      second === undefined
        ? `complete -c batchweave -n __fish_use_subcommand -a ${first} -d ${quoted(summary)}`
        : `complete -c batchweave -n ${quoted(`__fish_seen_subcommand_from ${first}`)} -a ${second} -d ${quoted(summary)}`,
      ...Object.entries(options).map(
        ([option, { value, help }]) =>
          `complete -c batchweave -n ${quoted(`__fish_seen_subcommand_from ${seen}`)} -l ${option}${value === undefined ? "" : " -r"} -d ${quoted(help)}`,
      ),
    ];
  });
  return `# fish completion of batchweave: batchweave completion fish > ~/.config/fish/completions/batchweave.fish\n${lines.join("\n")}`;
}

export const command: Command = {
  usage: "bash|zsh|fish",
  about: "Prints a script that completes commands and options in your shell.",
  positionals: ["SHELL"],
  options: {},
  examples: [
    "batchweave completion zsh > ~/.zfunc/_batchweave",
    "source <(batchweave completion bash)",
    "batchweave completion fish > ~/.config/fish/completions/batchweave.fish",
  ],
  run,
};
