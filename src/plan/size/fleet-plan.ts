/**
 * From costs and demand to a fleet: how many threads and lanes each source needs, how many processes with what memory, what the store sees, and which limit
 * binds. The steps are those of MegaScale-Data's source auto-partitioning (costs P and M, clusters, levels, limits per source and per process); what
 * differs: threads belong to a process, not to a source, so cheap sources share them, and demand counts as well as cost. Pure.
 */
import { BatchWeaveError } from "../../index.js";
import type { ConstructProfile } from "./construct-profile.js";
import { clusterCosts, clustersDefault } from "./cost-cluster.js";
import type { DemandPhase } from "./mix-demand.js";
import { type PartLoad, partition } from "./partition.js";
import type { SourceProfile } from "./source-profile.js";

/** What a source gets. */
export interface SourcePlan {
  readonly cluster: number;
  /** Samples (documents) a second in the phase that takes most of it. */
  readonly samplesPerSecond: number;
  /** The phase that is. */
  readonly phase: string;
  /** P, M. */
  readonly loaderMs: number;
  readonly readMs: number;
  readonly readyBytes: number;
  /** Threads that it keeps busy in that phase, with room to spare. */
  readonly threads: number;
  /** Lanes of its source log, which processes hold; those that it should have, where the pipeline has no logs yet. */
  readonly lanes: number;
  /** So many could read it side by side, each byte once. */
  readonly lanesMax: number;
  /** Of a step that took nothing but this source: seconds of transform threads and of main threads, and blocks. */
  readonly threadSeconds: number;
  readonly mainSeconds: number;
  readonly blocks: number;
  /** Processes of its own that load it, threads (or workers) of each, and memory; 0 processes: they are not ours to run. Undefined: the pipeline's loaders do. */
  readonly own?: { readonly processes: number; readonly threads: number; readonly memoryBytes: number } | undefined;
}

/** A limit, as the step time it allows. */
export interface StepLimit {
  readonly what: string;
  readonly stepSeconds: number;
  /** What would move it. */
  readonly remedy: string;
}

/** Requests and bytes of one step. */
interface StoreCost {
  readonly requests: number;
  readonly bytes: number;
}

/** A sized fleet; the content of a plan file. JSON-safe. */
export interface FleetPlan {
  readonly v: 1;
  readonly kind: "batchweave-fleet-plan";
  readonly stepSeconds: number;
  /** Whether what there is feeds that step time. */
  readonly feeds: boolean;
  readonly sources: Readonly<Record<string, SourcePlan>>;
  readonly clusters: readonly {
    readonly sources: number;
    readonly meanMs: number;
    /** Its mean cost as a multiple of the cheapest cluster's: the threads a sample of it takes against one of those. */
    readonly level: number;
    readonly threads: number;
  }[];
  readonly loaders: {
    readonly processes: number;
    readonly threads: number;
    /** Cores that all loaders keep busy in the phase that needs most. */
    readonly cores: number;
    readonly memoryBytes: number;
    readonly lanesMax: number;
    readonly sourcesMax: number;
  };
  readonly constructors: {
    readonly processes: number;
    readonly threads: number;
    readonly cores: number;
    readonly memoryBytes: number;
    readonly lanes: number;
    /** Of a step: seconds of a main thread. */
    readonly mainSeconds: number;
  };
  /** Shares by source where they change, in the order of `sources`. */
  readonly phases: readonly DemandPhase[];
  /** The mixture is decided while training goes on: phases are a guess. */
  readonly isGuess: boolean;
  /** Of all processes together. */
  readonly cores: number;
  readonly memoryBytes: number;
  readonly store: {
    readonly shards: StoreCost;
    /** Blocks written and read once, in log mode. */
    readonly exchange: StoreCost;
    readonly training: StoreCost;
  };
  readonly limits: readonly StepLimit[];
  readonly binding: StepLimit;
}

