/** One look at the logs of a fleet, for the autoscaler. Reads only; hints where there are some, never more than a few requests a log. */
import {
  isBatchWeaveError,
  type Namespace,
  type NamespaceInfo,
  type NamespaceOptions,
  openNamespace,
} from "../../index.js";
import { type Exchange, exchangeAt, sourceLogUri } from "../exchange/exchange.js";
import type { Pipeline } from "../run/pipeline.js";
import type { FleetLook } from "./autoscaler.js";
import type { FleetPlan } from "./fleet-plan.js";

/** What is looked at. */
interface FleetLogs {
  readonly training: Namespace;
  /** In the order of the plan; undefined: not there, or not yet. */
  readonly sources: readonly (Namespace | undefined)[];
}

/** Numbers that the scheduler of the processes knows better than the hints beside the log. */
interface KnownProcesses {
  readonly loaders?: number | undefined;
  readonly constructors?: number | undefined;
}

const logsInFlightMax = 16;
/** Newest batches whose mixture is looked at. */
const batchesSeenMax = 4;

async function inGroups<T, R>(items: readonly T[], one: (item: T, i: number) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (let at = 0; at < items.length; at += logsInFlightMax)
    results.push(...(await Promise.all(items.slice(at, at + logsInFlightMax).map((item, i) => one(item, at + i)))));
  return results;
}

/** Opens a log that may not be there yet. */
async function openIfThere(uri: string, options: NamespaceOptions): Promise<Namespace | undefined> {
  try {
    return await openNamespace(uri, options);
  } catch (error) {
    if (isBatchWeaveError(error, "NO_NAMESPACE")) return undefined;
    throw error;
  }
}

/**
 * The logs of a pipeline. Source logs may come later than the training log, so every look tries those that were not there, a few at a time.
 */
export async function openFleetLogs(
  { spec }: Pipeline,
  plan: FleetPlan,
  uri: string | undefined,
  options: NamespaceOptions,
): Promise<{ look(): Promise<FleetLogs> }> {
  const target = uri ?? spec.namespace.uri;
  const training = await openNamespace(target, options);
  const names = Object.keys(plan.sources);
  const sources: (Namespace | undefined)[] = names.map(() => undefined);
  const exchange = exchangeAt(spec, target);
  return {
    async look() {
      const missing = exchange ? names.flatMap((name, i) => (sources[i] ? [] : [{ name, i }])) : [];
      await inGroups(missing, async ({ name, i }) => {
        sources[i] = await openIfThere(sourceLogUri(exchange as Exchange, { name, settings: {} }), options);
      });
      return { training, sources };
    },
  };
}

/** Looks once. */
export async function lookAtFleet(
  plan: FleetPlan,
  { training, sources }: FleetLogs,
  atMs: number,
  known: KnownProcesses = {},
  signal?: AbortSignal | undefined,
): Promise<FleetLook> {
  const [info, pulses, infos] = await Promise.all([
    training.info({ signal }),
    training.pulses({ signal }),
    inGroups(sources, async (ns) => await ns?.info({ signal })),
  ]);
  const living = pulses.filter(({ isLate, isDead }) => !isLate && !isDead);
  const alive = (role: string, source?: string): number =>
    living.filter((pulse) => pulse.role === role && pulse.facts["source"] === source).length;
  const owned = Object.entries(plan.sources).filter(([, { own }]) => own);
  const { end, trim } = info.steps;
  const shares = await sharesOf(Object.keys(plan.sources), training, Math.max(trim, end - batchesSeenMax), end, signal);
  const phase = plan.phases.findLast(({ from }) => from <= end);
  const asked = plan.isGuess ? shares : phase?.shares;
  const blocks = Object.values(plan.sources).map((source) => source.blocks);
  return {
    atMs,
    loaders: known.loaders ?? alive("loader"),
    constructors: known.constructors ?? alive("constructor"),
    own: Object.fromEntries(owned.map(([name]) => [name, alive("loader", name)])),
    isOver: info.closed,
    step: end,
    shares,
    leads: infos.map((found, i) => leadOf(found, (asked?.[i] ?? 0) * (blocks[i] ?? 0))),
  };
}

/** A log that is as full as this share of its bound asks for nothing. */
const fullShare = 0.75;

/** Steps that the blocks of a source log feed which no constructor has taken. */
function leadOf(info: NamespaceInfo | undefined, blocksPerStep: number): number | undefined {
  // A log that has ended cannot get any more, and no constructor waits for it.
  if (!info || info.closed || blocksPerStep === 0) return undefined;
  const newest = new Map<string, number>();
  for (const { group, step } of info.checkpoints) newest.set(group, Math.max(newest.get(group) ?? 0, step));
  const taken = newest.size === 0 ? info.steps.trim : Math.min(...newest.values());
  const ready = Math.max(0, info.steps.end - taken);
  return ready >= fullShare * (info.maxLag ?? Number.POSITIVE_INFINITY) ? undefined : ready / blocksPerStep;
}

/** Shares of the tokens of the newest batches; undefined while there are none. */
async function sharesOf(
  names: readonly string[],
  ns: Namespace,
  from: number,
  end: number,
  signal: AbortSignal | undefined,
): Promise<readonly number[] | undefined> {
  const counts = new Map<string, number>();
  for (let step = from; step < end; step++)
    for (const { source, tokens } of (await ns.samples(step, { signal })) ?? [])
      counts.set(source, (counts.get(source) ?? 0) + tokens);
  const sum = names.reduce((total, name) => total + (counts.get(name) ?? 0), 0);
  return sum === 0 ? undefined : names.map((name) => (counts.get(name) ?? 0) / sum);
}
