/** Scenarios as data: who takes part, what goes wrong, for how long, and what must be true afterwards. */
import { batchPrefix } from "../../src/format/index.js";
import { chainCast } from "../actors/chain-cast.js";
import { fleetCast } from "../actors/fleet-cast.js";
import { livesCast } from "../actors/lives-cast.js";
import { powerCast } from "../actors/power-cast.js";
import { weaveCast } from "../actors/weave-cast.js";
import type { BuildShape } from "../planted/build-shape.js";
import type { SimStoreOptions } from "../store/sim-store.js";
import type { FaultProfile } from "../world/faults.js";
import type { LatencyName } from "../world/latency.js";
import type { CastStrike, ProcessFault } from "../world/process-faults.js";
import { hashString } from "../world/random.js";
import type { Simulation } from "../world/simulation.js";
import { hazardScenarios } from "./hazard-scenarios.js";

/** The actors of a run and the oracle that watches them. Made fresh for every run. */
export interface Cast {
  /** Faults have stopped: finish what is under way and take on nothing new. */
  heal(): void;
  /** True once everything that had to happen has happened; asked once a virtual second after {@link Cast.heal}. */
  settled(): boolean;
  /** What it still waits for, for the message when {@link Cast.settled} stays false. */
  waitsFor(): string;
  /** Throws a `Violation` when a promise was broken. Reads the store directly; called when settled and again after the drain. */
  check(): Promise<void>;
  /** What happened in the actors' own terms: commits, conflicts, fencings. */
  counters(): Readonly<Record<string, number>>;
  /** Misfortunes of the cast's own: a second holder of an id, a rollback, a mesh change. */
  readonly strike?: CastStrike | undefined;
}

/** Puts actors into a simulation. Settings are plain data of the cast's own kind. */
export type CastBuilder = (sim: Simulation, settings: Readonly<Record<string, unknown>>) => Cast;

/** A named mix of actors and faults. Plain data. */
export interface Scenario {
  readonly name: string;
  /** One line for `--list`. */
  readonly about: string;
  /** One of {@link castBuilders}; tests may pass one of their own. */
  readonly cast: string | CastBuilder;
  readonly settings?: Readonly<Record<string, unknown>> | undefined;
  readonly latency?: LatencyName | undefined;
  readonly store?: SimStoreOptions | undefined;
  readonly timeoutMs?: number | undefined;
  readonly faults?: FaultProfile | undefined;
  readonly processFaults?: readonly ProcessFault[] | undefined;
  /** Virtual time with faults. */
  readonly faultMs: number;
  /** Virtual time after the faults in which everything must have settled. */
  readonly liveMs: number;
  /** Virtual time after that in which the latest of the late requests still land, before the last check. */
  readonly drainMs?: number | undefined;
  /** Least value of counters in every single run (`calls` are store calls): a run in which nothing happened proves nothing. */
  readonly leastPerSeed?: Readonly<Record<string, number>> | undefined;
  /** Counters and kinds of faults that must not be zero over a run of ten seeds or more. */
  readonly mustHappen?: readonly string[] | undefined;
  /** The same, where sizes are smaller than the shipped ones. */
  readonly mustHappenSmall?: readonly string[] | undefined;
  /** Sizes of the build that it runs on; the shipped ones unless told. `--shape` says otherwise. */
  readonly shape?: BuildShape | undefined;
  /** More events than this in one run are a failure; 20 million unless told. */
  readonly eventsMax?: number | undefined;
}

/** Casts by name. */
export const castBuilders: Readonly<Record<string, CastBuilder>> = {
  chain: chainCast,
  fleet: fleetCast,
  lives: livesCast,
  power: powerCast,
  weave: weaveCast,
};

const callTrouble = {
  requestLost: 0.004,
  responseLost: 0.006,
  requestLate: 0.004,
  slow: 0.004,
  duplicate: 0.006,
  duplicateAnswer: 0.004,
  errorAfterApply: 0.004,
  errorBeforeApply: 0.004,
  conflict: 0.01,
  slowDown: 0.004,
  refused: 0.004,
  crashBeforeSend: 0.001,
  crashAfterApply: 0.001,
  crashBeforeAnswer: 0.001,
  stall: 0.001,
} as const;

