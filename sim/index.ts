/**
 * sim: the real code on virtual time and a simulated object store.
 *
 * Owns: the world (virtual time, processes, faults), the simulated store, actors, oracle, scenarios, planted bugs.
 * May import: any room of src through its door. Nothing in src imports sim, and no packed file contains it.
 * Promises: one seed decides everything; the same seed gives the same trace, event by event.
 */

export { type CadenceMinute, type CadenceRun, type CadenceRunOptions, runCadence } from "./scenarios/cadence-run.js";
export { runShortLived } from "./scenarios/short-lived-run.js";
export { type CallStats, SimClient } from "./store/sim-client.js";
export { type Applied, SimStore, type SimStoreOptions } from "./store/sim-store.js";
export { type CallKind, callKinds, isWrite } from "./world/call-kind.js";
export {
  type CallFault,
  callFaults,
  type FaultFilter,
  FaultInjector,
  type FaultInstance,
  type FaultProfile,
  type Storm,
} from "./world/faults.js";
export {
  type LatencyModel,
  type LatencyName,
  latencyModel,
  latencyModels,
  lognormal,
  percentiles,
} from "./world/latency.js";
export { useLightAborts } from "./world/light-abort.js";
export { Rng } from "./world/random.js";
export { type ProcessContext, Simulation, type SimulationOptions } from "./world/simulation.js";
export { formatTraceLine, Trace, type TraceLine } from "./world/trace.js";
export { type ProcessExit, type RunEnd, type SimProcess, World } from "./world/world.js";
