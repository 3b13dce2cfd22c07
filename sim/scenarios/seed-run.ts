/** One seed of one scenario, from start to verdict. */

import { propertyOf, Violation } from "../oracle/violation.js";
import type { FaultFilter, FaultInstance } from "../world/faults.js";
import { scheduleProcessFaults } from "../world/process-faults.js";
import { Simulation } from "../world/simulation.js";
import { formatTraceLine, type TraceLine } from "../world/trace.js";
import { type Cast, castBuilders, type Scenario } from "./scenario.js";

/** Options of {@link runSeed}. */
export interface SeedOptions {
  readonly filter?: FaultFilter | undefined;
  /** Receives every event. */
  readonly sink?: ((line: TraceLine) => void) | undefined;
  readonly drain?: "tick" | "immediate" | undefined;
  /** Remember the last events of every actor for a report; without, the run is faster and its hash the same. */
  readonly rings?: boolean | undefined;
}

/** Why a seed failed. */
export interface SeedFailure {
  readonly property: string;
  readonly message: string;
  readonly stack: string;
  /** The last events of every actor, for people. */
  readonly lastEvents: readonly string[];
}

/** What came of a seed. Plain data: it crosses threads. */
export interface SeedResult {
  readonly seed: number;
  readonly hash: string;
  readonly events: number;
  readonly calls: number;
  readonly virtualMs: number;
  readonly wallMs: number;
  /** Faults by kind, what happened on the wire, and the cast's own counters. */
  readonly counters: Readonly<Record<string, number>>;
  readonly faults: readonly FaultInstance[];
  readonly failure?: SeedFailure | undefined;
}

/** Events of the failure report. */
const reportEventsMax = 60;
/** How much longer than planned the time of faults may last while too little has happened. */
const faultTimesMax = 10;

/** Runs one seed once. Never rejects for anything the code under test does: that is a failure in the result. */
export async function runSeed(scenario: Scenario, seed: number, options: SeedOptions = {}): Promise<SeedResult> {
  const sim = new Simulation({
    ...scenario,
    seed,
    filter: options.filter,
    drain: options.drain,
    trace: { sink: options.sink, ringEvents: options.rings === false ? 0 : undefined },
  });
  const build = typeof scenario.cast === "string" ? castBuilders[scenario.cast] : scenario.cast;
  if (build === undefined) throw new Error(`scenario ${scenario.name} names no cast that exists: ${scenario.cast}`);
  const cast = build(sim, scenario.settings ?? {});
  const onUnhandled = (reason: unknown): void => sim.world.fail(reason);
  process.on("unhandledRejection", onUnhandled);
  const start = performance.now();
  let failure: SeedFailure | undefined;
  try {
    await play(scenario, sim, cast);
    requireActivity(scenario, counters(sim, cast));
  } catch (error) {
    failure = describeFailure(sim, error);
  } finally {
    process.off("unhandledRejection", onUnhandled);
  }
  return {
    seed,
    hash: sim.world.trace.hash(),
    events: sim.world.trace.count,
    calls: sim.calls,
    virtualMs: sim.world.nowMs,
    wallMs: performance.now() - start,
    counters: counters(sim, cast),
    faults: sim.faults.instances,
    failure,
  };
}

/** Runs a seed without remembering events, and once more with them when it fails. */
export async function runSeedQuickly(scenario: Scenario, seed: number): Promise<SeedResult> {
  const result = await runSeed(scenario, seed, { rings: false });
  return result.failure === undefined ? result : await runSeed(scenario, seed);
}

/** Runs a seed twice; different traces are a failure of their own, and the worst kind: nothing else can be replayed. */
export async function runSeedTwice(scenario: Scenario, seed: number): Promise<SeedResult> {
  const first = await runSeedQuickly(scenario, seed);
  const second = await runSeed(scenario, seed, { rings: false });
  if (first.failure !== undefined || first.hash === second.hash) return first;
  const message = `the same seed gave ${first.hash} (${first.events} events) and ${second.hash} (${second.events} events)`;
  return { ...first, failure: { property: "determinism", message, stack: "", lastEvents: [] } };
}

async function play(scenario: Scenario, sim: Simulation, cast: Cast): Promise<void> {
  const { world } = sim;
  const eventsMax = scenario.eventsMax ?? 20_000_000;
  scheduleProcessFaults(sim, scenario.processFaults ?? [], cast.strike);
  await world.run({ untilMs: scenario.faultMs, eventsMax });
  // Some seeds spend most of their time in pauses: they get more of it.
  while (tooLittle(scenario, counters(sim, cast)) !== undefined && world.nowMs < faultTimesMax * scenario.faultMs)
    await world.run({ untilMs: world.nowMs + scenario.faultMs / 8, eventsMax });
  sim.heal();
  cast.heal();
  const deadlineMs = world.nowMs + scenario.liveMs;
  const watch = (): void => {
    if (cast.settled()) world.stop();
    else world.after(1000, watch);
  };
  world.after(0, watch);
  await world.run({ untilMs: deadlineMs, eventsMax });
  if (!cast.settled()) {
    throw new Violation(
      "liveness",
      `${scenario.liveMs / 1000} s after the last fault, still waiting for ${cast.waitsFor()}`,
    );
  }
  await cast.check();
  if (scenario.drainMs === undefined) return;
  await world.run({ untilMs: world.nowMs + scenario.drainMs, eventsMax });
  await cast.check();
}

function counters(sim: Simulation, cast: Cast): Record<string, number> {
  const { calls, ...wire } = sim.stats;
  return { calls: sim.calls, ...calls, ...wire, ...Object.fromEntries(sim.faults.counts), ...cast.counters() };
}

/** The first counter that has not reached what every single run must show. */
function tooLittle(scenario: Scenario, found: Readonly<Record<string, number>>): string | undefined {
  const missing = Object.entries(scenario.leastPerSeed ?? {}).find(([name, least]) => (found[name] ?? 0) < least);
  return missing && `only ${found[missing[0]] ?? 0} ${missing[0]}, at least ${missing[1]} expected`;
}

function requireActivity(scenario: Scenario, found: Readonly<Record<string, number>>): void {
  const missing = tooLittle(scenario, found);
  if (missing !== undefined) throw new Violation("activity", missing);
}

function describeFailure(sim: Simulation, error: unknown): SeedFailure {
  return {
    property: propertyOf(error),
    message: error instanceof Error ? error.message : String(error),
    stack: error instanceof Error ? (error.stack ?? "") : "",
    lastEvents: sim.world.trace.last().slice(-reportEventsMax).map(formatTraceLine),
  };
}
