/**
 * Properties: one seed decides everything; a dead process has no effect; a paused one acts late; an ambiguous create may land
 * later; ceilings and connections limit what passes. Method: toy processes on the simulated world, no product code.
 */
import { describe, expect, test } from "vitest";
import type { FaultFilter, FaultProfile, ProcessContext } from "../../sim/index.js";
import { Simulation } from "../../sim/index.js";
import { measureWorldSpeed } from "../../sim/world/speed.js";
import { isBatchWeaveError } from "../../src/errors.js";

const everything: FaultProfile = {
  calls: {
    requestLost: 0.01,
    responseLost: 0.01,
    requestLate: 0.01,
    slow: 0.01,
    duplicate: 0.02,
    duplicateAnswer: 0.01,
    errorAfterApply: 0.01,
    errorBeforeApply: 0.01,
    conflict: 0.01,
    slowDown: 0.01,
    refused: 0.01,
    shortPage: 0.1,
    truncated: 0.05,
    corrupted: 0.05,
    partialDelete: 0.3,
    crashBeforeSend: 0.004,
    crashAfterApply: 0.004,
    crashBeforeAnswer: 0.004,
    stall: 0.004,
  },
  storms: [{ fault: "conflict", meanGapMs: 20_000, durationMs: [1000, 5000], probability: 0.5 }],
};

function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** Does a bit of everything, for ever; survives what the store throws. */
async function toy({ store, env, process, note }: ProcessContext): Promise<void> {
  for (let i = 0; ; i++) {
    const key = `batch/${process.name}/${env.id()}`;
    try {
      await store.put(key, bytes(`${process.label} ${i}`));
      const outcome = await store.create(`manifest/${String(i).padStart(20, "0")}`, bytes(process.label));
      note("created", String(i), outcome);
      await Promise.all([store.get(key), store.getRange(key, 1, 3)]);
      await store.list("manifest/", { limit: 50 });
      if (env.random() < 0.3) await store.delete([key, `${key}x`]);
    } catch (e) {
      if (!isBatchWeaveError(e, "STORE_UNAVAILABLE")) throw e;
    }
    await env.sleep(env.random() * 100);
  }
}

interface Outcome {
  readonly hash: string;
  readonly events: number;
  readonly faults: ReadonlyMap<string, number>;
  readonly sim: Simulation;
}

async function chaos(
  seed: number,
  options: { drain?: "tick" | "immediate"; filter?: FaultFilter; faults?: FaultProfile } = {},
): Promise<Outcome> {
  const sim = new Simulation({ seed, faults: options.faults ?? everything, latency: "wide", ...options });
  sim.world.onExit = (process) => {
    if (process.exit?.reason === "threw") sim.world.fail(process.exit.error);
    else sim.world.after(500, () => sim.spawn(process.name, toy));
  };
  for (let i = 0; i < 8; i++) sim.spawn(`toy-${i}`, toy);
  sim.faults.recurring("pause", 10_000, (rng) => {
    const victim = rng.pick(sim.world.processes.filter((p) => p.alive));
    return () => sim.world.pause(victim, rng.between(1000, 30_000));
  });
  sim.faults.recurring("clockJump", 10_000, (rng) => {
    const victim = rng.pick(sim.world.processes.filter((p) => p.alive));
    return () => victim.env.jump(rng.between(-1e6, 1e6));
  });
  expect(await sim.world.run({ untilMs: 300_000 })).toBe("time");
  return { hash: sim.world.trace.hash(), events: sim.world.trace.count, faults: sim.faults.counts, sim };
}

describe("determinism", () => {
  test("the same seed gives the same trace, another seed another", async () => {
    const first = await chaos(7);
    const second = await chaos(7);
    expect(second.hash).toBe(first.hash);
    expect(second.events).toBe(first.events);
    expect((await chaos(8)).hash).not.toBe(first.hash);
    // Every kind of fault that was asked for really happened.
    for (const fault of Object.keys(everything.calls ?? {})) expect(first.faults.get(fault), fault).toBeGreaterThan(0);
    for (const fault of ["pause", "clockJump", "storm:conflict"])
      expect(first.faults.get(fault), fault).toBeGreaterThan(0);
    expect(first.sim.stats.lateLandings).toBeGreaterThan(0);
    expect(first.sim.stats.unknownCreates).toBeGreaterThan(0);
  });

  test("a full turn of the event loop after every event changes nothing", async () => {
    expect((await chaos(9, { drain: "immediate" })).hash).toBe((await chaos(9)).hash);
  });

  test("a suppressed fault instance does not happen, and those before it stay", async () => {
    const whole = await chaos(11);
    const victim = whole.sim.faults.instances[20];
    if (victim === undefined) throw new Error("no fault 20");
    const without = await chaos(11, { filter: { suppressed: new Set([victim.id]) } });
    const ids = without.sim.faults.instances.map((f) => f.id);
    expect(ids).not.toContain(victim.id);
    expect(ids.slice(0, 20)).toEqual(whole.sim.faults.instances.slice(0, 20).map((f) => f.id));
    expect(without.hash).not.toBe(whole.hash);
  });

  test("a budget bounds a kind of fault", async () => {
    const { faults } = await chaos(12, { faults: { ...everything, budgets: { stall: 1, slow: 3 } } });
    expect(faults.get("stall")).toBe(1);
    expect(faults.get("slow")).toBe(3);
  });
});

