/**
 * Property: lanes find holders by themselves. Processes without number or registration share what is free; a dead holder's lanes are taken over within
 * its patience, a slow one's are not robbed again and again; a process that leaves hands over at once; a log ends and is closed by the process that comes last; and what is in the
 * log is the same whatever happened. Method: the real holder on toy logs in the simulator: virtual time, processes that crash and stand still.
 */
import { expect, test } from "vitest";
import { type ProcessContext, type SimProcess, Simulation } from "../../sim/index.js";
import { BatchWeaveError, MemoryStore, type ObjectStore, systemEnv, withPrefix } from "../../src/index.js";
import {
  FleetHints,
  type Handover,
  type HoldOptions,
  type HoldOutcome,
  holdLanes,
  type LaneLog,
} from "../../src/plan/fleet/index.js";
import { type ToySettings, toyExpected, toyLog, toyTexts } from "./toy-log.js";

interface Event extends Handover {
  readonly who: string;
  readonly atMs: number;
}

class Fleet {
  readonly sim: Simulation;
  readonly toys: readonly ToySettings[];
  readonly events: Event[] = [];
  readonly outcomes = new Map<string, HoldOutcome>();
  readonly held = new Map<string, Set<string>>();
  texts: string[][] = [];

  constructor(toys: readonly ToySettings[], seed = 1, latency: "wide" | "constant" = "wide") {
    this.sim = new Simulation({ seed, latency });
    this.toys = toys;
  }

