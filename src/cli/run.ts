/** From arguments to a command and an exit status. */
import type { Call, Command } from "./command.js";
import { commands } from "./command-list.js";

/** Runs one command line and gives the exit status. Never throws. */
export async function runCli(argv: readonly string[]): Promise<number> {
  // A reader that went away (`| head`) is no failure of ours.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => process.exit(error.code === "EPIPE" ? 0 : 1));
  const isJson = argv.includes("--json");
  try {
    return await dispatch(argv, isJson);
  } catch (error) {
    const { reportFailure } = await import("./failure.js");
    return reportFailure(error, isJson);
  }
}

async function dispatch(argv: readonly string[], isJson: boolean): Promise<number> {
  const [name = "--help", ...rest] = argv;
  if (name === "--help" || name === "-h" || name === "help") {
    const topic = rest.filter((word) => !word.startsWith("-"));
    if (topic.length > 0) return await dispatch([...topic, "--help"], isJson);
    const { generalHelp } = await import("./help.js");
    process.stdout.write(`${generalHelp()}\n`);
    return 0;
  }
  if (name === "--version") {
    process.stdout.write(`${await packageVersion()}\n`);
    return 0;
  }
  // Some commands have two words: `fleet size`.
  const full = Object.hasOwn(commands, `${name} ${rest[0]}`) ? `${name} ${rest[0]}` : name;
  const entry = Object.hasOwn(commands, full) ? commands[full] : undefined;
  if (!entry) {
    const { invalid } = await import("./arguments.js");
    const own = Object.keys(commands).filter((one) => one.startsWith(`${name} `));
    const given = own.length > 0 && rest[0] !== undefined ? `${name} ${rest[0]}` : name;
    const { nearest } = await import("./nearest-word.js");
    const near = nearest(given, Object.keys(commands));
    const listed =
      near !== undefined
        ? `Did you mean ${near}? \`batchweave --help\` lists all.`
        : own.length > 0
          ? `There ${own.length === 1 ? "is" : "are"} ${own.join(", ")}.`
          : "`batchweave --help` lists them.";
    throw invalid(`There is no command ${JSON.stringify(given)}. ${listed}`, { command: given });
  }
  const { command } = await entry.load();
  return await runCommand(full, command, full === name ? rest : rest.slice(1), isJson);
}

async function packageVersion(): Promise<string> {
  const { readFile } = await import("node:fs/promises");
  const text = await readFile(new URL("../../../package.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}

async function runCommand(name: string, command: Command, argv: readonly string[], isJson: boolean): Promise<number> {
  const { Arguments } = await import("./arguments.js");
  const args = new Arguments(name, command, argv);
  if (args.flag("help")) {
    const { commandHelp } = await import("./help.js");
    process.stdout.write(`${commandHelp(name, command)}\n`);
    return 0;
  }
  const [{ Metrics, openNamespace, systemEnv }, { Stopping }, { Terminal }, watching] = await Promise.all([
    import("../index.js"),
    import("./stopping.js"),
    import("./terminal.js"),
    command.isLong ? Promise.all([import("./telemetry.js"), import("./store-watch.js")]) : undefined,
  ]);
  const terminal = new Terminal(isJson, systemEnv);
  const stopping = new Stopping(isJson, systemEnv);
  const endpoint = watching?.[0].otlpEndpoint(args.text("otlp"));
  // Before the registry: it takes the provider that is there when it is made.
  const telemetry = endpoint === undefined ? undefined : await watching?.[0].startTelemetry(endpoint, name);
  const metrics = new Metrics();
  const address = command.isLong ? args.address("metrics") : undefined;
  const call: Call = {
    args,
    terminal,
    stopping,
    env: systemEnv,
    metrics,
    open: (options) =>
      openNamespace(args.uri, {
        ...options,
        metrics,
        signal: stopping.signal,
        storeSettings: { durability: durabilityOf(args) },
        onWait: (message) => terminal.note(message),
      }),
  };
  const server = address && (await import("./metrics-server.js"));
  const served = address && (await server?.serveMetrics(metrics, address));
  if (served) process.stderr.write(isJson ? "" : `metrics on ${served.url}\n`);
  using _watch = watching?.[1].watchStore(systemEnv, metrics, terminal);
  try {
    const status = await command.run(call);
    return status ?? stopping.stopped?.exit ?? 0;
  } finally {
    terminal.settle();
    stopping.dispose();
    await served?.close();
    await telemetry?.close();
  }
}

/** The `--durability` of a call. */
export function durabilityOf(args: Call["args"]): "power-loss" | "process-crash" | undefined {
  return args.word("durability", ["power-loss", "process-crash"]);
}
