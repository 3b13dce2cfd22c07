/** `batchweave info`: the state of a namespace, once or again and again. */
import type { Env, NamespaceInfo } from "../../index.js";
import type { Call, Command } from "../command.js";
import { counted, formatBytes, formatMs, stepsText, table } from "../terminal.js";
import { orderText } from "./create.js";

const producersShownMax = 20;

async function run({ args, terminal, open, stopping, env }: Call): Promise<undefined> {
  const intervalMs = args.watchIntervalMs() ?? 1_000;
  const ns = await open();
  const { signal } = stopping;
  if (!args.flag("watch")) {
    const info = await ns.info({ detail: true, signal });
    const bytes = terminal.isJson ? 0 : await ns.aboutBytes({ signal });
    terminal.result(info, () => describe(info, env, bytes).join("\n"));
    return undefined;
  }
  let before = { version: -1, end: 0, atMs: env.monotonic() };
  while (!signal.aborted) {
    const info = await ns.info({ detail: true, signal }).catch(ifStopped(signal));
    if (!info) break;
    const { end } = info.steps;
    // It sets the metrics of the log.
    const bytes = (await ns.vitals({ signal }).catch(ifStopped(signal)))?.aboutBytes ?? 0;
    const atMs = env.monotonic();
    const perSecond = before.version < 0 ? 0 : (1_000 * (end - before.end)) / Math.max(1, atMs - before.atMs);
    const summary = `version ${info.version}  steps ${stepsText(info.steps)}  ${perSecond.toFixed(1)} steps/s${info.closed ? "  closed" : ""}`;
    if (info.version !== before.version || terminal.isLive) {
      if (terminal.isJson) terminal.result(info, "");
      else if (!terminal.isLive) terminal.result({}, summary);
      else terminal.live([...describe(info, env, bytes), "", `${perSecond.toFixed(1)} steps/s; Ctrl-C ends`], summary);
    }
    before = { version: info.version, end, atMs };
    if (info.closed) break;
    await env.sleep(intervalMs, signal).catch(ifStopped(signal));
  }
  return undefined;
}

/** Swallows the reason of an abort, nothing else. */
function ifStopped(signal: AbortSignal): (error: unknown) => undefined {
  return (error) => {
    if (!signal.aborted) throw error;
  };
}

function describe(info: NamespaceInfo, env: Env, bytes: number): string[] {
  const { trim, end } = info.steps;
  const { rows, chunks } = info.grid;
  const age = formatMs(Math.max(0, env.now() - info.lastCommit.timeMs));
  const count = end - trim;
  const lines = [
    info.uri,
    `  uuid      ${info.uuid}`,
    `  grid      ${counted(rows, "row")} x ${counted(chunks, "chunk")}, order ${orderText(info.order)}`,
    `  steps     ${stepsText(info.steps)}${count === 0 ? `, the next is ${end}` : ""} (${counted(count, "batch")}, ${counted(count * rows, "row")}${bytes > 0 ? `, about ${formatBytes(bytes)}` : ""}), ${info.closed ? "closed" : "open"}`,
    `  version   ${info.version}, ${info.version === 0 ? "nothing committed yet" : `committed ${age} ago by ${info.lastCommit.by}`}`,
  ];
  if (info.maxLag !== undefined)
    lines.push(`  max lag   ${counted(info.maxLag, "step")} ahead of the newest checkpoint`);
  if (info.boundary > 0 || trim > 0) lines.push(`  reclaim   trim ${trim}, boundary ${info.boundary}`);
  if (info.warning !== undefined) lines.push(`  warning   ${info.warning}`);
  for (const { uri, steps } of info.origins) lines.push(`  fork of   ${uri} (${counted(steps, "step")})`);
  for (const { uri, from, to } of info.forks) lines.push(`  forked    ${uri} holds steps ${from} to ${to - 1}`);
  if (info.waiting) {
    const { batches, missingStep, lane } = info.waiting;
    lines.push(
      `  waiting   ${counted(batches, "batch")} for step ${missingStep}, which is ${lane}'s: is its producer alive?`,
    );
  }
  return [...lines, ...producerLines(info, env), ...checkpointLines(info)];
}

function producerLines({ producers, silentTables }: NamespaceInfo, env: Env): string[] {
  if (producers.length === 0) return [];
  const shown = producers.slice(0, producersShownMax).map(({ id, epoch, seq, pending, version, lastCommit }) => {
    const age = lastCommit ? `${formatMs(Math.max(0, env.now() - lastCommit.timeMs))} ago` : "reclaimed";
    const carrier = lastCommit?.kind === "carrier" && lastCommit.by !== id ? `carried by ${lastCommit.by}` : "";
    return [`  ${id}`, epoch, seq, pending ?? 0, version, age, carrier];
  });
  const header = ["  producer", "epoch", "batches", "pending", "version", "last commit", ""];
  const lines = ["", ...table(header, shown).split("\n")];
  if (producers.length > shown.length) lines.push(`  and ${producers.length - shown.length} more (--json lists all)`);
  if (silentTables > 0) lines.push(`  and those long silent, in ${silentTables} sealed tables`);
  return lines;
}

function checkpointLines({ checkpoints }: NamespaceInfo): string[] {
  if (checkpoints.length === 0) return [];
  const rows = checkpoints.map((c) => [`  ${c.group}`, c.id, c.iteration, c.step, c.row]);
  return ["", ...table(["  group", "checkpoint", "iteration", "step", "row"], rows).split("\n")];
}

export const command: Command = {
  usage: "URI [--watch] [--interval SECONDS]",
  about:
    "Shows grid, steps, producers and checkpoints of a namespace at its head. Of a producer: its epoch (how often the id was opened),\nits batches in the log (seq in JSON), pending (uploaded, their intents wait for a commit), version and age of its last commit, and\nwho carried that if not itself. --watch goes on until the log is closed.",
  positionals: ["URI"],
  options: {
    watch: { help: "Look again and again; with --json one line for each new version." },
    interval: { value: "SECONDS", help: "With --watch: time between two looks (default 1)." },
  },
  examples: ["batchweave info file:///data/run", "batchweave info file:///data/run --watch --metrics 9464"],
  isLong: true,
  run,
};
