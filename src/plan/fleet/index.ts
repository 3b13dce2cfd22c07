/**
 * plan/fleet: who holds which lane of which log.
 *
 * Owns: taking, keeping, giving up and taking over lanes; hints of a fleet; the end of a log by the process that comes last.
 * May import: index.
 * Promises: what is written never depends on who holds a lane; no number or registration of processes; a lane whose holder dies while its batch is wanted
 * is taken over, one whose holder is only slow is not robbed for ever; requests and handovers of a process are bounded.
 */
export { FleetHints } from "./fleet-hints.js";
export { type Handover, type HoldOptions, type HoldOutcome, holdLanes } from "./lane-holder.js";
export type { LaneBatch, LaneLog, LaneWriter } from "./lane-log.js";