const readTrouble = { shortPage: 0.02, truncated: 0.003, corrupted: 0.003, partialDelete: 0.05 } as const;

/** Everything at once. */
const chaos = {
  name: "chaos",
  about: "everything at once, drawn from the seed",
  cast: "weave",
  settings: {
    producers: [4, 8],
    guests: { oneOf: [0, 9, 18] },
    jobs: { oneOf: [1, 1, 2] },
    ranksMax: [1, 8],
    reclaimers: { oneOf: [0, 1, 2, 2] },
    order: { oneOf: ["commit", "commit", "lanes"] },
    cadences: ["interval", "interval", "dac", "cooperative"],
    rows: { oneOf: [1, 2, 3, 4] },
    chunks: { oneOf: [1, 2, 4] },
    appendGapMs: [300, 1200],
    trainMs: { oneOf: [5, 20, 100, 300] },
    checkpointEvery: [3, 15],
    keepLast: [1, 3],
    graceMs: { oneOf: [0, 0, 2000, 20_000] },
    keepVersions: [1, 20],
    reclaimGapMs: [2000, 8000],
    earlyCloseRate: 0.2,
  },
  latency: "wide",
  // Every other batch is large, so to speak.
  store: { inParts: (key) => key.includes(batchPrefix) && hashString(key) % 2 === 0 },
  timeoutMs: 4000,
  faults: {
    calls: { ...callTrouble, ...readTrouble },
    storms: [
      { fault: "conflict", prefix: "manifest/", meanGapMs: 30_000, durationMs: [500, 4000], probability: 0.5 },
      { fault: "slowDown", meanGapMs: 40_000, durationMs: [500, 3000], probability: 0.3 },
      // Two reclaimers announce at once only when one of them is held up.
      {
        fault: "slow",
        kinds: ["create"],
        prefix: "boundary/",
        meanGapMs: 8000,
        durationMs: [1000, 5000],
        probability: 0.6,
      },
      // Writers that come back when their version is long gone.
      {
        fault: "stall",
        kinds: ["create"],
        prefix: "manifest/",
        meanGapMs: 8000,
        durationMs: [300, 1500],
        probability: 0.3,
      },
      // And writers that upload what was swept already.
      {
        fault: "stall",
        kinds: ["put"],
        prefix: "batch/",
        meanGapMs: 8000,
        durationMs: [300, 1500],
        probability: 0.3,
      },
    ],
    lateMs: [4000, 60_000],
    stallMs: [3000, 30_000],
    ambushRate: 0.9,
  },
  processFaults: [
    { kind: "crash", meanGapMs: 6000 },
    { kind: "pause", meanGapMs: 8000, durationMs: [1000, 60_000] },
    { kind: "freeze", meanGapMs: 20_000 },
    { kind: "clockJump", meanGapMs: 10_000 },
    { kind: "secondHolder", meanGapMs: 6000 },
    { kind: "rollback", meanGapMs: 25_000 },
    { kind: "meshChange", meanGapMs: 25_000 },
    { kind: "fork", meanGapMs: 25_000 },
    { kind: "tidyPins", meanGapMs: 15_000 },
    { kind: "maxLag", meanGapMs: 30_000 },
    { kind: "tenant", meanGapMs: 40_000 },
    { kind: "survey", meanGapMs: 80_000 },
  ],
  faultMs: 40_000,
  liveMs: 900_000,
  drainMs: 100_000,
  leastPerSeed: { calls: 2000, commits: 200 },
  mustHappen: [
    ...Object.keys(callTrouble),
    ...Object.keys(readTrouble),
    ..."storm:conflict storm:slowDown/1 storm:slow/2 storm:stall/3 storm:stall/4 ambush crash pause freeze clockJump secondHolder rollback meshChange fork tidyPins maxLag tenant survey".split(
      " ",
    ),
    ..."unknownCreates lateLandings fencings closings checkpoints refusedCheckpoints jobRestarts reclaims".split(" "),
    ..."zombieManifests reclaimed boundaries released silentMoved silentReturned forks forkReads".split(" "),
    ..."heirs tidiedPins abortedUploads lagSettings lagWaits starvations lagDeadlocks refusedStores tenants evictions".split(
      " ",
    ),
  ],
} satisfies Scenario;

