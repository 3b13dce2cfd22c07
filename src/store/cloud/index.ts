/**
 * store/cloud: what stores on a maker's SDK have in common.
 *
 * Owns: their failures in our words, pages of keys and deletes, and the watch over calls that would wait for ever.
 * May import: errors, env, flow, store.
 * Promises: a call ends; what an SDK says becomes one of our codes or `unknown`.
 */
export { type CloudCall, type CloudError, cloudFailure, isNoVerdict, timeoutMsDefault } from "./failure.js";
export { deleteEach, KeyPage } from "./keys.js";
export { StallWatch } from "./stall-watch.js";
