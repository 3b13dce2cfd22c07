"""What a source costs its loader, as figures that are read at each scrape. Twin of src/plan/load/source-metrics.ts."""
from __future__ import annotations

from typing import Protocol

from .instruments import Watched, is_heard


class Loading(Protocol):
    """What is asked of a loader."""

    @property
    def labels(self) -> dict[str, str]: ...

    @property
    def samples(self) -> int: ...

    @property
    def faults(self) -> int: ...

    @property
    def read_seconds(self) -> float: ...

    @property
    def transform_seconds(self) -> float: ...


_loaders = Watched()


def watch(loader: Loading) -> None:
    """Tells of a loader until it is forgotten."""
    if not is_heard():
        return
    _loaders.counter("batchweave.source.samples", "{samples}", "Samples used.", lambda one: one.samples)
    _loaders.counter("batchweave.source.faults", "{faults}", "Samples that were left out.", lambda one: one.faults)
    _loaders.counter("batchweave.source.read", "s", "Time until shards gave samples, summed over lanes.", lambda one: one.read_seconds)
    _loaders.counter("batchweave.source.transform", "s", "Time in transforms, summed over threads.", lambda one: one.transform_seconds)
    _loaders.add(loader)


def forget(loader: Loading) -> None:
    """It has ended."""
    _loaders.forget(loader)
