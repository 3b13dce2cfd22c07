"""OpenTelemetry's SDK for the commands: figures for Prometheus to fetch, figures and spans to an OTLP endpoint. The library itself knows the API only."""
from __future__ import annotations

import argparse
import os
import re
from typing import Any, Callable

from ..errors import BatchWeaveError, invalid

_INTERVAL_MS = 10_000
#: Time that a command which is done still takes for its last figures.
_CLOSE_MS = 1_000


def add_telemetry(command: Any) -> None:
    """The options of commands that run for long."""
    command.add_argument("--metrics", metavar="[HOST:]PORT", help="Serve figures for Prometheus (default host: 127.0.0.1). Needs batchweave[metrics].")
    command.add_argument(
        "--otlp", metavar="URL", help="Send figures and spans there, such as http://localhost:4318 (default: OTEL_EXPORTER_OTLP_ENDPOINT). Needs batchweave[metrics]."
    )


def start_telemetry(args: argparse.Namespace) -> Callable[[], None]:
    """Registers what the options ask for, before anything is opened; the result ends it."""
    port = getattr(args, "metrics", None)
    endpoint = getattr(args, "otlp", None) or (os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") if hasattr(args, "otlp") else None)
    if port is None and not endpoint:
        return lambda: None
    place = re.fullmatch(r"(?:(.+):)?([0-9]{1,5})", port) if port is not None else None
    if port is not None and (place is None or int(place[2]) > 65_535):
        raise invalid(f"--metrics must be PORT or HOST:PORT, such as 0.0.0.0:9464, not {port!r}.")
    if endpoint and not re.match(r"https?://[^/]", endpoint):
        raise invalid(f"The OTLP endpoint must be an http: or https: URL, such as http://localhost:4318, not {endpoint!r}.")
    try:
        return _start(place, endpoint)
    except ImportError as error:
        message = f"Metrics need OpenTelemetry's SDK, which is not installed ({error.name}): pip install 'batchweave[metrics]'."
        raise BatchWeaveError("MISSING_PACKAGE", message, {"package": "opentelemetry-sdk"}) from None


def _start(place: "re.Match[str] | None", endpoint: str | None) -> Callable[[], None]:
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource

    resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "batchweave")})
    readers: list[Any] = []
    ends: list[Callable[[], Any]] = []
    if place is not None:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from prometheus_client import start_http_server

        host = (place[1] or "127.0.0.1").strip("[]")
        readers.append(PrometheusMetricReader())
        try:
            server, _ = start_http_server(int(place[2]), host)
        except OSError as error:
            raise invalid(f"Figures cannot be served on {host}:{place[2]}: {error.strerror}. Choose another port.") from None
        ends.append(server.shutdown)
    if endpoint:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        base = endpoint.rstrip("/")
        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter(f"{base}/v1/metrics"), export_interval_millis=_INTERVAL_MS))
        tracers = TracerProvider(resource=resource)
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{base}/v1/traces")))
        trace.set_tracer_provider(tracers)
        ends.append(lambda: tracers.force_flush(_CLOSE_MS))
    meters = MeterProvider(readers, resource=resource)
    metrics.set_meter_provider(meters)
    ends.insert(0, lambda: meters.shutdown(_CLOSE_MS))

    def end() -> None:
        for one in ends:
            try:
                one()
            except Exception:  # noqa: BLE001: the last figures are not worth a failure
                pass

    return end
