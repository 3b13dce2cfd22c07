/**
 * Property: advice is steady. It is a function of what was looked at and nothing else; a number changes only after looks in a row that agree and a pause;
 * noise around a level never makes it flap; fewer only well below what there is, and never to less than what was asked for lately; a schedule is
 * seen ahead of its phase; without looks nothing changes. Method: drawn histories, fed back as an engine would; the modelled fleet of 306 sources.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type FleetMode, type ModelSettings, modelCosts, runModel } from "../../bench/parts/fleet-model.js";
import { createNamespace, encodeSafetensors, systemEnv } from "../../src/index.js";
import {
  decideFleet,
  type FleetLook,
  type FleetPlan,
  lookAtFleet,
  planFleet,
  type ScaleSettings,
} from "../../src/plan/index.js";

const settings: ModelSettings = {
  sources: 40,
  samplesPerStep: 2_048,
  stepSeconds: 10,
  startSeconds: 90,
  aheadBlocks: 64,
  aheadSteps: 4,
  changeStep: 60,
  steps: 120,
  lookSeconds: 15,
  threads: 8,
};
const plan: FleetPlan = planFleet(modelCosts(settings), { stepSeconds: 10, threads: 8 });

/** A plan whose loaders must be so many, in a phase of one share. */
const needing = (...needs: readonly number[]): FleetPlan => {
  const [first] = Object.entries(plan.sources) as [[string, FleetPlan["sources"][string]]];
  const source = { ...first[1], threadSeconds: 8 * 10 * 0.75, mainSeconds: 0 };
  const phases = needs.map((share, i) => ({ name: String(i), from: 100 * i, shares: [share] }));
  return { ...plan, sources: { [first[0]]: source }, phases, loaders: { ...plan.loaders, threads: 8 } };
};

/** Looks every 15 seconds at a fleet that follows the advice at once. */
function follow(
  of: (i: number) => { readonly plan: FleetPlan; readonly step: number; readonly shares?: readonly number[] },
  start: number,
  looks: number,
  rules: ScaleSettings = {},
): number[] {
  const history: FleetLook[] = [];
  let [loaders, constructors] = [start, 1];
  const counts: number[] = [];
  for (let i = 0; i < looks; i++) {
    const { plan: now, step, shares } = of(i);
    history.push({ atMs: 15_000 * i, loaders, constructors, step, shares });
    ({ loaders, constructors } = decideFleet(now, history, 15_000 * i, rules));
    counts.push(loaders);
  }
  return counts;
}