/** What is asked, and what there is. */
export interface SizeNeeds {
  readonly stepSeconds: number;
  /** Cores and memory of all machines together. Default: as many as it takes. */
  readonly cores?: number | undefined;
  readonly memoryBytes?: number | undefined;
  /** Loader processes, where their number is given. */
  readonly processes?: number | undefined;
  /** Transform threads of a process. Default 8. */
  readonly threads?: number | undefined;
  /** Default 4. */
  readonly clusters?: number | undefined;
}

/** Everything that was measured. */
export interface FleetCosts {
  readonly profiles: readonly SourceProfile[];
  readonly construct: ConstructProfile;
  readonly phases: readonly DemandPhase[];
  /** A callback decides the mixture: phases are a guess. */
  readonly isGuess?: boolean | undefined;
  /** Samples of a step, where it has a fixed number; else its slots are filled. */
  readonly samplesPerStep?: number | undefined;
  /** Lanes of the training log. */
  readonly lanes: number;
  /** Memory of a process that does nothing yet, and of one more transform thread. */
  readonly processBytes: number;
  readonly threadBytes: number;
  /** Bounds of a process, as the pipeline sets them. */
  readonly bufferSamplesMax: number;
  readonly bufferBytesMax: number;
  readonly windowBytesMax: number;
  readonly blockBytes: number;
  readonly blockSamples: number;
}

/** Threads and cores are busy for so much of the time at most: costs vary, and a queue that is always full is always late. */
const busyShareMax = 0.75;
const threadsDefault = 8;
/** Requests of a batch in the log, its own PUT included (measured: docs/results/cadence.md). */
const requestsPerBatch = 2.3;
/** A block's table and its samples are read with one request each. */
const readsPerBlock = 2;

/** Samples (documents) that a step takes of each source in a phase. */
function samplesOfStep(
  costs: Pick<FleetCosts, "profiles" | "construct" | "samplesPerStep">,
  shares: readonly number[],
): number[] {
  return costs.profiles.map(({ tokens, pieces }, i) => {
    const share = shares[i] as number;
    if (share === 0) return 0;
    return costs.samplesPerStep === undefined
      ? (share * costs.construct.slots) / Math.max(1, tokens)
      : (share * costs.samplesPerStep) / Math.max(1, pieces);
  });
}

/** The load of one phase, per step: seconds of transform threads and of main threads, by source. */
interface PhaseLoad {
  readonly name: string;
  readonly samples: readonly number[];
  readonly threadSeconds: readonly number[];
  readonly mainSeconds: readonly number[];
}

const sum = (list: readonly number[]): number => list.reduce((a, b) => a + b, 0);

function phaseLoads(costs: FleetCosts): PhaseLoad[] {
  return costs.phases.map(({ name, shares }) => {
    const samples = samplesOfStep(costs, shares);
    return {
      name,
      samples,
      threadSeconds: costs.profiles.map(({ loaderMs }, i) => ((samples[i] as number) * loaderMs) / 1_000),
      mainSeconds: costs.profiles.map(({ readMs }, i) => ((samples[i] as number) * readMs) / 1_000),
    };
  });
}

/** Refuses what cannot be meant, before anything is measured. */
export function assertNeeds({ stepSeconds, processes, threads, cores, clusters }: SizeNeeds): void {
  if (!(stepSeconds > 0 && Number.isFinite(stepSeconds)))
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `No step takes ${stepSeconds} seconds. Say how long the trainer's step is, such as 2.5.`,
      { stepSeconds },
    );
  for (const [name, value] of Object.entries({ processes, threads, cores, clusters }))
    if (value !== undefined && !(value >= 1))
      throw new BatchWeaveError("INVALID_ARGUMENT", `${name} must be at least 1, not ${value}.`, { [name]: value });
}

const powerOfTwo = (n: number): number => 2 ** Math.ceil(Math.log2(Math.max(1, n)));

