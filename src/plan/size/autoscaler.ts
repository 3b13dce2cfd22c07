/**
 * How many processes there should be, from what can be seen of the logs. Demand: what the mixture will take, ahead of its phases as far as it takes to start
 * a process; where a callback decides the mixture, what it has taken lately. Supply: the lead of each source log. A number changes only when
 * several looks in a row say so and the last change has had time to work.
 *
 * Pure, and without memory of its own: the same looks give the same advice, so two of them may run, and one that dies and comes back only waits until
 * it has looked often enough again. Advice is a number of processes, not a difference: carrying it out twice changes nothing.
 */
import { BatchWeaveError } from "../../index.js";
import type { FleetPlan } from "./fleet-plan.js";

/** What one look at the logs found. */
export interface FleetLook {
  readonly atMs: number;
  readonly loaders: number;
  readonly constructors: number;
  /** Loaders of sources that have their own, by source. */
  readonly own?: Readonly<Record<string, number>> | undefined;
  /** The training log is complete. */
  readonly isOver?: boolean | undefined;
  /** Steps in the training log. */
  readonly step: number;
  /** Shares of the sources in the newest batches, in the order of the plan; undefined where it is not known. */
  readonly shares?: readonly number[] | undefined;
  /** Steps that the blocks which are ready would feed, by source; undefined: it has no log, its log is full, or nothing is asked of it. */
  readonly leads?: readonly (number | undefined)[] | undefined;
  /** Steps that are in the training log and not yet trained on; undefined where it is not known. */
  readonly trainingLead?: number | undefined;
}

/** When a number changes. */
export interface ScaleSettings {
  /** Looks in a row that must ask for more, and for fewer. Defaults 3, 10. */
  readonly looksUp?: number | undefined;
  readonly looksDown?: number | undefined;
  /** After a change, before the next one up and down. Defaults 30,000 and 300,000. */
  readonly cooldownUpMs?: number | undefined;
  readonly cooldownDownMs?: number | undefined;
  /** From asking for a process to its first block: so far ahead a schedule is looked at. Default 90,000. */
  readonly startMs?: number | undefined;
  /** Fewer processes only where those that are left would be busy for this share of what they can do at most. Default 0.8. */
  readonly downShare?: number | undefined;
  /** A source whose lead is shorter than this asks for more threads than its share alone. Default: half of startMs. */
  readonly leadMsMin?: number | undefined;
  /** Bounds of both numbers. Defaults 1, 10,000. */
  readonly processesMin?: number | undefined;
  readonly processesMax?: number | undefined;
  /** `schedule`: look ahead where the mixture is known. `seen`: go by what batches held. Default "schedule". */
  readonly demand?: "schedule" | "seen" | undefined;
}

/** What an engine should run. */
export interface FleetAdvice {
  readonly loaders: number;
  readonly constructors: number;
  /** Of sources that have loaders of their own, those that were seen to have one. */
  readonly own: Readonly<Record<string, number>>;
  /** Why, for people; never empty. */
  readonly reasons: readonly string[];
}

/** Looks that are kept at most: enough for every rule at its default, bounded whatever the interval. */
export const looksMax = 256;

const busyShareMax = 0.75;

const defaults = {
  looksUp: 3,
  looksDown: 10,
  cooldownUpMs: 30_000,
  cooldownDownMs: 300_000,
  startMs: 90_000,
  downShare: 0.8,
  processesMin: 1,
  processesMax: 10_000,
  demand: "schedule",
} as const;

type Settings = { readonly [K in keyof ScaleSettings]-?: NonNullable<ScaleSettings[K]> };

/** Processes that some role needs, as a fraction, and what says so. */
interface Need {
  readonly processes: number;
  readonly reason: string;
}

/** Which sources a number of processes is for: those of the pipeline's loaders, or one that has its own. */
interface Scope {
  readonly threads: number;
  readonly has: (source: number) => boolean;
}

/** Loader processes that keep up with steps of given shares. */
function loadersFor(
  { sources, stepSeconds }: FleetPlan,
  { threads: each, has }: Scope,
  shares: readonly number[],
): number {
  let [threads, main] = [0, 0];
  Object.values(sources).forEach(({ threadSeconds, mainSeconds }, i) => {
    if (!has(i)) return;
    threads += (shares[i] ?? 0) * threadSeconds;
    main += (shares[i] ?? 0) * mainSeconds;
  });
  return Math.max(threads / Math.max(1, each), main) / stepSeconds / busyShareMax;
}

