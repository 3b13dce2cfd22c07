/**
 * Property: how far a producer may be ahead, when it looks, how long it waits and when either side calls it a deadlock is exact, at every border. Method: manifests made by hand, a clock that
 * only sleeps move; each value before its border, at it and behind it.
 */
import { describe, expect, test } from "vitest";
import {
  asEpoch,
  asSeq,
  asStep,
  asVersion,
  genesisManifest,
  type Manifest,
  type ProducerState,
} from "../../src/format/index.js";
import { type LagSettings, lagGate, measureLag, starvationWatch } from "../../src/lifecycle/index.js";
import type { Change, Log } from "../../src/log/index.js";
import { Draft } from "../../src/log/index.js";
import { QuarterEnv, spec } from "../log/scripted-log.js";

interface Facts {
  readonly trim?: number;
  readonly end: number;
  readonly maxLag?: number;
  readonly producers?: number;
  readonly closed?: boolean;
  readonly starving?: number;
  /** Steps of live checkpoints by group, the one registered first first. */
  readonly checkpoints?: Readonly<Record<string, readonly number[]>>;
}

function manifestOf({
  trim = 0,
  end,
  maxLag,
  producers = 1,
  closed = false,
  starving,
  checkpoints = {},
}: Facts): Manifest {
  const state: ProducerState = {
    epoch: asEpoch(1),
    incarnation: "aaaaaaaaaaaa",
    seq: asSeq(0),
    at: asVersion(1),
    resume: { kind: "none" },
  };
  const group = (steps: readonly number[]) => ({
    live: new Map(steps.map((step, i) => [`c${i}`, { row: (2 * step) as never, iteration: 0, at: asVersion(i + 1) }])),
    released: [],
  });
  return {
    ...genesisManifest(spec),
    version: asVersion(1),
    steps: { trim: asStep(trim), end: asStep(end) },
    tail: { start: asStep(end), batches: [] },
    closed,
    settings: maxLag === undefined ? undefined : { maxLag },
    starving: starving === undefined ? undefined : asStep(starving),
    producers: new Map(Array.from({ length: producers }, (_, i) => [`p${i}`, state])),
    checkpoints: new Map(Object.entries(checkpoints).map(([name, steps]) => [name, group(steps)])),
  };
}

/** A log that shows one manifest after another: the next one with every sleep. */
class Story {
  readonly env = new QuarterEnv();
  readonly told: unknown[] = [];
  jumps = 0;
  committed: Manifest | undefined;
  readonly #facts: Facts[];

  constructor(...facts: Facts[]) {
    this.#facts = facts;
  }

  get #now(): Manifest {
    return manifestOf(this.#facts[Math.min(this.env.sleeps.length, this.#facts.length - 1)] as Facts);
  }

