"""Slices that lie one after another in memory, all with the same header, as one array per tensor: none is decoded by itself.

Batches are written so: slices of one length, and a rank's rows come with one range read. What is not so is left to format/join.py.
"""
from __future__ import annotations

import importlib
from typing import Any, Collection

from ..errors import BatchWeaveError
from ..format.join_rule import FieldJoin, decode_joins, shape_rule
from ..format.tensors import numpy_type, read_layout, torch_type


def stack_rows(joined: Any, gap: int, slices: int, rows: int, kind: str, where: str, fields: Collection[str] | None) -> dict[str, Any]:
    """Tensors by name for all rows, views of `joined` where their rule allows it; None for those that must be joined part by part. Nothing
    where headers differ."""
    size, rest = divmod(len(joined), slices)
    if rest:
        return {}
    entries, metadata, at = read_layout(joined[: size - gap], where)
    lib: Any = importlib.import_module(kind)
    if kind == "torch":
        table = lib.frombuffer(joined, dtype=lib.uint8).view(slices, size)
        is_same = lib.equal(table[:, :at], table[:1, :at].expand(slices, at))
    else:
        table = lib.frombuffer(joined, dtype="u1").reshape(slices, size)
        is_same = bool((table[:, :at] == table[0, :at]).all())
    if not is_same:
        return {}
    chunks = slices // rows
    joins = decode_joins(metadata, where)
    found: dict[str, Any] = {}
    for name, dtype, shape, begin, end in entries:
        if fields is not None and name not in fields:
            continue
        found[name] = None
        if begin == end:
            continue
        try:
            rule = joins[name] if name in joins else shape_rule(name, shape, chunks)
            if rule is None or rule.ends or (chunks > 1 and (rule.fold or rule.chunks == "same")):
                continue
            flat = table[:, at + begin : at + end].view((torch_type if kind == "torch" else numpy_type)(dtype))
        except (BatchWeaveError, RuntimeError, ValueError, TypeError):
            continue  # no rule, or rows whose distance is no multiple of the element
        if all(isinstance(axis, str) or axis < len(shape) for axis in (rule.chunks, rule.rows)):
            found[name] = _merged(flat, shape, rows, chunks, rule)
    return found


def _merged(flat: Any, shape: tuple[int, ...], rows: int, chunks: int, rule: FieldJoin) -> Any:
    """Every line of `flat` is a slice's tensor. The axis of the chunks goes before theirs and is merged with it, then that of the rows."""
    if chunks == 1:
        grid = flat.reshape(rows, *shape)
    else:
        axis = int(rule.chunks)
        grid = _moved(flat.reshape(rows, chunks, *shape), 1, axis + 1)
        shape = (*shape[:axis], chunks * shape[axis], *shape[axis + 1 :])
        grid = grid.reshape(rows, *shape)
    if rule.rows == "stack":
        return grid
    axis = int(rule.rows)
    return _moved(grid, 0, axis).reshape(*shape[:axis], rows * shape[axis], *shape[axis + 1 :])


def _moved(grid: Any, source: int, target: int) -> Any:
    if source == target:
        return grid
    if hasattr(grid, "movedim"):
        return grid.movedim(source, target)
    import numpy

    return numpy.moveaxis(grid, source, target)
