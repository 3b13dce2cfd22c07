/**
 * log: the manifest chain of one namespace.
 *
 * Owns: finding and verifying manifests, the boundary, staging (pure), the commit (one conditional PUT), the step index, silent producers.
 * May import: errors, env, observe, format, store.
 * Promises: nothing is concluded from a manifest that was not seen above the boundary after it was read; a commit's outcome is only ever
 * told from verified producer state; no object is overwritten or deleted here.
 */
export { BoundaryChain } from "./boundary-chain.js";
export type { Attempt, AttemptOutcome, Change, CommitOptions } from "./commit.js";
export { Draft } from "./draft.js";
export { Head } from "./head.js";
export {
  type Intents,
  listIntents,
  noIntents,
  publishIntents,
  publishLeaving,
  spentIntents,
  stageIntents,
} from "./intents.js";
export { deletedError, lifeStore } from "./life.js";
export { type BatchesOptions, type BatchesResult, Log, type LogParts } from "./log.js";
export { RoundTrip } from "./round-trip.js";
export { defaultSilence, type SilencePolicy } from "./silent.js";
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
export {
  checkpointGroupsMax,
  checkpointsMax,
  type NewCheckpoint,
  newestFirst,
  releasedMax,
  stageCheckpoint,
  stageRelease,
} from "./stage-checkpoint.js";
export {
  type NewPin,
  pinsMax,
  sameRef,
  stageConfirmation,
  stageCutoff,
  stagePin,
  stagePinCopy,
  stageSettings,
  stageTrim,
  stageUnpin,
} from "./stage-retention.js";
export { type BatchPlace, type OpenOrigin, StepIndex, unreadableUntil } from "./step-index.js";
