"""Folders that litdata.optimize wrote, as samples: read by litdata itself, whose chunks have many layouts."""
from __future__ import annotations

import os
from typing import Any, Iterator

from ..errors import BatchWeaveError
from .source import assert_reaches


class LitDataSamples:
    """A place is a number of samples."""

    def __init__(self, folder: str) -> None:
        self.name = os.path.basename(os.path.normpath(folder))
        try:
            from litdata import StreamingDataset
        except ImportError:
            raise BatchWeaveError("MISSING_PACKAGE", "Reading LitData needs its package: run pip install litdata.", {"package": "litdata"}) from None
        self._dataset: Any = StreamingDataset(folder, shuffle=False)

    def total(self) -> int | None:
        return len(self._dataset)

    def read(self, after: Any) -> Iterator[tuple[Any, Any]]:
        assert_reaches(self.name, len(self._dataset), after or 0)
        for i in range(after or 0, len(self._dataset)):
            sample = self._dataset[i]
            yield sample if isinstance(sample, (dict, bytes, str)) else {"value": sample}, i + 1
