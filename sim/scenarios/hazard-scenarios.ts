/** One scenario per hazard of docs/hazards.md that a simulation can bring about by itself: little else happens, and that much of it. */

import type { WeaveSettings } from "../actors/weave-settings.js";
import type { Scenario } from "./scenario.js";

const small: WeaveSettings = {
  producers: 4,
  jobs: 1,
  ranksMax: 4,
  cadences: ["interval", "cooperative"],
  rows: { oneOf: [1, 2, 4] },
  chunks: 2,
  appendGapMs: 400,
  trainMs: 50,
};

const reclaimed: WeaveSettings = {
  ...small,
  reclaimers: 2,
  checkpointEvery: 4,
  keepLast: 1,
  graceMs: 0,
  keepVersions: [1, 8],
  reclaimGapMs: 1500,
};

/** What the scenarios below have in common. */
function hazard(
  name: string,
  about: string,
  settings: WeaveSettings,
  rest: Partial<Scenario> & Pick<Scenario, "mustHappen">,
): Scenario {
  return {
    name: `hazard-${name}`,
    about,
    cast: "weave",
    settings: { ...settings },
    latency: "wide",
    timeoutMs: 3000,
    faultMs: 30_000,
    liveMs: 600_000,
    drainMs: 60_000,
    leastPerSeed: { commits: 40 },
    ...rest,
  };
}

