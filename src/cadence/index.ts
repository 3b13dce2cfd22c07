/**
 * cadence: when to commit, and whose batches.
 *
 * Owns: the policies (DAC and the baselines), the publishers that carry uploaded batches into the log.
 * May import: errors, env, observe, format, store, log.
 * Promises: a policy only ever changes when something becomes visible, never what; a publisher believes verified manifests alone.
 */
export { CooperativePublisher, type CooperativeSettings } from "./cooperative.js";
export {
  aimdPolicy,
  type DacSettings,
  dacGapMs,
  dacPolicy,
  fixedPolicy,
  incrPolicy,
  intervalPolicy,
  type Lesson,
  type Policy,
} from "./policy.js";
export { activeProducers, type Outbox, type Publisher, poolProducers } from "./publisher.js";
export { type CadenceSettings, createPublisher } from "./settings.js";
export { type PublisherObserver, SoloPublisher } from "./solo.js";
export { Wakeup } from "./wakeup.js";