/** Sizes a fleet. */
export function planFleet(costs: FleetCosts, needs: SizeNeeds): FleetPlan {
  assertNeeds(needs);
  const { profiles } = costs;
  const { stepSeconds } = needs;
  const threads = Math.min(needs.threads ?? threadsDefault, needs.cores ?? Number.POSITIVE_INFINITY);
  const loads = phaseLoads(costs);
  const clusters = clusterCosts(
    profiles.map(({ loaderMs }) => loaderMs),
    needs.clusters ?? clustersDefault,
  );
  const cheapest = Math.max(0.01, clusters.at(-1)?.mean ?? 0);
  const perSecond = (seconds: number): number => seconds / stepSeconds / busyShareMax;
  const sources = profiles.map((profile, i): SourcePlan => {
    const peak = loads.reduce((a, b) => ((b.samples[i] as number) > (a.samples[i] as number) ? b : a));
    const busy = perSecond(peak.threadSeconds[i] as number);
    const reading = perSecond(peak.mainSeconds[i] as number);
    // Two parts for each process that it keeps busy: then parts of it can move without leaving half a process idle.
    const lanes = profile.lanes ?? Math.min(profile.lanesMax, powerOfTwo(Math.max((2 * busy) / threads, 2 * reading)));
    const alone = samplesOfStep(
      costs,
      profiles.map(() => 1),
    )[i] as number;
    return {
      cluster: clusters.findIndex(({ members }) => members.includes(i)),
      samplesPerSecond: (peak.samples[i] as number) / stepSeconds,
      phase: peak.name,
      loaderMs: profile.loaderMs,
      readMs: profile.readMs,
      readyBytes: profile.readyBytes,
      threads: busy,
      lanes,
      lanesMax: profile.lanesMax,
      threadSeconds: (alone * profile.loaderMs) / 1_000,
      mainSeconds: (alone * profile.readMs) / 1_000,
      blocks: alone * blocksOf(profile, costs),
      ...(profile.own ? { own: ownOf(profile, busy, reading, lanes, threads, costs) } : {}),
    };
  });
  const heaviest = loads.reduce((a, b) =>
    sum(b.threadSeconds) + sum(b.mainSeconds) > sum(a.threadSeconds) + sum(a.mainSeconds) ? b : a,
  );
  const loaders = loadersOf(costs, sources, heaviest, threads, needs);
  const constructors = constructorsOf(costs, heaviest, stepSeconds, threads);
  const owns = sources.flatMap(({ own }) => (own ? [own] : []));
  const cores = loaders.cores + constructors.cores + sum(owns.map((own) => own.processes * own.threads));
  const shared = loaders.lanesMax > 0 ? loaders.processes : 0;
  const memoryBytes =
    shared * loaders.memoryBytes +
    constructors.processes * constructors.memoryBytes +
    sum(owns.map((own) => own.processes * own.memoryBytes));
  assertMemory(memoryBytes, loaders, needs);
  const limits = limitsOf(costs, loads, heaviest, threads, needs, cores).sort((a, b) => b.stepSeconds - a.stepSeconds);
  const binding = limits[0] as StepLimit;
  return {
    v: 1,
    kind: "batchweave-fleet-plan",
    stepSeconds,
    feeds: binding.stepSeconds <= stepSeconds * 1.000_001,
    sources: Object.fromEntries(profiles.map(({ source }, i) => [source, sources[i] as SourcePlan])),
    clusters: clusters.map(({ members, mean }) => ({
      sources: members.length,
      meanMs: mean,
      level: Math.max(1, mean / cheapest),
      threads: sum(members.map((i) => perSecond(heaviest.threadSeconds[i] as number))),
    })),
    loaders,
    constructors,
    phases: costs.phases,
    isGuess: costs.isGuess === true,
    cores,
    memoryBytes,
    store: storeOf(costs, heaviest),
    limits,
    binding,
  };
}

