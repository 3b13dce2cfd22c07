/** Spans of what has happened already: begun and ended in one go, with times of the past, so that nothing is open when a process dies. */
import { context, type Span, trace } from "@opentelemetry/api";

/** A span to be told: wall-clock ms, and what it consisted of. */
export interface PastSpan {
  readonly name: string;
  readonly fromMs: number;
  readonly toMs: number;
  readonly attributes?: Readonly<Record<string, string | number | boolean>> | undefined;
  readonly parts?: readonly PastSpan[] | undefined;
}

/** Tells OpenTelemetry a tree of spans, if a provider is registered. */
export function tellSpan(span: PastSpan): void {
  const tracer = trace.getTracer("batchweave");
  const root = tracer.startSpan(span.name, { startTime: span.fromMs, attributes: span.attributes ?? {} });
  // Without a provider, or not sampled: no need to go on.
  if (root.isRecording()) tellParts(root, span.parts ?? []);
  root.end(span.toMs);
}

function tellParts(parent: Span, parts: readonly PastSpan[]): void {
  const within = trace.setSpan(context.active(), parent);
  const tracer = trace.getTracer("batchweave");
  for (const { name, fromMs, toMs, attributes = {}, parts: inner = [] } of parts) {
    const child = tracer.startSpan(name, { startTime: fromMs, attributes }, within);
    tellParts(child, inner);
    child.end(toMs);
  }
}
