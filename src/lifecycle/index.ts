/**
 * lifecycle: how long data lives.
 *
 * Owns: checkpoints, backpressure by checkpoints, trim and reclaim, forks and their pins, deletion, lineage look-ups, verify.
 * May import: errors, env, flow, observe, format, store, log, cadence.
 * Promises: what a live checkpoint, a pin or a producer's resume point needs is never deleted; nothing is deleted before the chain
 * says so; every function can be interrupted anywhere, run again, and run twice at once.
 */
export { type LiveCheckpoint, liveCheckpoints, registerCheckpoint, releaseCheckpoint } from "./checkpoint.js";
export { originOfStep, translateCursor } from "./cursor-translation.js";
export {
  commitDeletion,
  endLife,
  isEnded,
  livesWithObjects,
  mortalPrefixes,
  removeBelow,
  removeLeftovers,
  removeNamespaceObject,
  removeObjects,
} from "./deletion.js";
export { type ForkSettings, forkLog } from "./fork.js";
export { measureLag } from "./lag.js";
export { commitMaxLag, type LagObserver, type LagSettings, lagGate, starvationWatch } from "./lag-gate.js";
export { type FindResult, type FindSettings, findSample, readSamples, type SampleMatch } from "./lineage.js";
export { confirmPins, type FindNamespace, needsPins, type OpenLog, releaseAbandonedPin, releasePins } from "./pins.js";
export { type ReclaimReport, type ReclaimSettings, reclaim, reclaimWarning } from "./reclaim.js";
export { ReclaimLoop, type ReclaimLoopObserver, type ReclaimLoopSettings } from "./reclaim-loop.js";
export { parseSkip, type SkipRange } from "./skip.js";
export type { DeadObject, DeadReason } from "./sweep.js";
export type { DeadCount, DeadCounts } from "./tally.js";
export { type VerifySettings, verifyLog } from "./verify.js";
export type { VerifyCode, VerifyCounts, VerifyProblem, VerifyReport } from "./verify-report.js";