/** Mean shares of the looks that know them, newest `looks` of them. */
function sharesSeen(history: readonly FleetLook[], looks: number): number[] | undefined {
  const known = history.slice(-looks).flatMap(({ shares }) => (shares ? [shares] : []));
  const [first] = known;
  return first?.map((_, i) => known.reduce((sum, shares) => sum + (shares[i] ?? 0), 0) / known.length);
}

/** What loaders must keep up with from a look on, until a process that is asked for now can help. */
function loaderDemand(plan: FleetPlan, scope: Scope, history: readonly FleetLook[], settings: Settings): Need {
  const look = history.at(-1) as FleetLook;
  const isKnown = settings.demand === "schedule" && !plan.isGuess;
  const seen = isKnown ? undefined : sharesSeen(history, settings.looksUp);
  if (seen) return { processes: loadersFor(plan, scope, seen), reason: "the mixture of the last batches" };
  // Loaders work for steps that come after those in the log; looking ahead begins there.
  const until = look.step + settings.startMs / 1_000 / plan.stepSeconds;
  const now = plan.phases.findLast(({ from }) => from <= look.step) ?? plan.phases[0];
  const coming =
    settings.demand === "schedule" ? plan.phases.filter(({ from }) => from > look.step && from <= until) : [];
  const needs = [now, ...coming].flatMap((phase) =>
    phase
      ? [
          {
            processes: loadersFor(plan, scope, phase.shares),
            reason:
              phase === now
                ? `phase ${phase.name}`
                : `phase ${phase.name}, which begins ${phase.from - look.step} steps from here`,
          },
        ]
      : [],
  );
  return needs.reduce((a, b) => (b.processes > a.processes ? b : a), { processes: 0, reason: "no phase" });
}

/** The same, and more where blocks run short: what is missing to the lead is to be made up while a process starts. */
function loaderNeed(plan: FleetPlan, scope: Scope, history: readonly FleetLook[], settings: Settings): Need {
  const demand = loaderDemand(plan, scope, history, settings);
  const { leads = [] } = history.at(-1) as FleetLook;
  const wanted = settings.leadMsMin / 1_000 / plan.stepSeconds;
  const names = Object.keys(plan.sources);
  let [short, name] = [0, ""];
  leads.forEach((lead, i) => {
    if (!scope.has(i) || lead === undefined || wanted <= 0 || 1 - lead / wanted <= short) return;
    [short, name] = [1 - lead / wanted, names[i] as string];
  });
  if (short === 0) return demand;
  return {
    processes: demand.processes * (1 + 0.5 * Math.min(1, short)),
    reason: `${demand.reason}; ${name} has less ready than ${wanted.toFixed(1)} steps`,
  };
}

function constructorNeed(plan: FleetPlan, history: readonly FleetLook[]): Need {
  const processes = plan.constructors.mainSeconds / plan.stepSeconds / busyShareMax;
  const { trainingLead, leads = [], constructors } = history.at(-1) as FleetLook;
  const isFed = leads.every((lead) => lead === undefined || lead >= 1);
  if (trainingLead === undefined || trainingLead >= 1 || !isFed) return { processes, reason: "batches a second" };
  return {
    processes: Math.max(processes, Math.min(plan.constructors.lanes, constructors + 1)),
    reason: "trainers wait while blocks are ready",
  };
}

/** Processes of one kind: how they are called, and how many a look found. */
interface Role {
  readonly name: string;
  readonly count: (look: FleetLook) => number;
}