/** Every hazard scenario. */
export const hazardScenarios: readonly Scenario[] = [
  hazard("01-answer-lost", "the answer is lost after the PUT landed", small, {
    faults: { calls: { responseLost: { create: 0.15, put: 0.05 } } },
    mustHappen: ["responseLost", "unknownCreates"],
  }),
  hazard("02-late-landing", "a PUT that timed out lands later", small, {
    faults: { calls: { requestLate: { create: 0.15, put: 0.03 } }, lateMs: [3000, 20_000] },
    mustHappen: ["requestLate", "lateLandings"],
  }),
  hazard("03-success-as-412", "a retry on the way turns a success into a 412", small, {
    faults: { calls: { duplicateAnswer: { create: 0.25 } } },
    mustHappen: ["duplicateAnswer"],
  }),
  hazard("04-error-after-apply", "a 5xx although the object was stored", small, {
    faults: { calls: { errorAfterApply: { create: 0.2, put: 0.05, delete: 0.2 } } },
    mustHappen: ["errorAfterApply"],
  }),
  hazard("05-conflict-storm", "409 and 429 are no verdict", small, {
    faults: {
      calls: { conflict: 0.15 },
      storms: [
        { fault: "conflict", prefix: "manifest/", meanGapMs: 8000, durationMs: [500, 4000], probability: 0.7 },
        { fault: "slowDown", meanGapMs: 12_000, durationMs: [500, 3000], probability: 0.4 },
      ],
    },
    mustHappen: ["conflict", "storm:conflict", "storm:slowDown/1"],
  }),
  hazard("06-crash-before-commit", "a crash between the data PUT and the commit", small, {
    faults: { calls: { crashBeforeSend: { create: 0.08 } } },
    mustHappen: ["crashBeforeSend"],
  }),
  hazard("07-crash-after-commit", "a crash after the commit, before the acknowledgement", small, {
    faults: { calls: { crashAfterApply: { create: 0.05 }, crashBeforeAnswer: { create: 0.05 } } },
    mustHappen: ["crashAfterApply", "crashBeforeAnswer"],
  }),
  hazard("08-crash-while-uploading", "a crash in the middle of an upload of many objects", small, {
    faults: { calls: { crashBeforeSend: { put: 0.04 }, crashAfterApply: { put: 0.03 } } },
    mustHappen: ["crashBeforeSend", "crashAfterApply"],
  }),
  hazard("09-two-holders", "two processes with one producer id", small, {
    processFaults: [{ kind: "secondHolder", meanGapMs: 1500 }],
    mustHappen: ["secondHolder", "fencings"],
  }),
  hazard("10-zombie", "a fenced process wakes up and goes on", reclaimed, {
    faults: { calls: { stall: { create: 0.03, put: 0.01 } }, stallMs: [3000, 20_000] },
    processFaults: [{ kind: "secondHolder", meanGapMs: 4000 }],
    mustHappen: ["stall", "fencings"],
  }),
  hazard(
    "11-both-open",
    "both open at once",
    { ...small, producers: 2 },
    {
      faults: { calls: { slow: { create: 0.1 } } },
      processFaults: [{ kind: "secondHolder", meanGapMs: 300 }],
      mustHappen: ["fencings"],
    },
  ),
  hazard(
    "12-late-names",
    "a listing has an intent and not the one before it",
    { ...small, cadences: ["cooperative"], appendGapMs: 100 },
    {
      store: { remembersMs: 5000 },
      faults: { calls: { staleList: 0.5 } },
      mustHappen: ["staleList"],
    },
  ),
  hazard("15-name-reuse", "a stalled writer creates a name that was reclaimed", reclaimed, {
    faults: {
      calls: { stall: { create: 0.05 }, requestLate: { create: 0.05 } },
      stallMs: [5000, 20_000],
      lateMs: [5000, 20_000],
    },
    processFaults: [{ kind: "freeze", meanGapMs: 10_000 }],
    mustHappen: ["zombieManifests"],
  }),
  hazard(
    "18-many-writers",
    "thirty writers that all commit at once",
    { ...small, producers: 30, jobs: 0, appendGapMs: 1500 },
    {
      faultMs: 20_000,
      leastPerSeed: { commits: 80 },
      mustHappen: [],
    },
  ),
  hazard(
    "20-namespace-race",
    "everybody creates the namespace",
    { ...small, producers: 8, jobs: 2 },
    {
      faults: { calls: { conflict: 0.2, responseLost: { create: 0.1 }, duplicateAnswer: { create: 0.1 } } },
      faultMs: 8000,
      leastPerSeed: { commits: 10 },
      mustHappen: ["conflict", "responseLost"],
    },
  ),
  hazard(
    "24-zombie-in-a-hole",
    "readers ask for the very name that a stalled writer makes again",
    { ...reclaimed, ranksMax: 2, trainMs: 5, keepVersions: [1, 3], reclaimGapMs: 3000 },
    {
      faults: { calls: { stall: { create: 0.02, put: 0.04 } }, stallMs: [3000, 15_000], ambushRate: 1 },
      faultMs: 60_000,
      mustHappen: ["ambush", "zombieManifests"],
    },
  ),
  hazard("29-damaged-reads", "range reads that end early or come with a bit flipped", reclaimed, {
    faults: { calls: { truncated: 0.1, corrupted: 0.08 } },
    mustHappen: ["truncated", "corrupted"],
  }),
  hazard("32-short-pages", "LIST pages that end early", reclaimed, {
    faults: { calls: { shortPage: 0.5 } },
    mustHappen: ["shortPage"],
  }),
  hazard(
    "34-lives",
    "deleted and made again while everybody is alive, stopped or late",
    {},
    {
      cast: "lives",
      faults: {
        calls: {
          stall: { create: 0.02, delete: 0.08, put: 0.005 },
          requestLate: { create: 0.02, put: 0.01 },
          responseLost: { create: 0.02, delete: 0.02 },
          crashBeforeSend: { delete: 0.02, create: 0.004 },
        },
        stallMs: [3000, 25_000],
        lateMs: [3000, 30_000],
      },
      processFaults: [
        { kind: "pause", meanGapMs: 3000, durationMs: [2000, 20_000] },
        { kind: "crash", meanGapMs: 6000 },
      ],
      faultMs: 60_000,
      leastPerSeed: { commits: 40, lives: 1 },
      mustHappen: ["lives", "evictions", "zombieManifests", "lateWrites", "checkpoints", "stall", "crashBeforeSend"],
    },
  ),
  hazard(
    "35-uneven-ranks",
    "ranks that stall and crash all end at the same iteration",
    { ...small, jobs: 2, ranksMax: 8, earlyCloseRate: 0.5 },
    {
      processFaults: [
        { kind: "pause", meanGapMs: 2000, victims: "job", durationMs: [1000, 15_000] },
        { kind: "crash", meanGapMs: 4000, victims: "job" },
      ],
      mustHappen: ["pause", "crash"],
    },
  ),
  hazard(
    "36-mesh-change",
    "checkpoints restored on other meshes",
    { ...reclaimed, ranksMax: 8 },
    {
      processFaults: [
        { kind: "meshChange", meanGapMs: 3000 },
        { kind: "rollback", meanGapMs: 4000 },
      ],
      mustHappen: ["meshChange", "rollback", "jobRestarts"],
    },
  ),
  hazard("44-wrong-clocks", "clocks that jump by days, with reclaim going on", reclaimed, {
    processFaults: [{ kind: "clockJump", meanGapMs: 700 }],
    mustHappen: ["clockJump", "boundaries"],
  }),
  hazard(
    "51-silent-return",
    "state moves out to tables while its owner comes back",
    { ...reclaimed, guests: 12 },
    {
      faults: { calls: { slow: { create: 0.03 }, responseLost: { create: 0.03 } } },
      faultMs: 60_000,
      mustHappen: ["silentMoved", "silentReturned"],
    },
  ),
  hazard("52-forks", "forks read what they inherited while their parent reclaims", reclaimed, {
    processFaults: [
      { kind: "fork", meanGapMs: 2500 },
      { kind: "crash", meanGapMs: 6000, victims: "forker" },
    ],
    mustHappen: ["forks", "forkReads", "reclaimed"],
  }),
  hazard(
    "53-lane-takeover",
    "a lane taken over by another process",
    { ...small, order: "lanes" },
    {
      faults: { calls: { crashAfterApply: { create: 0.02 }, crashBeforeSend: { create: 0.02 } } },
      processFaults: [{ kind: "secondHolder", meanGapMs: 2000 }],
      mustHappen: ["fencings"],
    },
  ),
  hazard("55-slow-uploads", "uploads slower than the reclaim", reclaimed, {
    faults: { calls: { slow: { put: 0.1 }, stall: { put: 0.02 } }, stallMs: [3000, 15_000] },
    mustHappen: ["slow", "boundaries"],
  }),
];
