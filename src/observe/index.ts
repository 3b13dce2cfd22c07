/**
 * observe: what happens, as numbers.
 *
 * Owns: the metrics registry and its Prometheus text; the one source of `--metrics`, `info` and progress.
 * May import: errors, env.
 * Promises: everyone emits, nobody reads back to decide anything; bounded memory.
 */
export { type Labels, Metrics } from "./metrics.js";
