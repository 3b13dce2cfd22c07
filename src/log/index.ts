/**
 * log: the manifest chain of one namespace.
 *
 * Owns: finding and verifying manifests, the boundary, staging (pure), the commit (one conditional PUT), the step index, silent producers.
 * May import: errors, env, observe, format, store.
 * Promises: nothing is concluded from a manifest that was not seen above the boundary after it was read; a commit's outcome is only ever
 * told from verified producer state; no object is overwritten or deleted here.
 */
export { BoundaryChain } from "./boundary-chain.js";
export type { AttemptOutcome, Change } from "./commit.js";
export { Draft } from "./draft.js";
export {
  type Intents,
  listIntents,
  noIntents,
  publishIntents,
  publishLeaving,
  spentIntents,
  stageIntents,
} from "./intents.js";
export { lifeStore } from "./life.js";
export { Log } from "./log.js";
export { RoundTrip } from "./round-trip.js";
export type { SilencePolicy } from "./silent.js";
export {
  type BatchVerdict,
  closedError,
  firstOwnStep,
  type Holder,
  holds,
  laneAheadMax,
  laneNumber,
  laneSeqAt,
  type SilentFinding,
  seqInLog,
  stageOpening,
} from "./stage.js";
export { checkpointsMax, newestFirst, stageCheckpoint, stageRelease } from "./stage-checkpoint.js";
export {
  type NewPin,
  sameRef,
  stageConfirmation,
  stageCutoff,
  stagePin,
  stagePinCopy,
  stageSettings,
  stageTrim,
  stageUnpin,
} from "./stage-retention.js";
export { type BatchPlace, StepIndex, unreadableUntil } from "./step-index.js";
