"""Rows that lie one after another in memory, all with the same header, as one array per tensor: no row is decoded by itself.

Batches are written so: slices of one length, and a rank's rows come with one range read. What is not so is left to share.py, row by row.
"""
from __future__ import annotations

from typing import Any

from .tensors import numpy_type, read_layout, torch_type


def stack_rows(joined: Any, slices: int, rows: int, kind: str, where: str) -> dict[str, Any] | None:
    """Tensors by name for all rows, views of `joined` where their shape allows it; None where slices differ.

    Chunks of a row are joined along the sequence, rows stacked in front, as `Share.batch` says.
    """
    size, rest = divmod(len(joined), slices)
    if rest:
        return None
    entries, at = read_layout(joined[:size], where)
    lib: Any
    if kind == "torch":
        import torch as lib

        table = lib.frombuffer(joined, dtype=lib.uint8).view(slices, size)
        is_same = lib.equal(table[:, :at], table[:1, :at].expand(slices, at))
    else:
        import numpy as lib

        table = lib.frombuffer(joined, dtype="u1").reshape(slices, size)
        is_same = bool((table[:, :at] == table[0, :at]).all())
    if not is_same:
        return None
    chunks = slices // rows
    found = {}
    for name, dtype, shape, begin, end in entries:
        if begin == end or (not shape and chunks > 1):
            return None
        try:
            flat = table[:, at + begin : at + end].view((torch_type if kind == "torch" else numpy_type)(dtype))
        except (RuntimeError, ValueError, TypeError):
            return None  # rows whose distance is no multiple of the element
        if len(shape) < 2:
            found[name] = flat.reshape(rows, *(chunks * n for n in shape))
            continue
        first, second, *others = shape
        grid = flat.reshape(rows, chunks, first, second, *others)
        if chunks > 1:
            grid = grid.swapaxes(1, 2)
        found[name] = grid.reshape(rows * first, chunks * second, *others)
    return found
