/** What goes wrong with whole processes, as data: crashes, pauses, clocks, and whatever a cast can do to its own. */
import type { Rng } from "./random.js";
import type { Simulation } from "./simulation.js";
import type { SimProcess } from "./world.js";

/** One kind of misfortune and how often it comes. */
export interface ProcessFault {
  /** `crash`, `pause` and `clockJump` are known here; any other kind is put to the cast. */
  readonly kind: string;
  readonly meanGapMs: number;
  /** Only processes whose name starts with this. */
  readonly victims?: string | undefined;
  /** How long a pause lasts; 20 s to 5 min unless told. */
  readonly durationMs?: readonly [number, number] | undefined;
  /** How far a clock jumps; a day back to a day on unless told. */
  readonly jumpMs?: readonly [number, number] | undefined;
}

/** Strikes in the cast's own way: returns the blow, or undefined when there is nobody to hit. */
export type CastStrike = (kind: string, rng: Rng) => (() => void) | undefined;

const dayMs = 86_400_000;

/** Lets every fault of the list come again and again until the run heals. */
export function scheduleProcessFaults(sim: Simulation, faults: readonly ProcessFault[], castStrike?: CastStrike): void {
  for (const fault of faults) {
    sim.faults.recurring(fault.kind, fault.meanGapMs, (rng) => strike(sim, fault, rng, castStrike));
  }
}

function strike(
  sim: Simulation,
  fault: ProcessFault,
  rng: Rng,
  castStrike: CastStrike | undefined,
): (() => void) | undefined {
  if (fault.kind !== "crash" && fault.kind !== "pause" && fault.kind !== "clockJump") {
    return castStrike?.(fault.kind, rng);
  }
  const victims = sim.world.processes.filter((p) => p.alive && p.name.startsWith(fault.victims ?? ""));
  if (victims.length === 0) return undefined;
  const victim: SimProcess = rng.pick(victims);
  if (fault.kind === "crash") return () => sim.world.crash(victim);
  if (fault.kind === "clockJump") return () => victim.env.jump(rng.between(...(fault.jumpMs ?? [-dayMs, dayMs])));
  return () => sim.world.pause(victim, rng.between(...(fault.durationMs ?? [20_000, 300_000])));
}