describe("a number changes", () => {
  test("only when looks in a row say so: a single one, or one in between, changes nothing", () => {
    const more = needing(5);
    const look = (i: number, loaders = 2): FleetLook => ({ atMs: 15_000 * i, loaders, constructors: 1, step: 0 });
    expect(decideFleet(more, [look(0)], 0)).toMatchObject({
      loaders: 2,
      reasons: [expect.stringMatching(/not for 3 looks/), expect.any(String)],
    });
    expect(decideFleet(more, [look(0), look(1), look(2)], 30_000).loaders).toBe(5);
    // None runs: there is nothing to be careful about.
    expect(decideFleet(more, [look(0, 0)], 0).loaders).toBe(5);
    expect(() => decideFleet(more, [], 0)).toThrow(/at least one look/);
  });

  test("not again before the last change could work, and down later than up", () => {
    const history: FleetLook[] = Array.from({ length: 4 }, (_, i) => ({
      atMs: 15_000 * i,
      loaders: i < 3 ? 2 : 4,
      constructors: 1,
      step: 0,
    }));
    expect(decideFleet(needing(9), history, 46_000).reasons[0]).toMatch(/the last change was just now/);
    expect(follow(() => ({ plan: needing(2), step: 0 }), 8, 10).at(-1)).toBe(4);
    expect(follow(() => ({ plan: needing(2), step: 0 }), 8, 9).at(-1)).toBe(8);
  });

  test("a phase that is coming is seen as far ahead as a process takes to start, and one behind it is not", () => {
    const both = needing(2, 9);
    // 90 seconds are nine steps of ten.
    expect(follow(() => ({ plan: both, step: 90 }), 2, 5).at(-1)).toBe(2);
    expect(follow(() => ({ plan: both, step: 91 }), 2, 5).at(-1)).toBe(9);
    expect(follow(() => ({ plan: both, step: 95, shares: [2] }), 2, 5, { demand: "seen" }).at(-1)).toBe(2);
    // Nobody gives loaders up that the next phase needs.
    expect(follow(() => ({ plan: both, step: 95 }), 9, 60).at(-1)).toBe(9);
  });

  test("what a callback decides is not in a schedule: it goes by what batches held", () => {
    const guess = { ...needing(2), isGuess: true };
    expect(follow(() => ({ plan: guess, step: 0, shares: [6] }), 2, 5).at(-1)).toBe(6);
  });

  test("a source that runs short asks for more than its share, and one whose log is full for nothing", () => {
    const asked = needing(4);
    const history = (lead: number | undefined): FleetLook[] =>
      Array.from({ length: 3 }, (_, i) => ({ atMs: 15_000 * i, loaders: 4, constructors: 1, step: 0, leads: [lead] }));
    expect(decideFleet(asked, history(0), 30_000).loaders).toBe(6);
    expect(decideFleet(asked, history(undefined), 30_000).loaders).toBe(4);
    expect(decideFleet(asked, history(100), 30_000).loaders).toBe(4);
  });

  test("constructors: one more while trainers wait and blocks are ready, never more than there are lanes", () => {
    const history = Array.from(
      { length: 3 },
      (_, i): FleetLook => ({ atMs: 15_000 * i, loaders: 4, constructors: 2, step: 0, trainingLead: 0, leads: [5] }),
    );
    expect(decideFleet(needing(4), history, 30_000).constructors).toBe(3);
    const starved = history.map((look) => ({ ...look, leads: [0.1] }));
    expect(decideFleet(needing(4), starved, 30_000).constructors).toBe(2);
    const crowd = history.map((look) => ({ ...look, constructors: 400 }));
    expect(decideFleet(needing(4), crowd, 30_000).constructors).toBe(plan.constructors.lanes);
  });
});

describe("whatever is seen", () => {
  const noisy = fc.record({
    level: fc.double({ min: 1, max: 50, noNaN: true }),
    noise: fc.array(fc.double({ min: -0.08, max: 0.08, noNaN: true }), { minLength: 200, maxLength: 200 }),
    start: fc.integer({ min: 1, max: 60 }),
  });

  /** Needs as the mixture of batches tells them; each look sees the mean of three. */
  const followNeeds = (list: readonly number[], start: number, rules: ScaleSettings = {}): number[] =>
    follow((i) => ({ plan: needing(1), step: 0, shares: [list[i] as number] }), start, list.length, {
      demand: "seen",
      ...rules,
    });

  test("noise of 8 percent around a level makes no flapping: what went down never goes up again, and the number ends near the level", () => {
    fc.assert(
      fc.property(noisy, ({ level, noise, start }) => {
        const counts = followNeeds(
          noise.map((share) => level * (1 + share)),
          start,
        );
        // A step down may come late, after a long quiet stretch: that is no flapping.
        let hasFallen = false;
        [start, ...counts].forEach((count, i, all) => {
          const before = all[i - 1] ?? count;
          if (hasFallen) expect(count).toBeLessThanOrEqual(before);
          hasFallen ||= count < before;
        });
        expect(counts.at(-1)).toBeGreaterThanOrEqual(Math.floor(level * 0.92));
        expect(counts.at(-1)).toBeLessThanOrEqual(Math.ceil((level * 1.08) / 0.8));
      }),
      { numRuns: 40 },
    );
  });

  test("never outside its bounds, never fewer than half at once, never fewer than any of the last ten looks asked for", () => {
    const needs = fc.array(fc.double({ min: 0, max: 100, noNaN: true }), { minLength: 1, maxLength: 80 });
    fc.assert(
      fc.property(needs, fc.integer({ min: 1, max: 40 }), (list, start) => {
        const counts = followNeeds(list, start, { processesMin: 2, processesMax: 30 });
        counts.forEach((count, i) => {
          const before = i === 0 ? start : (counts[i - 1] as number);
          expect(count).toBeGreaterThanOrEqual(2);
          expect(count).toBeLessThanOrEqual(30);
          if (count >= before || before > 30) return;
          expect(count).toBeGreaterThanOrEqual(Math.ceil(before / 2));
          for (let k = Math.max(0, i - 9); k <= i; k++) {
            const seen = list.slice(Math.max(0, k - 2), k + 1);
            const mean = seen.reduce((a, b) => a + b, 0) / seen.length;
            expect(count).toBeGreaterThanOrEqual(Math.min(30, Math.ceil(mean - 1e-6)));
          }
        });
      }),
      { numRuns: 100 },
    );
  });

  test("the same looks give the same advice, and one that died and came back asks for no change before it has looked again", () => {
    const looks = fc.array(
      fc.record({ loaders: fc.integer({ min: 1, max: 9 }), step: fc.integer({ min: 0, max: 300 }) }),
      { minLength: 1, maxLength: 30 },
    );
    fc.assert(
      fc.property(looks, (list) => {
        const history = list.map((look, i): FleetLook => ({ atMs: 15_000 * i, constructors: 1, ...look }));
        const nowMs = 15_000 * list.length;
        const advice = decideFleet(needing(3, 8), history, nowMs);
        expect(decideFleet(needing(3, 8), structuredClone(history), nowMs)).toEqual(advice);
        const reborn = decideFleet(needing(3, 8), history.slice(-2), nowMs);
        expect(reborn.loaders).toBe(history.at(-1)?.loaders);
      }),
    );
  });
});