  async #logs({ env, store }: ProcessContext): Promise<LaneLog[]> {
    return await Promise.all(this.toys.map((toy) => toyLog(env, withPrefix(store, `${toy.name}/`), toy)));
  }

  start(name: string, options: Omit<HoldOptions, "hints"> & { readonly hints?: boolean } = {}): SimProcess {
    const own = new Set<string>();
    this.held.set(name, own);
    return this.sim.spawn(name, async (context) => {
      const { env, store } = context;
      const hints = options.hints ? new FleetHints(env, withPrefix(store, "fleet/")) : undefined;
      const outcome = await holdLanes(env, await this.#logs(context), {
        ...options,
        hints,
        onHandover: (event) => {
          const lane = `${event.log.name}/${event.lane}`;
          if (event.kind.startsWith("taken")) own.add(lane);
          else own.delete(lane);
          this.events.push({ ...event, who: name, atMs: this.sim.world.nowMs });
        },
      });
      this.outcomes.set(name, outcome);
    });
  }

  /** Does something as a process of its own. */
  act(name: string, work: (context: ProcessContext, logs: readonly LaneLog[]) => Promise<void>): SimProcess {
    return this.sim.spawn(name, async (context) => work(context, await this.#logs(context)));
  }

  count(kind: Handover["kind"], who?: string): number {
    return this.events.filter((event) => event.kind === kind && (who === undefined || event.who === who)).length;
  }

  /** Lets all end; every log must hold what it must, and be closed. */
  async finish(untilMs = 600_000): Promise<void> {
    const ended = (): boolean => this.sim.world.processes.every(({ alive }) => !alive);
    await this.sim.world.run({ untilMs, until: ended });
    for (const { label, exit } of this.sim.world.processes)
      if (exit?.reason === "threw") throw new Error(`${label} threw`, { cause: exit.error });
    expect(ended(), "all processes have ended").toBe(true);
    const seen: { texts: string[]; closed: boolean }[] = [];
    this.act("judge", async (_, logs) => {
      for (const { ns } of logs) seen.push({ texts: await toyTexts(ns), closed: (await ns.info()).closed });
    });
    await this.sim.world.run({ until: ended });
    expect(seen).toEqual(this.toys.map((toy) => ({ texts: toyExpected(toy), closed: true })));
  }

  async pass(ms: number): Promise<void> {
    await this.sim.world.run({ untilMs: this.sim.world.nowMs + ms });
  }
}

test("one process takes all lanes, fills what ended lanes leave open, and closes the log", async () => {
  const fleet = new Fleet([{ name: "web", counts: [7, 0, 3, 5], workMs: 20 }]);
  fleet.start("a");
  await fleet.finish();
  expect(fleet.outcomes.get("a")).toMatchObject({ isOver: true, batches: 15, handovers: { taken: 4, lost: 0 } });
});

test("an upload that fails after a lane's last batch ends the process with its reason, and nobody waits for ever", async () => {
  const memory = new MemoryStore();
  const put: ObjectStore["put"] = async (key, body, options) => {
    if (key.includes("batch/")) throw new BatchWeaveError("STORE_FULL", "the disk is full");
    await memory.put(key, body, options);
  };
  const store: ObjectStore = {
    uri: memory.uri,
    create: memory.create.bind(memory),
    put,
    get: memory.get.bind(memory),
    getRange: memory.getRange.bind(memory),
    list: memory.list.bind(memory),
    delete: memory.delete.bind(memory),
  };
  const log = await toyLog(systemEnv, store, { name: "web", counts: [1, 1], workMs: 1 });
  await expect(holdLanes(systemEnv, [log])).rejects.toThrow("the disk is full");
});

test("two processes that start together share, and never rob each other", async () => {
  const fleet = new Fleet([{ name: "web", counts: Array(16).fill(12), workMs: 500 }]);
  fleet.start("a");
  fleet.start("b");
  await fleet.pass(15_000);
  const [a, b] = [fleet.held.get("a")?.size ?? 0, fleet.held.get("b")?.size ?? 0];
  expect(a + b).toBe(16);
  expect(Math.min(a, b)).toBeGreaterThanOrEqual(4);
  await fleet.finish();
  expect(fleet.count("taken-over") + fleet.count("lost")).toBe(0);
});

test("a killed process's lanes are taken over within the patience, and the log goes on", async () => {
  const fleet = new Fleet([{ name: "web", counts: Array(8).fill(60), workMs: 300 }]);
  const dead = fleet.start("dead");
  fleet.start("b");
  await fleet.pass(10_000);
  const lanes = fleet.held.get("dead")?.size ?? 0;
  expect(lanes).toBeGreaterThan(0);
  const killedMs = fleet.sim.world.nowMs;
  fleet.sim.world.crash(dead);
  await fleet.pass(30_000);
  const taken = fleet.events.filter(({ kind }) => kind === "taken-over");
  expect(taken).toHaveLength(lanes);
  // Three seconds, its rounds of looks, and an opening.
  expect((taken[0] as Event).atMs - killedMs).toBeLessThan(7_000);
  await fleet.finish();
});

/** Reads a log to its end as a constructor does: says which step it waits for after half a second. Gives when each step came. */
function readAll(fleet: Fleet): readonly number[] {
  const cameMs: number[] = [];
  fleet.act("reader", async ({ env, store }, [log]) => {
    const hints = new FleetHints(env, withPrefix(store, "fleet/"));
    const { name, ns } = log as LaneLog;
    const reader = ns.stepReader();
    for (let step = 0; ; step++) {
      const isHere = new AbortController();
      env.sleep(500, isHere.signal).then(
        () => hints.want(name, step),
        () => {},
      );
      if (!(await reader.reach(step))) return await hints.leave();
      isHere.abort();
      await hints.got(name);
      cameMs.push(fleet.sim.world.nowMs);
    }
  });
  return cameMs;
}

test("with a shadow, a reader waits for 2.5 s at most when a holder is killed, whatever it was doing", async () => {
  const waits: number[] = [];
  for (let seed = 1; seed <= 3; seed++) {
    const fleet = new Fleet([{ name: "web", counts: [45, 45], workMs: 100 }], seed, "constant");
    const dead = fleet.start("dead", { hints: true });
    const cameMs = readAll(fleet);
    await fleet.pass(1_500);
    fleet.start("shadow", { hints: true, shadow: true });
    await fleet.pass(2_000 + 170 * seed);
    expect(fleet.held.get("dead")?.size).toBe(2);
    const before = cameMs.length - 1;
    fleet.sim.world.crash(dead);
    await fleet.pass(8_000);
    const after = cameMs.slice(before);
    waits.push(Math.max(...after.slice(1).map((ms, i) => ms - (after[i] as number))));
    await fleet.finish();
    // Both lanes at once, and none of them before.
    expect(fleet.count("taken-over")).toBe(2);
  }
  expect(Math.max(...waits)).toBeLessThan(2_500);
});

test("a batch that takes longer than the patience is not taken from whoever works at it, neither by a shadow nor by one that works as long", async () => {
  for (const shadow of [true, false]) {
    const fleet = new Fleet([{ name: "web", counts: [3, 3, 3, 3], workMs: 8_000 }], 2);
    fleet.start("a", { hints: true, lanesMax: shadow ? 4 : 2 });
    await fleet.pass(shadow ? 6_000 : 0);
    fleet.start("b", { hints: true, shadow });
    readAll(fleet);
    await fleet.finish();
    expect(fleet.count("taken-over")).toBe(0);
  }
});

test("a holder whose batches take a minute is not robbed again and again", async () => {
  // Lane 0 is wanted all the time: the others are far ahead of it.
  const toy = { name: "web", counts: [8, 8, 8, 8], workMs: (lane: number) => (lane === 0 ? 60_000 : 100) };
  const fleet = new Fleet([toy]);
  fleet.start("a", { lanesMax: 2 });
  fleet.start("b", { lanesMax: 2 });
  fleet.start("c");
  await fleet.finish(3_600_000);
  const robbed = fleet.events.filter(({ kind, lane }) => kind === "taken-over" && lane === 0);
  // Once for every doubling until the patience is longer than the work, and hardly ever after that.
  expect(robbed.length).toBeLessThanOrEqual(6);
});

test("whoever leaves hands its lanes over at once", async () => {
  const fleet = new Fleet([{ name: "web", counts: Array(8).fill(30), workMs: 400 }]);
  const stop = new AbortController();
  fleet.start("leaver", { signal: stop.signal });
  await fleet.pass(6_000);
  expect(fleet.held.get("leaver")?.size).toBe(8);
  fleet.start("b");
  await fleet.pass(2_000);
  const leftMs = fleet.sim.world.nowMs;
  stop.abort(new Error("told to leave"));
  await fleet.pass(10_000);
  expect(fleet.outcomes.get("leaver")).toMatchObject({ isOver: false });
  const taken = fleet.events.filter(({ who }) => who === "b");
  expect(taken.filter(({ kind }) => kind === "taken")).toHaveLength(8);
  expect((taken[0] as Event).atMs - leftMs).toBeLessThan(2_500);
  await fleet.finish();
});

test("a holder that was suspended loses only the lanes that were taken over meanwhile", async () => {
  const fleet = new Fleet([{ name: "web", counts: Array(4).fill(60), workMs: 400 }]);
  const stopped = fleet.start("stopped", { lanesMax: 2 });
  await fleet.pass(2_000);
  fleet.start("b", { lanesMax: 3 });
  await fleet.pass(5_000);
  expect(fleet.held.get("stopped")?.size).toBe(2);
  fleet.sim.world.pause(stopped, 12_000);
  await fleet.pass(13_500);
  // There was room for one.
  expect(fleet.count("taken-over", "b")).toBe(1);
  await fleet.pass(4_000);
  expect(fleet.count("lost", "stopped")).toBe(1);
  expect(fleet.held.get("stopped")?.size).toBe(1);
  await fleet.finish();
});

test("a log whose holders all died at its end is closed by whoever comes", async () => {
  const fleet = new Fleet([{ name: "web", counts: [9, 2, 0], workMs: 50 }]);
  const first = fleet.start("first");
  // Killed when all batches are made, and the log is not closed.
  await fleet.sim.world.run({ until: () => fleet.count("taken", "first") === 3 });
  await fleet.pass(600);
  fleet.sim.world.crash(first);
  await fleet.pass(5_000);
  fleet.start("second");
  await fleet.finish();
});

test("what somebody waits for is worked on first, and taken over although nothing in its log waits", async () => {
  const toys = Array.from({ length: 6 }, (_, n) => ({ name: `s${n}`, counts: [30], workMs: 500 }));
  const fleet = new Fleet(toys);
  const dead = fleet.start("dead", { hints: true });
  await fleet.pass(6_000);
  expect(fleet.held.get("dead")?.size).toBe(6);
  fleet.start("b", { hints: true, lanesMax: 3, lanesAtOnce: 1 });
  fleet.sim.world.crash(dead);
  fleet.act("constructor", async ({ env, store }, logs) => {
    const hints = new FleetHints(env, withPrefix(store, "fleet/"));
    const wanted = logs[4] as LaneLog;
    for (;;) {
      const { steps } = await wanted.ns.info();
      if (steps.end >= 30) return await hints.leave();
      await hints.want("s4", steps.end);
      await env.sleep(500);
    }
  });
  await fleet.pass(12_000);
  expect(fleet.events.filter(({ who }) => who === "b")[0]).toMatchObject({ kind: "taken-over", log: { name: "s4" } });
  fleet.start("c", { hints: true });
  await fleet.finish();
});

test("one that comes later gets its share, and holders do not pass lanes around", async () => {
  const fleet = new Fleet([{ name: "web", counts: Array(12).fill(50), workMs: 1_500 }]);
  fleet.start("a", { hints: true });
  await fleet.pass(10_000);
  expect(fleet.held.get("a")?.size).toBe(12);
  fleet.start("b", { hints: true });
  await fleet.pass(110_000);
  expect(fleet.held.get("b")?.size ?? 0).toBeGreaterThanOrEqual(4);
  expect(fleet.count("given-up")).toBeLessThanOrEqual(8);
  await fleet.finish();
});

test("a process that has nothing to do asks seldom", async () => {
  const fleet = new Fleet([
    { name: "web", counts: [0, 0, 0, 0], steps: 0 },
    { name: "code", counts: [70, 70], workMs: 2_000 },
  ]);
  fleet.start("a", { hints: true });
  await fleet.pass(10_000);
  const before = fleet.sim.calls;
  await fleet.pass(60_000);
  const busy = fleet.sim.calls - before;
  fleet.start("idle", { hints: true, lanesMax: 0 });
  await fleet.pass(60_000);
  const perSecond = (fleet.sim.calls - before - 2 * busy) / 60;
  expect(perSecond).toBeLessThan(5);
  await fleet.finish();
});

test("fifty processes and twenty logs, some killed and some suspended", async () => {
  const toys = Array.from({ length: 20 }, (_, n) => ({ name: `s${n}`, counts: Array(2).fill(10 + n), workMs: 1_000 }));
  const fleet = new Fleet(toys);
  const processes = Array.from({ length: 50 }, (_, n) => fleet.start(`p${n}`, { hints: true, lanesMax: 3 }));
  await fleet.pass(8_000);
  processes.forEach((process, n) => {
    if (n % 5 === 0) fleet.sim.world.crash(process);
    if (n % 5 === 1) fleet.sim.world.pause(process, 9_000);
  });
  await fleet.finish();
  expect(fleet.count("taken-over")).toBeGreaterThan(0);
});