/** Processes for a source that has its own. */
function ownOf(
  { own, readyBytes }: SourceProfile,
  busy: number,
  reading: number,
  lanes: number,
  threads: number,
  { bufferSamplesMax }: FleetCosts,
): NonNullable<SourcePlan["own"]> {
  if (!own || own.processBytes === 0) return { processes: 0, threads: 0, memoryBytes: 0 };
  const processes = Math.min(lanes, Math.max(1, Math.ceil(busy / threads - 1e-9), Math.ceil(reading - 1e-9)));
  const each = Math.min(threads, Math.max(1, Math.ceil(busy / processes - 1e-9)));
  const memoryBytes = own.processBytes + each * own.workerBytes + bufferSamplesMax * readyBytes;
  return { processes, threads: each, memoryBytes };
}

function loadersOf(
  costs: FleetCosts,
  sources: readonly SourcePlan[],
  heaviest: PhaseLoad,
  threads: number,
  { stepSeconds, processes }: SizeNeeds,
): FleetPlan["loaders"] {
  const parts = sources.flatMap(({ lanes, own }, source): PartLoad[] => {
    if (own) return [];
    const busy = (heaviest.threadSeconds[source] as number) / stepSeconds / busyShareMax / lanes;
    // Lanes that share a shard which cannot be divided all read it.
    const readers = Math.min(lanes, costs.profiles[source]?.lanesMax ?? lanes);
    const main = (heaviest.mainSeconds[source] as number) / stepSeconds / busyShareMax / readers;
    return Array.from({ length: lanes }, () => ({ source, threads: busy, main }));
  });
  const bins = partition(parts, { threads, main: 1, count: processes });
  const memories = bins.map((held) => {
    const buffers = sum(
      held.map(({ source }) =>
        Math.min(costs.bufferSamplesMax * (costs.profiles[source]?.readyBytes ?? 0), costs.bufferBytesMax),
      ),
    );
    const windows = sum(held.map(({ source }) => costs.profiles[source]?.windowBytes ?? 0));
    return Math.min(buffers, costs.bufferBytesMax) + Math.min(windows, costs.windowBytesMax);
  });
  const used = Math.max(1, Math.ceil(Math.max(...bins.map((held) => sum(held.map((part) => part.threads))), 0) - 1e-9));
  return {
    processes: Math.max(1, bins.length),
    threads: Math.min(threads, used),
    cores: sum(parts.map((part) => part.threads + part.main)),
    memoryBytes: costs.processBytes + Math.min(threads, used) * costs.threadBytes + Math.max(0, ...memories),
    lanesMax: Math.max(0, ...bins.map((held) => held.length)),
    sourcesMax: Math.max(0, ...bins.map((held) => new Set(held.map(({ source }) => source)).size)),
  };
}

function constructorsOf(
  { profiles, construct, lanes, processBytes, threadBytes, bufferBytesMax }: FleetCosts,
  { samples }: PhaseLoad,
  stepSeconds: number,
  threads: number,
): FleetPlan["constructors"] {
  const main = construct.buildMs / 1_000 / stepSeconds / busyShareMax;
  const busy =
    sum(profiles.map(({ constructorMs }, i) => ((samples[i] as number) * constructorMs) / 1_000)) /
    stepSeconds /
    busyShareMax;
  const processes = Math.min(lanes, Math.max(1, Math.ceil(main), Math.ceil(busy / threads)));
  const each = Math.min(threads, Math.ceil(busy / processes));
  // The batch it makes, the one that is on its way to the log, and samples for the next.
  const memoryBytes =
    processBytes + each * threadBytes + 2 * construct.batchBytes + Math.min(bufferBytesMax, construct.batchBytes);
  return { processes, threads: each, cores: main + busy, memoryBytes, lanes, mainSeconds: construct.buildMs / 1_000 };
}

/** Blocks that a sample takes. */
function blocksOf({ readyBytes }: SourceProfile, { blockBytes, blockSamples }: FleetCosts): number {
  return Math.max(readyBytes / blockBytes, 1 / blockSamples);
}

