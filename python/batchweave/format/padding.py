"""Padding rows (FORMAT.md 13): rows that a writer added to fill its last batch. They hold tensors, so that they join, and say that they are none."""
from __future__ import annotations

from typing import Any, Mapping

from ..errors import BatchWeaveError
from .tensors import read_layout

#: In the texts of a slice: the row it belongs to is no sample.
PADDING = "batchweave.padding"
_SOUGHT = PADDING.encode()


def is_padding(data: Any, metadata: Mapping[str, str]) -> bool:
    """Whether a slice is part of a padding row. One of plain bytes has none."""
    return PADDING in metadata or len(data) == 0


def slice_is_padding(data: Any) -> bool:
    """The same of a slice that is not decoded, and may hold anything."""
    if len(data) == 0:
        return True
    view = memoryview(data)
    size = int.from_bytes(view[:8], "little")
    if size > len(view) or _SOUGHT not in bytes(view[8 : 8 + size]):
        return False
    try:
        return PADDING in read_layout(view, "this slice")[1]
    except BatchWeaveError:
        return False