const storeTrouble = { staleList: 0.02, damagedGet: 0.002 } as const;

/** Small sizes, so that a short run has a deep index, lanes that must wait and listings of many pages; and a store that is worse than `chaos`'s. */
const deep = {
  ...chaos,
  name: "deep",
  about:
    "small sizes: deep indexes, lines of forks, lanes ahead, overtaken readers; stale listings, damaged reads, no room",
  shape: { fanout: 4, laneAhead: 4, listPage: 3 },
  settings: {
    ...chaos.settings,
    producers: [3, 5],
    guests: { oneOf: [0, 0, 6] },
    jobs: 1,
    ranksMax: [1, 4],
    reclaimers: { oneOf: [2, 2, 3] },
    stragglers: { oneOf: [0, 1] },
    order: { oneOf: ["commit", "lanes"] },
    takeovers: [true, true, true, false, "when-quiet"],
    // Clocks are wrong in \`chaos\`; here they are right, so that \`when-quiet\` can be held to its word.
    skewMsMax: 1000,
    appendGapMs: [200, 600],
    checkpointEvery: [2, 8],
    graceMs: { oneOf: [0, 0, 2000] },
    keepVersions: [1, 8],
    reclaimGapMs: [1500, 4000],
    isAutopsied: true,
  },
  store: { ...chaos.store, remembersMs: 5000 },
  faults: {
    ...chaos.faults,
    calls: { ...callTrouble, ...readTrouble, ...storeTrouble },
    storms: [
      ...chaos.faults.storms,
      { fault: "full", meanGapMs: 30_000, durationMs: [500, 3000], probability: 0.7 },
      // Lists and reads of the index are what a deep tree lives on.
      { fault: "staleList", meanGapMs: 15_000, durationMs: [500, 3000], probability: 0.7 },
      { fault: "damagedGet", prefix: "index/", meanGapMs: 15_000, durationMs: [300, 1500], probability: 0.3 },
    ],
  },
  processFaults: [
    { kind: "crash", meanGapMs: 6000 },
    { kind: "pause", meanGapMs: 8000, durationMs: [1000, 30_000] },
    { kind: "freeze", meanGapMs: 30_000 },
    { kind: "secondHolder", meanGapMs: 4000 },
    { kind: "rollback", meanGapMs: 25_000 },
    { kind: "meshChange", meanGapMs: 25_000 },
    { kind: "fork", meanGapMs: 25_000 },
    { kind: "line", meanGapMs: 12_000 },
    { kind: "release", meanGapMs: 5000 },
    { kind: "tidyPins", meanGapMs: 20_000 },
    { kind: "maxLag", meanGapMs: 20_000 },
    { kind: "tenant", meanGapMs: 40_000 },
  ],
  leastPerSeed: { calls: 2000, commits: 120 },
  mustHappen: [
    ...Object.keys(callTrouble),
    ...Object.keys(readTrouble),
    ...Object.keys(storeTrouble),
    ..."full storm:full/5 storm:staleList/6 storm:damagedGet/7 ambush crash pause freeze secondHolder".split(" "),
    ..."rollback meshChange fork line release tidyPins maxLag tenant".split(" "),
    ..."waitingVersions releasedByName reclaimRaces reclaimedReaders lineages lineageReads heirs".split(" "),
    ..."refusedForRoom damagedReads unflushedClosings lagWaits lagBounds quietOpenings tenants evictions zombieManifests".split(
      " ",
    ),
    ..."forks forkReads checkpoints refusedCheckpoints jobRestarts reclaims reclaimed boundaries released".split(" "),
    ..."sweptAtLast spoiled".split(" "),
  ],
  mustHappenSmall: ["deepVersions", "lanesAhead"],
} satisfies Scenario;

