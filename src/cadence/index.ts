/**
 * cadence: when to commit, and whose batches.
 *
 * Owns: the policies (DAC and the baselines), the publishers that carry uploaded batches into the log, the opening of producers.
 * May import: errors, env, observe, format, store, log.
 * Promises: a policy only ever changes when something becomes visible, never what; a publisher believes verified manifests alone.
 */
export { type Opening, openProducer, type Takeover } from "./opener.js";
export { aimdPolicy, dacGapMs, dacPolicy, fixedPolicy, incrPolicy } from "./policy.js";
export { activeProducers, isCarriers, type Outbox, type Publisher, poolProducers } from "./publisher.js";
export { type CadenceSettings, createPublisher } from "./settings.js";
export type { PublisherObserver } from "./solo.js";