  readonly log = {
    env: this.env,
    spec,
    head: {
      newest: async () => this.#now,
      jump: async () => {
        this.jumps++;
        this.log.head.lookedAtMs = this.env.nowMs;
        return this.#now;
      },
      lookedAtMs: Number.NEGATIVE_INFINITY,
    },
    commit: async (change: Change<undefined, boolean>) => {
      const draft = new Draft(this.#now, { id: "c00000000000", by: "rank", time: 0, boundaryHint: 0 });
      const { done, result } = change.stage(draft, undefined);
      this.committed = done ? undefined : draft.finish();
      return { manifest: this.committed ?? this.#now, result };
    },
  } as unknown as Log & { head: { lookedAtMs: number } };

  async pass(pending: number, settings: LagSettings = {}, signal?: AbortSignal): Promise<string> {
    const gate = lagGate(this.log, settings, {
      onLagWait: ({ message: _, ...event }) => this.told.push(event),
      onLagResume: (event) => this.told.push(event),
    });
    return await gate(() => pending, { onWait: () => this.told.push("wait"), signal }).then(
      () => "passed",
      ({ code, details }) => `${code} ${JSON.stringify(details)}`,
    );
  }
}

const stopped = { waitMsMax: 0 };

describe("the lag", () => {
  test("is measured from the newest checkpoint of the slowest group, or from the trim", () => {
    const lag = (facts: Facts) => measureLag(manifestOf(facts), 2);
    expect(lag({ trim: 3, end: 10 })).toEqual({ steps: 7, from: 3, group: undefined, groups: 0, interval: undefined });
    expect(lag({ end: 10, checkpoints: { a: [] } })).toMatchObject({ from: 0, groups: 0 });
    expect(lag({ end: 10, checkpoints: { a: [2, 6] } })).toEqual({
      steps: 4,
      from: 6,
      group: "a",
      groups: 1,
      interval: 4,
    });
    expect(lag({ end: 10, checkpoints: { a: [8, 5] } })).toEqual({
      steps: 5,
      from: 5,
      group: "a",
      groups: 1,
      interval: 3,
    });
    expect(lag({ end: 10, checkpoints: { a: [9], b: [1, 7], c: [] } })).toEqual({
      steps: 3,
      from: 7,
      group: "b",
      groups: 2,
      interval: 6,
    });
    expect(lag({ end: 10, checkpoints: { a: [7], b: [9] } })).toMatchObject({ group: "a", interval: undefined });
  });
});

describe("a producer", () => {
  test("takes its share of what is left, an eighth at most, and one batch always below the limit", async () => {
    const passes = async (facts: Facts, pending: number): Promise<boolean> => {
      const stop = new AbortController();
      const passed = new Story({ maxLag: 80, ...facts }).pass(pending, stopped, stop.signal);
      const isPassed = (await Promise.race([passed, new Promise((resolve) => setImmediate(resolve))])) === "passed";
      stop.abort(new Error("enough"));
      await passed;
      return isPassed;
    };
    const most = async (facts: Facts): Promise<number> => {
      let pending = 0;
      while (pending < 90 && (await passes(facts, pending))) pending++;
      return pending;
    };
    expect(await most({ end: 0 })).toBe(10);
    expect(await most({ end: 71 })).toBe(9);
    expect(await most({ end: 79 })).toBe(1);
    expect(await most({ end: 80 })).toBe(0);
    expect(await most({ end: 0, producers: 20 })).toBe(4);
    expect(await most({ end: 70, producers: 20 })).toBe(1);
    expect(await most({ end: 90, maxLag: 100, checkpoints: { a: [80] } })).toBe(12);
    expect(await most({ end: 500, closed: true })).toBe(90);
  });

  test("without a limit asks nothing; with one it looks once a second", async () => {
    const free = new Story({ end: 5 });
    expect([await free.pass(9), free.jumps]).toEqual(["passed", 0]);
    const story = new Story({ end: 0, maxLag: 80 });
    const gate = lagGate(story.log);
    for (const [ms, jumps] of [
      [0, 1],
      [999, 1],
      [1, 2],
      [1_000, 3],
    ] as const) {
      story.env.nowMs += ms;
      await gate(() => 0);
      expect(story.jumps).toBe(jumps);
    }
  });

  test("waits for its own batches briefly, and is not told to wait for a checkpoint", async () => {
    const story = new Story({ end: 0, maxLag: 80 }, { end: 0, maxLag: 80 }, { end: 0 });
    expect(await story.pass(10)).toBe("passed");
    expect([story.env.sleeps, story.told]).toEqual([
      [10, 10],
      ["wait", "wait"],
    ]);
    const quick = new Story({ end: 0, maxLag: 80 }, { end: 0 });
    await quick.pass(10, { pollDelayMs: 4 });
    expect(quick.env.sleeps).toEqual([4]);
  });

  test("waits for a checkpoint, says so once, and goes on when one comes", async () => {
    const full = { end: 80, maxLag: 80 };
    const story = new Story(full, full, { ...full, checkpoints: { a: [60] } });
    expect(await story.pass(2)).toBe("passed");
    // Keenly at first; and every delay ends with a look.
    expect([story.env.sleeps, story.jumps]).toEqual([[106.25, 159.375], 3]);
    expect(story.told).toEqual([
      "wait",
      { lag: 82, maxLag: 80, group: undefined, checkpointStep: 0 },
      { waitedMs: 265.625 },
    ]);
  });

  test("uses what another producer of its process saw within a quarter of its delay", async () => {
    const full = { end: 80, maxLag: 80 };
    for (const [agoMs, jumps] of [
      [24, 1],
      [25, 2],
    ] as const) {
      const story = new Story(full, { ...full, checkpoints: { a: [60] } });
      Object.defineProperty(story.log.head, "lookedAtMs", { get: () => story.env.nowMs - agoMs, set: () => {} });
      expect([await story.pass(2), story.jumps]).toEqual(["passed", jumps]);
    }
  });

  test("gives up when no checkpoint moved for so long, or a rank says that it starves at the very end", async () => {
    const at = (step: number) => ({ end: 90, maxLag: 80, checkpoints: { a: [step] } });
    const story = new Story(at(1), at(1), at(2), at(2), at(2));
    expect(await story.pass(0, { waitMsMax: 1_750 })).toMatch(/^LAG_DEADLOCK/);
    expect(story.env.sleeps).toHaveLength(6);
    const patient = new Story(at(1));
    patient.env.nowMs = 0;
    const waited = patient.pass(0, { pollDelayMs: 3_600_000 });
    expect(await waited).toMatch(/^LAG_DEADLOCK/);
    // From a tenth of the delay, half as long again each time, up to the whole.
    expect(patient.env.nowMs).toBeCloseTo(1.0625 * ((0.1 * (1.5 ** 6 - 1)) / 0.5 + 4) * 3_600_000);
    const starving = (step: number) => new Story({ ...at(1), starving: step }, { end: 90 });
    expect(await starving(90).pass(0)).toMatch(/^LAG_DEADLOCK/);
    expect(await starving(89).pass(0)).toBe("passed");
  });
});

describe("a rank that waits", () => {
  async function asked(
    facts: Facts,
    wait: { step?: number; waitedMs?: number; group?: string },
    settings: LagSettings = {},
  ): Promise<unknown> {
    const story = new Story(facts);
    const seen: number[] = [];
    const watch = starvationWatch(story.log, settings, { onStarve: ({ step }) => seen.push(step) });
    const given = {
      step: wait.step ?? facts.end,
      waitedMs: wait.waitedMs ?? 0,
      ...(wait.group === undefined ? {} : { group: wait.group }),
    };
    const call = () =>
      watch(given).then(
        () => "waits",
        ({ code }) => code,
      );
    await call();
    return [await call(), seen, story.committed?.starving];
  }
  const full = { end: 80, maxLag: 80 };

  test("is stuck only at the limit, behind the end, in an open log, in the slowest group", async () => {
    expect(await asked(full, {})).toEqual(["waits", [80], undefined]);
    expect(await asked(full, { step: 81 })).toEqual(["waits", [81], undefined]);
    for (const [facts, wait] of [
      [{ end: 79, maxLag: 80 }, {}],
      [{ end: 80 }, {}],
      [full, { step: 79 }],
      [{ ...full, closed: true }, {}],
      [{ end: 99, maxLag: 80, checkpoints: { a: [1], b: [2] } }, { group: "b" }],
    ] as const)
      expect(await asked(facts, { ...wait, waitedMs: 1e9 })).toEqual(["waits", [], undefined]);
    const two = { end: 99, maxLag: 80, checkpoints: { a: [1], b: [2] } };
    expect(await asked(two, { group: "a", waitedMs: 1e9 })).toEqual(["LAG_DEADLOCK", [99], 99]);
    const one = { end: 99, maxLag: 80, checkpoints: { a: [1] } };
    expect(await asked(one, { group: "b", waitedMs: 1e9 })).toEqual(["LAG_DEADLOCK", [99], 99]);
  });

  test("is patient for a minute, for ten seconds where the next checkpoint is out of reach, or as it is told", async () => {
    const at = async (facts: Facts, ms: number, settings: LagSettings = {}) =>
      ((await asked(facts, { waitedMs: ms }, settings)) as unknown[])[0];
    expect([await at(full, 59_999), await at(full, 60_000)]).toEqual(["waits", "LAG_DEADLOCK"]);
    const far = { end: 100, maxLag: 80, checkpoints: { a: [0, 10] } };
    const within = { end: 100, maxLag: 80, checkpoints: { a: [-80, 10] } };
    const beyond = { end: 100, maxLag: 80, checkpoints: { a: [-81, 10] } };
    expect([
      await at(far, 59_999),
      await at(within, 59_999),
      await at(beyond, 9_999),
      await at(beyond, 10_000),
    ]).toEqual([...["waits", "waits", "waits"], "LAG_DEADLOCK"]);
    expect([
      await at(full, 4, { deadlockMs: 5 }),
      await at(full, 5, { deadlockMs: 5 }),
      await at(full, 0, { deadlockMs: 0 }),
    ]).toEqual([...["waits", "LAG_DEADLOCK", "LAG_DEADLOCK"]]);
  });

  test("says it in the log once", async () => {
    expect(await asked({ ...full, starving: 80 }, { waitedMs: 1e9 })).toEqual(["LAG_DEADLOCK", [80], undefined]);
    expect(await asked({ ...full, starving: 79 }, { waitedMs: 1e9 })).toEqual(["LAG_DEADLOCK", [80], 80]);
  });
});
