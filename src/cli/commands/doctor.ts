/** `batchweave doctor`: looks a namespace over and says what to do. Leaves nothing changed. */
import {
  isBatchWeaveError,
  type Namespace,
  type NamespaceOptions,
  openNamespace,
  openStore,
  type ReclaimReport,
  type Vitals,
} from "../../index.js";
import type { Call, Command } from "../command.js";
import { durabilityOf } from "../run.js";
import { counted, formatBytes, formatMs } from "../terminal.js";
import { tryWrite } from "../write-trial.js";

/** What one check found, and what to do about it. */
interface Finding {
  readonly check: string;
  readonly level: "ok" | "warning" | "problem";
  readonly what: string;
  readonly todo?: string;
}

const slowLookMs = 3_000;
const clockMsMax = 5_000;
const quietMsMax = 60_000;
const oldCheckpointMs = 24 * 3_600_000;
const orphanBytesMax = 1_000_000_000;
const laggingMs = 3_600_000;
const laggingVersions = 1_000;
/** Forks that are looked for. */
const forksMax = 32;

async function run(call: Call): Promise<number | undefined> {
  const { args, terminal, env, open, stopping } = call;
  const { signal } = stopping;
  const ns = await open();
  const vitals = await ns.vitals({ signal });
  const dry = await ns.reclaim({ dryRun: true }, { signal }).catch((error: unknown) => {
    if (!isBatchWeaveError(error)) throw error;
    return error.message;
  });
  const store = await openStore(args.uri, { durability: durabilityOf(args) }, env);
  const findings: Finding[] = [
    storeOf(vitals),
    { check: "write", ...(await tryWrite(store, env, { signal })) },
    ...clocksOf(vitals),
    ...(await makersOf(call, ns, vitals)),
    ...retentionOf(vitals),
    ...garbageOf(dry, ns.uri),
    ...(await forksOf(call, ns, vitals)),
    ...processesOf(vitals),
  ];
  const worst = findings.some(({ level }) => level === "problem");
  const marks = { ok: "  ok      ", warning: "  warning ", problem: "  PROBLEM " };
  terminal.result({ uri: ns.uri, ok: !worst, findings }, () =>
    [
      ns.uri,
      ...findings.flatMap(({ check, level, what, todo }) => [
        `${marks[level]} ${check}: ${what}`,
        ...(todo === undefined ? [] : [`            -> ${todo}`]),
      ]),
      "Checksums and references are proven by `batchweave verify`, the store's own rules by `batchweave probe`.",
    ].join("\n"),
  );
  if (args.flag("strict") && findings.some(({ level }) => level !== "ok")) return 1;
  return worst ? 1 : undefined;
}

function storeOf({ tookMs, info }: Vitals): Finding {
  const what = `answers; a look at the log took ${formatMs(tookMs)} (version ${info.version})`;
  if (tookMs < slowLookMs) return { check: "store", level: "ok", what };
  return {
    check: "store",
    level: "warning",
    what,
    todo: "it is slow: run from the store's region, or look at its own metrics",
  };
}

/** Clocks decide nothing here, but ages and graces are told by them. */
function clocksOf({ info, pulses, atMs }: Vitals): Finding[] {
  const ahead = [
    { who: info.lastCommit.by, ms: info.lastCommit.timeMs - atMs },
    ...pulses.map(({ role, name, host, atMs: told }) => ({
      who: `${role} ${name} on ${host ?? "?"}`,
      ms: told - atMs,
    })),
  ].filter(({ ms }) => ms > clockMsMax);
  const [first] = ahead.sort((a, b) => b.ms - a.ms);
  if (!first) return [{ check: "clocks", level: "ok", what: "nothing comes from the future" }];
  return [
    {
      check: "clocks",
      level: "warning",
      what: `${first.who} is ${formatMs(first.ms)} ahead of this machine`,
      todo: "synchronise clocks (chrony, ntp): nothing is lost by it, but ages, graces and late processes are misjudged",
    },
  ];
}

