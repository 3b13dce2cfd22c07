"""Padding rows (FORMAT.md 13): rows that a writer added to fill its last batch. They hold tensors, so that they join, and say that they are none."""
from __future__ import annotations

from typing import Any, Mapping

#: In the texts of a slice: the row it belongs to is no sample.
PADDING = "batchweave.padding"


def is_padding(data: Any, metadata: Mapping[str, str]) -> bool:
    """Whether a slice is part of a padding row. One of plain bytes has none."""
    return PADDING in metadata or len(data) == 0
