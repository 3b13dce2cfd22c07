/** OpenTelemetry's SDK for the commands: metrics and spans go to an OTLP endpoint. The library itself knows the API only. */
import { metrics, trace } from "@opentelemetry/api";
import { BatchWeaveError, systemEnv } from "../index.js";

/** Ends the export, after what is left was sent. */
export interface Telemetry {
  close(): Promise<void>;
}

/** Time that a command which is done still takes for its last figures. */
const closeMsMax = 1_000;
const intervalMs = 10_000;

/** Where metrics and spans go: what was asked for, or what OpenTelemetry's own variable says; undefined: nowhere. */
export function otlpEndpoint(asked: string | undefined): string | undefined {
  const endpoint = asked ?? process.env["OTEL_EXPORTER_OTLP_ENDPOINT"];
  return endpoint === undefined || endpoint === "" || process.env["OTEL_SDK_DISABLED"] === "true"
    ? undefined
    : endpoint;
}

/** Registers providers that send to `endpoint`, such as `http://localhost:4318`. Before any registry is made. */
export async function startTelemetry(endpoint: string, command: string): Promise<Telemetry> {
  if (!/^https?:\/\/[^/]/.test(endpoint))
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `The OTLP endpoint must be an http: or https: URL, such as http://localhost:4318, not ${JSON.stringify(endpoint)}.`,
      { endpoint },
    );
  const [metric, span, metricExport, spanExport, { resourceFromAttributes }] = await Promise.all([
    import("@opentelemetry/sdk-metrics"),
    import("@opentelemetry/sdk-trace-base"),
    import("@opentelemetry/exporter-metrics-otlp-http"),
    import("@opentelemetry/exporter-trace-otlp-http"),
    import("@opentelemetry/resources"),
  ]).catch((cause: unknown) => {
    throw new BatchWeaveError(
      "MISSING_PACKAGE",
      "Metrics and spans over OTLP need OpenTelemetry's SDK, which was left out of this installation. Install without --omit=optional, or leave OTLP out.",
      { package: "@opentelemetry/sdk-metrics" },
      cause,
    );
  });
  const base = endpoint.replace(/\/+$/, "");
  const resource = resourceFromAttributes({
    "service.name": process.env["OTEL_SERVICE_NAME"] ?? "batchweave",
    "batchweave.command": command,
  });
  const meters = new metric.MeterProvider({
    resource,
    readers: [
      new metric.PeriodicExportingMetricReader({
        exporter: new metricExport.OTLPMetricExporter({ url: `${base}/v1/metrics` }),
        exportIntervalMillis: intervalMs,
        exportTimeoutMillis: intervalMs - 1_000,
      }),
    ],
  });
  const tracers = new span.BasicTracerProvider({
    resource,
    spanProcessors: [new span.BatchSpanProcessor(new spanExport.OTLPTraceExporter({ url: `${base}/v1/traces` }))],
  });
  metrics.setGlobalMeterProvider(meters);
  trace.setGlobalTracerProvider(tracers);
  return {
    close: async () => {
      const ends = [meters.shutdown({ timeoutMillis: closeMsMax }), tracers.shutdown()];
      const done = new AbortController();
      const sent = Promise.allSettled(ends).finally(() => done.abort());
      // An endpoint that is away is not waited for.
      await Promise.race([sent, systemEnv.sleep(closeMsMax, done.signal).catch(() => {})]);
    },
  };
}