/** A file store on a machine that loses its power. Small sizes again, so that what a cut takes has an index, nodes and many pages. */
const power = {
  name: "power",
  about: "a file store whose power goes: names that nobody synced vanish, and all that was told must stay",
  cast: "power",
  shape: deep.shape,
  latency: "wide",
  store: { isDisk: true, inParts: (key) => key.includes(batchPrefix) },
  timeoutMs: 4000,
  faults: {
    calls: {
      // Between a name and its sync: an error, a process that died, one that waits.
      responseLost: { create: 0.04, put: 0.02 },
      errorAfterApply: { create: 0.03, put: 0.02, delete: 0.02 },
      crashAfterApply: { create: 0.02, put: 0.005, delete: 0.01 },
      crashBeforeSend: { create: 0.005, put: 0.005 },
      slow: { create: 0.02, put: 0.01 },
    },
  },
  processFaults: [
    { kind: "power", meanGapMs: 3000 },
    { kind: "pause", meanGapMs: 4000, durationMs: [200, 4000] },
    { kind: "crash", meanGapMs: 6000 },
  ],
  faultMs: 60_000,
  liveMs: 600_000,
  leastPerSeed: { calls: 1500, acknowledged: 60, power: 5 },
  mustHappen: [
    ..."power pause crash responseLost errorAfterApply crashAfterApply crashBeforeSend slow".split(" "),
    ..."inspections unsyncedNames lostVersions checkpoints shares reclaims unknownCreates".split(" "),
  ],
} satisfies Scenario;

/** Loaders and constructors that come, go, stand still and die. */
const fleet = {
  name: "fleet",
  about: "loaders, constructors, a rank and a reclaimer: lanes that move write the log of one process",
  cast: "fleet",
  latency: "wide",
  timeoutMs: 4000,
  faults: { calls: { ...callTrouble, shortPage: 0.02 }, lateMs: [4000, 30_000], stallMs: [2000, 10_000] },
  processFaults: [
    { kind: "crash", meanGapMs: 4000 },
    { kind: "pause", meanGapMs: 5000, durationMs: [1000, 20_000] },
    { kind: "leave", meanGapMs: 8000 },
    { kind: "join", meanGapMs: 8000 },
    { kind: "clockJump", meanGapMs: 15_000 },
  ],
  faultMs: 40_000,
  liveMs: 900_000,
  drainMs: 60_000,
  leastPerSeed: { calls: 500, blocks: 10, batches: 10 },
  mustHappen:
    "crash pause leave join taken taken-over lost given-up checkpoints reclaims trimmedBlocks trimmedSteps".split(" "),
} satisfies Scenario;

/** Every scenario by name. */
export const scenarios: ReadonlyMap<string, Scenario> = new Map(
  [
    {
      name: "chain",
      about: "a toy log of conditional creates: shows that the simulator itself finds what it should",
      cast: "chain",
      settings: { writers: 6 },
      latency: "wide",
      faults: {
        calls: callTrouble,
        storms: [
          { fault: "conflict", prefix: "chain/", meanGapMs: 60_000, durationMs: [1000, 8000], probability: 0.5 },
        ],
      },
      processFaults: [
        { kind: "crash", meanGapMs: 20_000 },
        { kind: "pause", meanGapMs: 30_000 },
        { kind: "clockJump", meanGapMs: 30_000 },
      ],
      faultMs: 120_000,
      liveMs: 600_000,
      drainMs: 700_000,
      leastPerSeed: { calls: 500, appended: 50 },
      mustHappen: [
        ...Object.keys(callTrouble),
        "crash",
        "pause",
        "clockJump",
        "storm:conflict",
        "unknownCreates",
        "lateLandings",
      ],
    } satisfies Scenario,
    {
      name: "calm",
      about: "the real code without any fault: what it costs and that it works at all",
      cast: "weave",
      settings: { producers: 4, jobs: 1, ranksMax: 4 },
      latency: "wide",
      timeoutMs: 4000,
      faultMs: 30_000,
      liveMs: 60_000,
    } satisfies Scenario,
    chaos,
    {
      ...chaos,
      name: "chaos-8x8",
      about: "chaos with eight producers and one job of eight ranks: where the speed is measured",
      settings: { ...chaos.settings, producers: 8, jobs: 1, ranksMax: 8, ranksMin: 8 },
    },
    {
      ...chaos,
      name: "cooperative",
      about: "chaos in which every producer commits for the others",
      settings: { ...chaos.settings, cadences: ["cooperative"] },
    },
    deep,
    fleet,
    power,
    ...hazardScenarios,
  ].map((scenario) => [scenario.name, scenario]),
);
