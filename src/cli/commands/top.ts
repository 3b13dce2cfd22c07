/** `batchweave top`: a log and the processes on it, live. */
import type { Namespace, Vitals } from "../../index.js";
import type { Call, Command } from "../command.js";
import { type Diagnosis, diagnose } from "../diagnosis.js";
import { counted, formatBytes, formatMs, stepsText, table } from "../terminal.js";

const drawMs = 500;
/** Rates are those of about this time. */
const spanMs = 20_000;
const rowsMax = 8;

async function run({ args, terminal, open, stopping, env }: Call): Promise<undefined> {
  const intervalMs = args.watchIntervalMs() ?? 1_000;
  const ns = await open();
  const { signal } = stopping;
  const looks: Vitals[] = [];
  let failure: string | undefined;
  const looking = async (): Promise<void> => {
    while (!signal.aborted) {
      try {
        looks.push(await ns.vitals({ signal }));
        failure = undefined;
        while (looks.length > 2 && (looks[1] as Vitals).atMs < (looks.at(-1) as Vitals).atMs - spanMs) looks.shift();
      } catch (error) {
        // What it saw last stays on the screen, and is said to be old.
        failure = error instanceof Error ? error.message : String(error);
      }
      await env.sleep(intervalMs, signal).catch(() => {});
    }
  };
  const looked = looking();
  let drawn = 0;
  while (!signal.aborted) {
    const now = looks.at(-1);
    // One look has no rates.
    const isNew = now !== undefined && now.atMs !== drawn && (looks.length > 1 || now.info.closed);
    const awayMs = ns.storeUnreachableMs;
    if (now && (isNew || (terminal.isLive && !args.flag("once")) || (awayMs > 2_000 && !terminal.isJson))) {
      drawn = now.atMs;
      const found = diagnose(now, looks.length > 1 ? looks[0] : undefined, awayMs >= 2_000 ? awayMs : 0);
      if (terminal.isJson) terminal.result({ ...found, vitals: now }, "");
      else {
        const staleMs = env.now() - now.atMs;
        const lines = screen(ns, now, found, staleMs > 3 * intervalMs + 2_000 ? staleMs : 0, failure);
        // Without a terminal it is a result like any other.
        if (terminal.isLive) terminal.live(lines, "");
        else
          terminal.result(
            {},
            args.flag("once") || now.info.closed ? lines.join("\n") : `${summary(now, found)}  ${found.sentence}`,
          );
      }
      if (args.flag("once") || now.info.closed) break;
    }
    await env.sleep(terminal.isLive ? drawMs : Math.max(drawMs, intervalMs), signal).catch(() => {});
  }
  if (args.flag("once") || looks.at(-1)?.info.closed) stopping.end();
  await looked;
  return undefined;
}

function summary({ info }: Vitals, { stepsPerSecond, etaMs }: Diagnosis): string {
  const eta = etaMs === undefined ? "" : `  done in ${formatMs(etaMs)}`;
  return `steps ${stepsText(info.steps)}  ${stepsPerSecond.toFixed(1)} steps/s${eta}${info.closed ? "  closed" : ""}`;
}

function screen(
  ns: Namespace,
  now: Vitals,
  found: Diagnosis,
  staleMs: number,
  failure: string | undefined,
): readonly string[] {
  const lines = [
    `${ns.uri}  ${summary(now, found)}`,
    `about ${formatBytes(now.aboutBytes)}, version ${now.info.version}, committed ${formatMs(now.commitAgeMs)} ago; a look took ${formatMs(now.tookMs)}`,
    "",
    `>> ${found.sentence}`,
    ...found.warnings.map((warning) => ` ! ${warning}`),
  ];
  if (staleMs > 0)
    lines.push(` ! this was seen ${formatMs(staleMs)} ago${failure === undefined ? "" : `: ${failure}`}`);
  const percent = (share: number): string => `${Math.round(100 * share)} %`;
  add(
    lines,
    ["source", "samples/s", "waited for", "read", "transform", "ready", "left out"],
    found.sources.map((s) => [
      s.source,
      s.perSecond.toFixed(1),
      percent(s.waitShare),
      perSample(s.readMs, s.samples),
      perSample(s.transformMs, s.samples),
      formatBytes(s.buffered),
      s.faults,
    ]),
  );
  const order = [...now.producers].sort(
    (a, b) => Number(found.quiet.includes(b.id)) - Number(found.quiet.includes(a.id)) || (a.id < b.id ? -1 : 1),
  );
  add(
    lines,
    ["producer", "batches", "pending", "last commit", ""],
    order.map(({ id, seq, pending, commitAgeMs, hasLeft }) => [
      id,
      seq,
      pending,
      commitAgeMs === undefined ? "long ago" : `${formatMs(commitAgeMs)} ago`,
      hasLeft ? "closed" : found.quiet.includes(id) ? "QUIET" : "",
    ]),
  );
  const others = now.pulses
    .filter(({ role }) => role !== "rank")
    .sort((a, b) => Number(b.isDead) - Number(a.isDead) || Number(b.isLate) - Number(a.isLate));
  add(
    lines,
    ["process", "", "host", "told", ""],
    others.map(({ role, name, host = "", atMs, isLate, isDead }) => [
      role,
      name,
      host,
      `${formatMs(Math.max(0, now.atMs - atMs))} ago`,
      isDead ? "DEAD" : isLate ? "LATE" : "",
    ]),
  );
  add(
    lines,
    ["rank", "step", "ready", "waited", "waits now", "told", ""],
    found.ranks.map((r) => [
      r.name,
      r.step,
      counted(r.lagSteps, "step"),
      percent(r.waitShare),
      r.waitingMs > 1_000 ? formatMs(r.waitingMs) : "",
      `${formatMs(r.ageMs)} ago`,
      r.isDead ? "DEAD" : r.isLate ? "LATE" : "",
    ]),
  );
  add(
    lines,
    ["group", "checkpoint", "step", "behind", "age"],
    now.groups.map(({ group, checkpoint, step, lagSteps, ageMs }) => [
      group,
      checkpoint,
      step,
      counted(lagSteps, "step"),
      ageMs === undefined ? "?" : formatMs(ageMs),
    ]),
  );
  return lines;
}

function perSample(ms: number, samples: number): string {
  return samples === 0 ? "" : `${(ms / samples).toFixed(1)} ms`;
}

function add(lines: string[], header: readonly string[], rows: readonly (readonly (string | number)[])[]): void {
  if (rows.length === 0) return;
  lines.push("", ...table(header, rows.slice(0, rowsMax)).split("\n"));
  if (rows.length > rowsMax) lines.push(`and ${rows.length - rowsMax} more`);
}

export const command: Command = {
  usage: "URI [--interval SECONDS] [--once]",
  about:
    "Shows a log and the processes on it, live: what holds it up in a sentence, then sources, producers, other processes, ranks and training runs, the\nones in trouble first. What was committed comes from the log itself; sources and ranks from the pulses that processes leave beside it,\nwhich are seconds to minutes old, depending on how many there are. It changes nothing.",
  positionals: ["URI"],
  options: {
    interval: { value: "SECONDS", help: "Time between two looks (default 1)." },
    once: { help: "Look once." },
  },
  examples: ["batchweave top file:///data/run", "batchweave top s3://train/runs/7b --once --json"],
  isLong: true,
  run,
};
