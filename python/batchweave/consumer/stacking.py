"""Rows that lie one after another in memory, all with the same header, as one array per tensor: no row is decoded by itself.

Batches are written so: slices of one length, and a rank's rows come with one range read. What is not so is left to share.py, row by row.
"""
from __future__ import annotations

from typing import Any, Mapping, Sequence

from ..format.tensors import numpy_type, read_layout, torch_type

#: The shapes of one slice's tensors by name, where all slices have the same.
Shapes = Mapping[str, tuple[int, ...]]


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


def shapes_of(slices: Sequence[Any], where: str) -> Shapes | None:
    """What the tensors of every slice look like; None where slices differ."""
    entries, at = read_layout(slices[0], where)
    head = bytes(slices[0][:at])
    if any(bytes(other[:at]) != head for other in slices):
        return None
    return {name: tuple(shape) for name, _, shape, _, _ in entries}


def is_stack_of(batch: Mapping[str, Any], shapes: Shapes, slices: int) -> bool:
    """Whether `unstack_rows` can take `batch` apart: it may have been changed since it was made."""
    for name, shape in shapes.items():
        elements = slices
        for n in shape:
            elements *= n
        found = 1
        for n in getattr(batch.get(name), "shape", (-1,)):
            found *= n
        if found != elements:
            return False
    return True


def unstack_rows(batch: Mapping[str, Any], shapes: Shapes, slices: int, rows: int) -> list[dict[str, Any]]:
    """The tensors of each slice: views of those that `stack_rows`, or `Share.batch`, made of them."""
    chunks = slices // rows
    found: list[dict[str, Any]] = [{} for _ in range(slices)]
    for name, shape in shapes.items():
        if len(shape) < 2:
            grid = batch[name].reshape(rows, chunks, *shape)
        else:
            first, second, *others = shape
            grid = batch[name].reshape(rows, first, chunks, second, *others).swapaxes(1, 2)
        for i in range(slices):
            found[i][name] = grid[i // chunks, i % chunks, ...]
    return found
