/**
 * sim: the real code on virtual time and a simulated object store.
 *
 * Owns: the world (virtual time, processes, faults), the simulated store, actors, oracle, scenarios, planted bugs.
 * May import: any room of src through its door. Nothing in src imports sim, and no packed file contains it.
 * Promises: one seed decides everything; the same seed gives the same trace, event by event.
 */

export { type CadenceMinute, type CadenceRun, type CadenceRunOptions, runCadence } from "./cadence-run.js";
export { type CallKind, callKinds, isWrite } from "./call-kind.js";
export {
  type CallFault,
  callFaults,
  type FaultFilter,
  FaultInjector,
  type FaultInstance,
  type FaultProfile,
  type Storm,
} from "./faults.js";
export { type LatencyModel, type LatencyName, latencyModel, latencyModels, lognormal, percentiles } from "./latency.js";
export { useLightAborts } from "./light-abort.js";
export { Rng } from "./random.js";
export { type CallStats, SimClient } from "./sim-client.js";
export { type Applied, SimStore, type SimStoreOptions } from "./sim-store.js";
export { type ProcessContext, Simulation, type SimulationOptions } from "./simulation.js";
export { formatTraceLine, Trace, type TraceLine } from "./trace.js";
export { type ProcessExit, type RunEnd, type SimProcess, World } from "./world.js";
