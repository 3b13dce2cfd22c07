"""A producer's figures and spans. Twin of src/namespace/producer-metrics.ts."""
from __future__ import annotations

import time

from .instruments import Watched, count, is_heard, record, tell_span

_producers = Watched()


class ProducerMetrics:
    """What is told of one producer, by the producer. What is in flight and how old the last commit is moves while nothing happens."""

    def __init__(self, namespace: str, producer: str, lane: int | None) -> None:
        self.labels = {"namespace": namespace, "role": "producer", "producer": producer, **({} if lane is None else {"lane": str(lane)})}
        #: Wall clock at which batches in flight were accepted, their bytes, and from when to when they were uploaded.
        self._accepted: dict[int, tuple[float, int]] = {}
        self._uploads: dict[int, tuple[float, float]] = {}
        self._last = time.monotonic()
        _producers.gauge(
            "batchweave.producer.commit.age", "s", "Since a batch of this producer was last seen committed, or since it was opened.",
            lambda one: time.monotonic() - one._last,
        )
        _producers.gauge("batchweave.producer.in.flight.batches", "{batches}", "Accepted and not seen committed.", lambda one: len(one._accepted))
        _producers.gauge(
            "batchweave.producer.in.flight", "By", "Bytes of those.", lambda one: sum(size for _, size in list(one._accepted.values()))
        )
        _producers.add(self)

    def accepted(self, seq: int, size: int) -> None:
        if not self._accepted:
            self._last = time.monotonic()  # who had nothing to commit was not late with it
        self._accepted[seq] = (time.time(), size)

    def uploaded(self, seq: int, size: int, seconds: float) -> None:
        now = time.time()
        self._uploads[seq] = (now - seconds, now)
        count("batchweave.uploaded", "By", "Payload bytes uploaded.", size, self.labels)
        record("batchweave.upload", "Time per batch upload.", seconds, self.labels)

    def committed(self, seq: int, version: int) -> None:
        self._last = time.monotonic()
        now = time.time()
        begun, size = self._accepted.pop(seq, (now, 0))
        upload = self._uploads.pop(seq, None)
        count("batchweave.batches.committed", "{committed}", "Batches seen committed.", 1, self.labels)
        record("batchweave.commit.latency", "From accepted to seen committed.", now - begun, self.labels)
        attributes = {"batchweave.producer": self.labels["producer"], "batchweave.seq": seq, "batchweave.bytes": size, "batchweave.version": version}
        parts = [] if upload is None else [
            ("batchweave.queue", begun, max(begun, upload[0])), ("batchweave.upload", *upload), ("batchweave.commit", min(upload[1], now), now),
        ]
        tell_span("batchweave.batch", begun, now, attributes, parts)

    def ended(self) -> None:
        _producers.forget(self)


def producer_metrics(namespace: str, producer: str, lane: int | None = None) -> ProducerMetrics | None:
    """None: no provider would listen."""
    return ProducerMetrics(namespace, producer, lane) if is_heard() else None