describe("the modelled fleet", () => {
  const waits = (mode: FleetMode, startSeconds: number): number =>
    runModel(mode, { ...settings, startSeconds }).filter(({ isTrainerWaiting }) => isTrainerWaiting).length;

  test("with the schedule a change from 1:9 to 9:1 costs the trainer nothing; by what is seen, some; a fixed fleet, most", () => {
    const [fixed, reactive, predictive] = (["fixed", "reactive", "predictive"] as const).map((mode) =>
      waits(mode, 300),
    );
    expect(predictive).toBe(0);
    expect(reactive).toBeGreaterThan(0);
    expect(fixed).toBeGreaterThan(4 * (reactive as number));
  });
});

describe("a look at real logs", () => {
  test("counts steps, shares of tokens, and the lead of a source log in steps; a full log and one that ended ask for nothing", async () => {
    const training = await createNamespace(`memory:look-${process.pid}`, { grid: { rows: 1, chunks: 1 } });
    const names = Object.keys(plan.sources).slice(0, 2) as [string, string];
    const two = {
      ...needing(1),
      sources: Object.fromEntries(names.map((name) => [name, { ...Object.values(needing(1).sources)[0], blocks: 4 }])),
    } as FleetPlan;
    const pair = { ...two, phases: [{ name: "all", from: 0, shares: [0.5, 0.5] }] };
    await using producer = await training.producer({ id: "p0" });
    const slice = encodeSafetensors(new Map([["x", { dtype: "U8" as const, shape: [1], data: new Uint8Array(1) }]]));
    await producer.append([slice], {
      lineage: [
        { source: names[0], id: "0:1", tokens: 30 },
        { source: names[1], id: "0:1", tokens: 10 },
      ],
    });
    await producer.flush();
    const source = await createNamespace(`memory:look-source-${process.pid}`, { grid: { rows: 1, chunks: 2 } });
    await using loader = await source.producer({ id: "lane-0" });
    for (let i = 0; i < 6; i++) await loader.append([slice, slice], {});
    await loader.flush();
    const look = async (): Promise<FleetLook> =>
      await lookAtFleet(pair, { training, sources: [source, undefined] }, systemEnv.now(), { loaders: 3 });
    // Six blocks, and half of four a step.
    expect(await look()).toMatchObject({
      loaders: 3,
      constructors: 0,
      step: 1,
      shares: [0.75, 0.25],
      leads: [3, undefined],
    });
    await source.setMaxLag(8);
    expect(await look()).toMatchObject({ leads: [undefined, undefined] });
    await source.setMaxLag(undefined);
    await source.endLog();
    expect(await look()).toMatchObject({ leads: [undefined, undefined] });
  });
});
