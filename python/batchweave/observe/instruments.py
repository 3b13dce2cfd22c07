"""Instruments of OpenTelemetry's API, each made once, where that is installed; otherwise nothing. Twin of src/observe/otel-instruments.ts.

The names are those of the TypeScript side: `batchweave.data.wait` is `batchweave_data_wait_seconds_total` in Prometheus.
"""
from __future__ import annotations

import threading
import weakref
from typing import Any, Callable, Iterable, Mapping

try:
    from opentelemetry import metrics as _metrics
    from opentelemetry import trace as _trace
except ImportError:  # it is optional
    _metrics = None
    _trace = None

Labels = Mapping[str, str]
_made: dict[str, Any] = {}
_lock = threading.Lock()


def is_heard() -> bool:
    """Whether a provider could listen."""
    return _metrics is not None


def _once(name: str, make: Callable[[Any], Any]) -> Any:
    found = _made.get(name)
    if found is None:
        with _lock:
            found = _made.get(name) or make(_metrics.get_meter("batchweave"))
            _made[name] = found
    return found


def count(name: str, unit: str, text: str, by: float, labels: Labels) -> None:
    """Adds to a counter."""
    if _metrics is not None:
        _once(name, lambda meter: meter.create_counter(name, unit, text)).add(by, labels)


def record(name: str, text: str, seconds: float, labels: Labels) -> None:
    """One duration."""
    if _metrics is not None:
        _once(name, lambda meter: meter.create_histogram(name, "s", text)).record(seconds, labels)


class Watched:
    """Owners that are asked at every scrape, so that a value moves while they wait. Each has `labels`, and goes with its last reference."""

    def __init__(self) -> None:
        self._owners: "weakref.WeakSet[Any]" = weakref.WeakSet()

    def add(self, owner: Any) -> None:
        self._owners.add(owner)

    def forget(self, owner: Any) -> None:
        self._owners.discard(owner)

    def gauge(self, name: str, unit: str, text: str, read: Callable[[Any], float]) -> None:
        if _metrics is not None:
            _once(name, lambda meter: meter.create_observable_gauge(name, [self._callback(read)], unit, text))

    def counter(self, name: str, unit: str, text: str, read: Callable[[Any], float]) -> None:
        if _metrics is not None:
            _once(name, lambda meter: meter.create_observable_counter(name, [self._callback(read)], unit, text))

    def _callback(self, read: Callable[[Any], float]) -> Callable[[Any], Iterable[Any]]:
        def told(_: Any) -> Iterable[Any]:
            return [_metrics.Observation(read(owner), owner.labels) for owner in list(self._owners)]

        return told


def tell_span(name: str, begun: float, ended: float, attributes: dict[str, Any], parts: Iterable[tuple[str, float, float]] = ()) -> None:
    """A span of what has happened already, in seconds of the wall clock, and what it consisted of."""
    if _trace is None:
        return
    tracer = _trace.get_tracer("batchweave")
    span = tracer.start_span(name, start_time=int(begun * 1e9), attributes=attributes)
    if span.is_recording():
        within = _trace.set_span_in_context(span)
        for part, since, until in parts:
            tracer.start_span(part, context=within, start_time=int(since * 1e9)).end(int(until * 1e9))
    span.end(int(ended * 1e9))