describe("processes", () => {
  test("a crashed process never acts again, but what it sent still lands", async () => {
    const sim = new Simulation({ seed: 1, latency: "constant" });
    let answered = false;
    const victim = sim.spawn("victim", async ({ store, env }) => {
      const sent = store.put("a", bytes("sent"));
      void env.sleep(3).then(() => store.put("b", bytes("never")));
      await sent;
      answered = true;
      await store.put("c", bytes("never"));
    });
    sim.world.after(2, () => sim.world.crash(victim));
    expect(await sim.world.run()).toBe("idle");
    expect(sim.store.keys()).toEqual(["a"]);
    expect(answered).toBe(false);
    expect(victim.exit).toEqual({ reason: "crashed" });
  });

  test("a process that crashes in the middle of a synchronous stretch has no effect from there on", async () => {
    const sim = new Simulation({ seed: 1, latency: "constant" });
    sim.spawn("victim", async ({ store, process, env, note }) => {
      process.world.crash(process);
      void store.put("a", bytes("never"));
      note("never");
      await env.sleep(1);
      await store.put("b", bytes("never"));
    });
    await sim.world.run();
    expect(sim.store.size).toBe(0);
    expect(sim.world.trace.last().map((line) => line.what)).not.toContain("never");
  });

  test("a paused process gets everything late and goes on as a zombie", async () => {
    const sim = new Simulation({ seed: 1, latency: "constant" });
    const times: number[] = [];
    const zombie = sim.spawn("zombie", async ({ store, env }) => {
      await store.put("a", bytes("1"));
      times.push(env.monotonic());
      await env.sleep(5);
      times.push(env.monotonic());
      await store.put("b", bytes("2"));
    });
    const origin = zombie.env.monotonic();
    sim.world.after(2, () => sim.world.pause(zombie, 60_000));
    sim.world.after(30_000, () => expect(sim.store.keys()).toEqual(["a"]));
    await sim.world.run();
    expect(times.map((t) => t - origin)).toEqual([60_002, 60_007]);
    expect(sim.store.keys()).toEqual(["a", "b"]);
  });

  test("clocks are skewed and jump, durations are not", async () => {
    const sim = new Simulation({ seed: 1 });
    const seen: number[] = [];
    const jumper = sim.spawn(
      "jumper",
      async ({ env }) => {
        const start = env.now();
        const since = env.monotonic();
        await env.sleep(1000);
        seen.push(env.now() - start, env.monotonic() - since);
      },
      { skewMs: 5000 },
    );
    sim.world.after(500, () => jumper.env.jump(-60_000));
    await sim.world.run();
    expect(seen).toEqual([-59_000, 1000]);
  });

  test("an abort rejects with the signal's reason, before and during", async () => {
    const sim = new Simulation({ seed: 1, latency: "constant" });
    const reasons: unknown[] = [];
    sim.spawn("caller", async ({ store, env }) => {
      const controller = new AbortController();
      const { signal } = controller;
      const pending = [store.put("a", bytes("x"), { signal }), env.sleep(1e6, signal), store.get("a", { signal })];
      void env.sleep(3).then(() => controller.abort("enough"));
      for (const one of await Promise.allSettled(pending)) if (one.status === "rejected") reasons.push(one.reason);
      await store.get("a", { signal }).catch((reason: unknown) => reasons.push(reason));
      await env.sleep(1, signal).catch((reason: unknown) => reasons.push(reason));
    });
    await sim.world.run();
    expect(reasons).toEqual(Array(5).fill("enough"));
    // The aborted write was on the wire already.
    expect(sim.store.keys()).toEqual(["a"]);
    expect(sim.world.nowMs).toBeLessThan(1000);
  });

  test("a broken invariant, and a process that throws, end the run with their error", async () => {
    const sim = new Simulation({ seed: 1 });
    sim.spawn("quiet", async ({ env }) => env.sleep(1e6));
    sim.world.after(10, () => {
      throw new Error("invariant");
    });
    await expect(sim.world.run()).rejects.toThrow("invariant");
    const thrower = new Simulation({ seed: 1 });
    const process = thrower.spawn("thrower", async () => {
      throw new Error("mine");
    });
    await thrower.world.run();
    expect(process.exit).toMatchObject({ reason: "threw", error: { message: "mine" } });
  });

  test("a run that never ends is an error, not a hang", async () => {
    const sim = new Simulation({ seed: 1 });
    sim.spawn("spinner", async ({ env }) => {
      for (;;) await env.sleep(0);
    });
    await expect(sim.world.run({ eventsMax: 1000 })).rejects.toThrow(/runaway/);
  });
});

test("the bare world is fast enough to leave the time to the code under test", async () => {
  const speed = await measureWorldSpeed(100_000, 40, 8);
  console.log(`world: ${speed.callsPerSecond} store calls/s of CPU`);
  // Far below what an idle core gives: this only catches a change that makes it slow.
  expect(speed.callsPerSecond).toBeGreaterThan(30_000);
});
