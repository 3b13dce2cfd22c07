/**
 * observe: what happens, as numbers.
 *
 * Owns: the metrics registry, its Prometheus text and its way to OpenTelemetry's API; spans; the one source of `--metrics`, `info` and progress.
 * May import: errors, env.
 * Promises: every room emits, none reads back to decide anything; bounded memory; what is waited for moves while it is waited for.
 */
export { type Labels, Metrics, type Watched } from "./metrics.js";
export { type PastSpan, tellSpan } from "./spans.js";