/** The number of one role, and why. */
function decideRole(
  role: Role,
  needs: readonly Need[],
  history: readonly FleetLook[],
  nowMs: number,
  most: number,
  s: Settings,
): readonly [number, string] {
  const current = role.count(history.at(-1) as FleetLook);
  const whole = ({ processes }: Need): number => Math.min(most, Math.max(s.processesMin, Math.ceil(processes - 1e-6)));
  const last = needs.at(-1) as Need;
  const hold = (why: string): readonly [number, string] => [current, `${role.name} stay at ${current}: ${why}`];
  if (current === 0) return [whole(last), `${role.name} 0 -> ${whole(last)}: ${last.reason}`];
  if (current < s.processesMin) return [s.processesMin, `${role.name} ${current} -> ${s.processesMin}: never fewer`];
  if (current > most) return [most, `${role.name} ${current} -> ${most}: never more`];
  const changedMs = lastChange(role, history);
  const up = needs.slice(-s.looksUp);
  const isMore = (need: Need): boolean => whole(need) > current;
  if (isMore(last)) {
    if (up.length < s.looksUp || !up.every(isMore))
      return hold(`more are asked for, but not for ${s.looksUp} looks in a row`);
    if (nowMs - changedMs < s.cooldownUpMs) return hold("more are asked for, but the last change was just now");
    const target = Math.min(...up.map(whole));
    return [target, `${role.name} ${current} -> ${target}: ${last.reason}`];
  }
  // With room to spare, so that what made it go down is not soon too much for what is left.
  const spared = ({ processes }: Need): number => whole({ processes: processes / s.downShare, reason: "" });
  const down = needs.slice(-s.looksDown);
  const isFewer = (need: Need): boolean => spared(need) < current;
  if (!isFewer(last)) return hold(last.reason);
  if (down.length < s.looksDown || !down.every(isFewer))
    return hold(`fewer would do, but not for ${s.looksDown} looks in a row`);
  if (nowMs - changedMs < s.cooldownDownMs) return hold("fewer would do, but the last change was just now");
  // Half of them at a time: a wrong guess is then mended in time.
  const target = Math.max(Math.ceil(current / 2), ...down.map(spared));
  return [target, `${role.name} ${current} -> ${target}: ${last.reason} needs no more`];
}

/** When the number of a role was last seen to change; long ago where no look shows it. */
function lastChange(role: Role, history: readonly FleetLook[]): number {
  for (let i = history.length - 1; i > 0; i--)
    if (role.count(history[i] as FleetLook) !== role.count(history[i - 1] as FleetLook))
      return history[i]?.atMs as number;
  return Number.NEGATIVE_INFINITY;
}

/** What an engine should run. `history`: looks in the order of time, the newest last; `nowMs`: by the same clock. */
export function decideFleet(
  plan: FleetPlan,
  history: readonly FleetLook[],
  nowMs: number,
  settings: ScaleSettings = {},
): FleetAdvice {
  const given = Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined));
  const merged = { ...defaults, ...given } as Omit<Settings, "leadMsMin"> & ScaleSettings;
  const s: Settings = { ...merged, leadMsMin: settings.leadMsMin ?? merged.startMs / 2 };
  if (history.length === 0)
    throw new BatchWeaveError("INVALID_ARGUMENT", "A decision needs at least one look at the logs.");
  const looks = history.slice(-looksMax);
  const recent = Math.max(s.looksUp, s.looksDown);
  const until = Array.from({ length: Math.min(recent, looks.length) }, (_, i) =>
    looks.slice(0, looks.length - Math.min(recent, looks.length) + i + 1),
  );
  const sources = Object.entries(plan.sources);
  const shared: Scope = { threads: plan.loaders.threads, has: (i) => sources[i]?.[1].own === undefined };
  const [loaders, why] = decideRole(
    { name: "loaders", count: (look) => look.loaders },
    until.map((seen) => loaderNeed(plan, shared, seen, s)),
    looks,
    nowMs,
    s.processesMax,
    s,
  );
  const [constructors, whyToo] = decideRole(
    { name: "constructors", count: (look) => look.constructors },
    until.map((seen) => constructorNeed(plan, seen)),
    looks,
    nowMs,
    Math.min(s.processesMax, plan.constructors.lanes),
    s,
  );
  const own: Record<string, number> = {};
  const reasons = [why, whyToo];
  sources.forEach(([name, source], at) => {
    const count = (look: FleetLook): number => look.own?.[name] ?? 0;
    // None was seen: they have just been started, or are not ours.
    if (!source.own || count(looks.at(-1) as FleetLook) === 0) return;
    const scope: Scope = { threads: source.own.threads, has: (i) => i === at };
    const needs = until.map((seen) => loaderNeed(plan, scope, seen, s));
    const most = Math.min(s.processesMax, source.lanes);
    const [target, reason] = decideRole({ name: `loaders of ${name}`, count }, needs, looks, nowMs, most, s);
    own[name] = target;
    reasons.push(reason);
  });
  return { loaders, constructors, own, reasons };
}
