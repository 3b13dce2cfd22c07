"""A rank's figures and spans for OpenTelemetry's API, where that is installed and a provider is registered; otherwise nothing. Twin of src/namespace/consumer-metrics.ts.

The names are those of the TypeScript side: `batchweave.data.wait` is `batchweave_data_wait_seconds_total` in Prometheus.
"""
from __future__ import annotations

import time
import weakref
from typing import Any, Callable, Iterable, Protocol

try:
    from opentelemetry import metrics as _metrics
    from opentelemetry import trace as _trace
except ImportError:  # it is optional
    _metrics = None
    _trace = None


class Told(Protocol):
    """What is asked of a consumer whenever somebody looks, so that it moves while the rank waits."""

    waited: float

    @property
    def waiting(self) -> float: ...

    @property
    def labels(self) -> dict[str, str]: ...

    def facts(self) -> dict[str, Any]: ...


_ranks: "weakref.WeakSet[Any]" = weakref.WeakSet()
_instruments: dict[str, Any] = {}


def _observed(read: Callable[[Any], float]) -> Callable[[Any], Iterable[Any]]:
    def callback(_: Any) -> Iterable[Any]:
        return [_metrics.Observation(read(rank), rank.labels) for rank in list(_ranks)]

    return callback


def watch(rank: Told) -> bool:
    """Tells of a rank until it is forgotten; False: nobody would listen."""
    if _metrics is None:
        return False
    if not _instruments:
        meter = _metrics.get_meter("batchweave")
        _instruments["wait"] = meter.create_observable_counter(
            "batchweave.data.wait", [_observed(lambda rank: rank.waited + rank.waiting)], "s",
            "Exposed data wait: how long next() has blocked, the wait of this moment included.",
        )
        _instruments["waiting"] = meter.create_observable_gauge(
            "batchweave.data.waiting", [_observed(lambda rank: rank.waiting)], "s", "How long next() has blocked by now; 0 while the trainer computes.",
        )
        _instruments["lag"] = meter.create_observable_gauge(
            "batchweave.lag.steps", [_observed(lambda rank: rank.facts()["lagSteps"])], "1", "Visible steps that this rank has not taken yet.",
        )
        _instruments["step"] = meter.create_observable_gauge(
            "batchweave.rank.step", [_observed(lambda rank: rank.facts()["step"])], "1", "First step of this rank's next share.",
        )
        _instruments["requests"] = meter.create_observable_counter(
            "batchweave.store.requests", [_observed(lambda rank: rank.facts()["requests"])], "1", "Requests for slices to the object store.",
        )
        _instruments["received"] = meter.create_observable_counter(
            "batchweave.store.received", [_observed(lambda rank: rank.facts()["readBytes"])], "By", "Bytes of slices received from the object store.",
        )
        _instruments["shares"] = meter.create_counter("batchweave.shares", "1", "Shares handed to the trainer.")
        _instruments["bytes"] = meter.create_counter("batchweave.share", "By", "Bytes handed to the trainer.")
        _instruments["blocked"] = meter.create_histogram("batchweave.share.wait", "s", "How long next() blocked for a share.")
    _ranks.add(rank)
    return True


def forget(rank: Told) -> None:
    """It is closed."""
    _ranks.discard(rank)


def handed_out(rank: Told, iteration: int, nbytes: int, waited: float) -> None:
    """A share was handed to the loop after `waited` seconds."""
    labels = rank.labels
    _instruments["shares"].add(1, labels)
    _instruments["bytes"].add(nbytes, labels)
    _instruments["blocked"].record(waited, labels)
    now = time.time_ns()
    begun = now - int(waited * 1e9)
    attributes = {"batchweave.rank": int(labels["rank"]), "batchweave.iteration": iteration, "batchweave.bytes": nbytes}
    span = _trace.get_tracer("batchweave").start_span("batchweave.share", start_time=begun, attributes=attributes)
    if span.is_recording():
        inner = _trace.get_tracer("batchweave").start_span(
            "batchweave.wait", context=_trace.set_span_in_context(span), start_time=begun
        )
        inner.end(now)
    span.end(now)