function storeOf(costs: FleetCosts, { samples }: PhaseLoad): FleetPlan["store"] {
  const { profiles, construct } = costs;
  const of = (one: (profile: SourceProfile) => number): number =>
    sum(profiles.map((profile, i) => (samples[i] as number) * one(profile)));
  const ready = of(({ readyBytes }) => readyBytes);
  const blocks = of((profile) => blocksOf(profile, costs));
  return {
    shards: { requests: of(({ reads }) => reads), bytes: of(({ readBytes }) => readBytes) },
    exchange: { requests: blocks * (requestsPerBatch + readsPerBlock), bytes: 2 * ready },
    training: { requests: requestsPerBatch, bytes: construct.batchBytes },
  };
}

function assertMemory(needed: number, loaders: FleetPlan["loaders"], { memoryBytes }: SizeNeeds): void {
  if (memoryBytes === undefined || needed <= memoryBytes) return;
  const gb = (bytes: number): string => `${(bytes / 1e9).toFixed(2)} GB`;
  throw new BatchWeaveError(
    "LIMIT",
    `The fleet needs ${gb(needed)} (${loaders.processes} loaders of ${gb(loaders.memoryBytes)} each, and constructors), and there are ${gb(memoryBytes)}. Give more, or a longer step, or smaller buffers in the pipeline's file.`,
    { needed, memoryBytes },
  );
}

/** What gives a source more lanes. `isReading`: they would all read the same shards. */
function remedyOf({ own, lanes, lanesMax, shards }: SourceProfile, isReading: boolean): string {
  if (own) return "more lanes, or cheaper transforms";
  if (lanes === undefined || isReading) return `more and smaller shards than ${shards}, or cheaper transforms`;
  return `more lanes of it in the pipeline's file before its log is made (its shards can be divided into ${lanesMax}), or cheaper transforms`;
}

/** The step time that each limit allows; the longest binds. */
function limitsOf(
  costs: FleetCosts,
  loads: readonly PhaseLoad[],
  heaviest: PhaseLoad,
  threads: number,
  needs: SizeNeeds,
  cores: number,
): StepLimit[] {
  const { profiles, construct, lanes } = costs;
  const limits: StepLimit[] = [
    {
      what: `the training log's ${lanes} lanes`,
      stepSeconds: construct.buildMs / 1_000 / busyShareMax / lanes,
      remedy: "more lanes in the pipeline's namespace, or fewer samples a batch",
    },
  ];
  profiles.forEach((profile, i) => {
    const { source, lanesMax, lanes: held = lanesMax } = profile;
    const threadSeconds = Math.max(...loads.map((load) => load.threadSeconds[i] as number));
    const mainSeconds = Math.max(...loads.map((load) => load.mainSeconds[i] as number));
    const [busy, reading] = [threadSeconds / (held * threads), mainSeconds / Math.min(held, lanesMax)];
    limits.push({
      what: `source ${source}: ${held} ${held === 1 ? "lane" : "lanes"}${profile.lanes === undefined ? " at most" : ""}`,
      stepSeconds: Math.max(busy, reading) / busyShareMax,
      remedy: remedyOf(profile, reading > busy && lanesMax < held),
    });
  });
  if (needs.cores !== undefined)
    limits.push({
      what: `${needs.cores} cores`,
      stepSeconds: (cores * needs.stepSeconds) / needs.cores,
      remedy: "more cores, or cheaper transforms",
    });
  const isShared = (_: number, i: number): boolean => profiles[i]?.own === undefined;
  if (needs.processes !== undefined)
    limits.push({
      what: `${needs.processes} loader processes of ${threads} threads`,
      stepSeconds:
        Math.max(
          sum(heaviest.threadSeconds.filter(isShared)) / (needs.processes * threads),
          sum(heaviest.mainSeconds.filter(isShared)) / needs.processes,
        ) / busyShareMax,
      remedy: "more processes or more threads in each",
    });
  return limits;
}
