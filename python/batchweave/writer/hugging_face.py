"""Hugging Face datasets as samples."""
from __future__ import annotations

from typing import Any, Iterator

from ..errors import BatchWeaveError
from .source import assert_reaches


class HuggingFace:
    """A place is a number of samples. A map-style dataset is asked for the next one; an iterable one passes over those before (`skip`)."""

    def __init__(self, dataset: Any, split: str) -> None:
        self.name = dataset if isinstance(dataset, str) else "dataset"
        if isinstance(dataset, str):
            try:
                from datasets import load_dataset
            except ImportError:
                raise BatchWeaveError(
                    "MISSING_PACKAGE", "Loading a dataset by name needs the package datasets: run pip install datasets.", {"package": "datasets"}
                ) from None
            dataset = load_dataset(dataset, split=split, streaming=True)
        elif isinstance(dataset, dict):
            dataset = dataset[split]
        self._dataset = dataset

    def total(self) -> int | None:
        # An iterable one inherits torch's __getitem__, and no length.
        return len(self._dataset) if hasattr(self._dataset, "__len__") else None

    def read(self, after: Any) -> Iterator[tuple[Any, Any]]:
        done = after or 0
        total = self.total()
        if total is not None:
            assert_reaches(self.name, total, done)
            for i in range(done, total):
                yield self._dataset[i], i + 1
            return
        for i, sample in enumerate(self._dataset.skip(done) if done else self._dataset, done + 1):
            yield sample, i
