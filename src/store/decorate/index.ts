/**
 * store/decorate: stores around stores.
 *
 * Owns: retries, hedged requests, metrics, prefixes.
 * May import: errors, env, store.
 * Promises: a decorated store is a store; a conditional create is never sent twice by any of them.
 */
export { type HedgingSettings, hedgedPutBytesMax, withHedging } from "./hedging.js";
export { type StoreCall, type StoreObserver, type StoreOp, withMetrics } from "./metrics.js";
export { withPrefix } from "./prefix.js";
export { type RetrySettings, withRetry } from "./retry.js";