/** Those who make batches. A source log is made for as long as its training log needs it, and then left as it is. */
async function makersOf(call: Call, ns: Namespace, vitals: Vitals): Promise<Finding[]> {
  if (vitals.info.closed) return [{ check: "log", level: "ok", what: `closed at step ${vitals.info.steps.end}` }];
  const [, training, source] = /^(.+)\.sources\/([^/?#]+)\/?$/.exec(ns.uri) ?? [];
  if (training === undefined) return [...producersOf(vitals), ...lagOf(vitals)];
  const log = await openNamespace(training, openingOf(call)).catch((error: unknown) => {
    if (!isBatchWeaveError(error)) throw error;
    return undefined;
  });
  const closed = log && (await log.info({ signal: call.stopping.signal })).closed;
  if (closed)
    return [
      {
        check: "log",
        level: "ok",
        what: `the log of source ${source}; ${training} is complete, and needs no more of it. What is left may be deleted: batchweave delete ${ns.uri}`,
      },
    ];
  const { info, groups } = vitals;
  const lag = Math.max(0, ...groups.map(({ lagSteps }) => lagSteps));
  if (info.maxLag !== undefined && lag >= info.maxLag)
    return [
      {
        check: "log",
        level: "ok",
        what: `the log of source ${source} is full (${counted(lag, "block")} ahead): loaders wait for constructors, as they should. Look at ${training}`,
      },
    ];
  return producersOf(vitals, `loaders of source ${source} (batchweave load)`);
}

function producersOf({ info, producers, commitAgeMs }: Vitals, makers = "them"): Finding[] {
  const found: Finding[] = [];
  const { waiting } = info;
  if (waiting) {
    const holder = producers.find(({ id }) => id === waiting.lane);
    const isStuck = holder === undefined || (holder.commitAgeMs ?? 0) > quietMsMax;
    found.push({
      check: "lanes",
      level: isStuck ? "problem" : "ok",
      what: `step ${waiting.missingStep} of ${waiting.lane} is missing and keeps ${counted(waiting.batches, "batch")} back; ${holder ? `its holder committed last ${holder.commitAgeMs === undefined ? "long" : formatMs(holder.commitAgeMs)} ago` : "no process has ever held that lane"}`,
      ...(isStuck
        ? { todo: `start a process that holds ${waiting.lane}; what it had made is made again, bit for bit` }
        : {}),
    });
  }
  const quiet = producers.filter((one) => !one.hasLeft && (one.commitAgeMs ?? Number.POSITIVE_INFINITY) > quietMsMax);
  const names = quiet.slice(0, 5).map(({ id }) => id);
  if (producers.length === 0)
    found.push({ check: "producers", level: "warning", what: "none has opened this log", todo: "start one" });
  else if (quiet.length > 0 && commitAgeMs > quietMsMax)
    found.push({
      check: "producers",
      level: "problem",
      what: `nothing was committed for ${formatMs(commitAgeMs)}; open and quiet: ${names.join(", ")}${quiet.length > 5 ? " and more" : ""}`,
      todo: `start ${makers} again, or end the log with \`batchweave close\` if it is complete`,
    });
  else if (quiet.length > 0)
    found.push({
      check: "producers",
      level: "warning",
      what: `${quiet.length} of ${producers.length} have been quiet for more than a minute without having closed: ${names.join(", ")}`,
      todo: "if they are gone for good nothing need be done in commit order; every lane must be held by a process",
    });
  else found.push({ check: "producers", level: "ok", what: `${producers.length}, all at work or closed` });
  return found;
}

function retentionOf({ info, groups, aboutBytes }: Vitals): Finding[] {
  const found: Finding[] = [];
  const count = info.steps.end - info.steps.trim;
  if (groups.length === 0 && count > 0)
    found.push({
      check: "retention",
      level: "warning",
      what: `no checkpoint is registered, so all of ${counted(count, "step")} (about ${formatBytes(aboutBytes)}) are kept`,
      todo: "register checkpoints (consumer.checkpoint, keepLast) if storage is to follow training",
    });
  for (const { group, checkpoint, lagSteps, ageMs } of groups) {
    const isOld = (ageMs ?? Number.POSITIVE_INFINITY) > oldCheckpointMs && !info.closed;
    found.push({
      check: "retention",
      level: isOld ? "warning" : "ok",
      what: `group ${group}: newest checkpoint ${checkpoint} is ${counted(lagSteps, "step")} behind the end, ${ageMs === undefined ? "older than what reclaim left" : `${formatMs(ageMs)} old`}`,
      ...(isOld
        ? {
            todo: `if that run is over, release it: batchweave checkpoint ${info.uri} release ${checkpoint} --group ${group}`,
          }
        : {}),
    });
  }
  return found;
}

function lagOf({ info, groups }: Vitals): Finding[] {
  const count = info.steps.end - info.steps.trim;
  const lag = Math.max(...groups.map(({ lagSteps }) => lagSteps), groups.length === 0 ? count : 0);
  if (info.maxLag === undefined || lag < 0.8 * info.maxLag) return [];
  return [
    {
      check: "lag",
      level: lag >= info.maxLag ? "problem" : "warning",
      what: `${lag} of ${counted(info.maxLag, "step")} that producers may be ahead`,
      todo: "register a checkpoint, release a dead group, or raise `batchweave limit --max-lag`",
    },
  ];
}

function garbageOf(dry: ReclaimReport | string, uri: string): Finding[] {
  if (typeof dry === "string")
    return [{ check: "reclaim", level: "problem", what: dry, todo: "run `batchweave verify`" }];
  const orphans = (dry.dead ?? []).filter(({ reason }) => reason === "orphan");
  const bytes = dry.batches.bytes + dry.uploads.bytes + dry.index.bytes + dry.manifests.bytes;
  const isMuch = bytes > orphanBytesMax;
  const isBehind = dry.lagMs > laggingMs && dry.lagVersions > laggingVersions;
  return [
    {
      check: "reclaim",
      level: isMuch || isBehind ? "warning" : "ok",
      what: `${formatBytes(bytes)} could be deleted now, of it ${formatBytes(orphans.reduce((sum, one) => sum + one.size, 0))} in ${counted(orphans.length, "upload")} that never came into the log; the boundary is ${counted(dry.lagVersions, "version")} and ${formatMs(dry.lagMs)} behind`,
      ...(isMuch || isBehind ? { todo: `run batchweave reclaim ${uri} --watch somewhere, or let rank 0 reclaim` } : {}),
    },
  ];
}

/** How other namespaces are opened. */
function openingOf({ args, stopping }: Call): NamespaceOptions {
  return { signal: stopping.signal, storeSettings: { durability: durabilityOf(args) } };
}

async function forksOf(call: Call, ns: Namespace, { info }: Vitals): Promise<Finding[]> {
  const found: Finding[] = [];
  for (const { fork, uri, from, to } of info.forks.slice(0, forksMax)) {
    const state = await openNamespace(uri, openingOf(call)).then(
      (other) => (other.uuid === fork ? "there" : "another"),
      (error: unknown) => {
        if (isBatchWeaveError(error, "NO_NAMESPACE") || isBatchWeaveError(error, "DELETED")) return "gone" as const;
        if (isBatchWeaveError(error)) return "unknown" as const;
        throw error;
      },
    );
    const what = `${uri} holds steps ${from} to ${to - 1}`;
    if (state === "there") found.push({ check: "fork", level: "ok", what });
    else if (state === "unknown")
      found.push({
        check: "fork",
        level: "warning",
        what: `${what}, and cannot be opened from here`,
        todo: "look from where it can",
      });
    else
      found.push({
        check: "fork",
        level: "warning",
        what: `${what}, but is not there any more`,
        todo: `give its batches free: batchweave fork ${ns.uri} --release ${fork}`,
      });
  }
  return found;
}

function processesOf({ pulses, atMs }: Vitals): Finding[] {
  if (pulses.length === 0) return [{ check: "processes", level: "ok", what: "none leaves pulses (they are optional)" }];
  const late = pulses.filter(({ isLate, isDead }) => isLate || isDead);
  if (late.length === 0)
    return [{ check: "processes", level: "ok", what: `${pulses.length} leave pulses, none is late` }];
  const [first] = late as [(typeof late)[0]];
  return [
    {
      check: "processes",
      level: "warning",
      what: `${late.length} of ${pulses.length} are gone or have told nothing for long, such as ${first.role} ${first.name} on ${first.host ?? "?"}, ${formatMs(Math.max(0, atMs - first.atMs))} ago`,
      todo: "they died or cannot reach the store; look at their logs",
    },
  ];
}

export const command: Command = {
  usage: "URI [--strict]",
  about:
    "Looks a namespace over and says what to do: the store, whether this user can write there, clocks, lanes that stand still, producers that are gone,\nretention and lag, what could be deleted, forks that are gone, processes that are late. It writes one small object to see whether it can,\nremoves it, and changes nothing else. Exit status 1 when something is a problem.",
  positionals: ["URI"],
  options: { strict: { help: "Exit status 1 for warnings too." } },
  examples: ["batchweave doctor s3://train/runs/7b", "batchweave doctor file:///data/run --json --strict"],
  run,
};
