"""The slices of a share become one array or tensor a field, by the rules that they carry (join_rule.py)."""
from __future__ import annotations

from typing import Any, Mapping, Sequence, Union

from .join_rule import FieldJoin, Joins, cannot, shape_rule


def rule_of(name: str, slices: Sequence[Mapping[str, Any]], joins: Sequence[Joins], chunks: int) -> FieldJoin:
    """The one rule that all slices that hold a field agree on."""
    present = [i for i, held in enumerate(slices) if name in held]
    found = {joins[i].get(name, ...) for i in present}
    if len(found) > 1:
        raise cannot(name, "its slices say different things about how")
    (rule,) = found
    if rule is None:
        raise cannot(name, "its rule is of a kind that this version does not know")
    if rule is ...:
        rule = shape_rule(name, slices[present[0]][name].shape, chunks)
    if len(present) < len(slices) and not rule.optional:
        raise cannot(name, f"{len(slices) - len(present)} of {len(slices)} slices do not hold it")
    return rule


def join_rows(name: str, slices: Sequence[Mapping[str, Any]], joins: Sequence[Joins], rows: int) -> list[Any]:
    """Chunks joined: one array or tensor a row, None where a row holds none."""
    chunks = len(slices) // rows
    rule = rule_of(name, slices, joins, chunks)
    found: list[Any] = []
    for at in range(0, len(slices), chunks):
        parts = [held[name] for held in slices[at : at + chunks] if name in held]
        if rule.fold and isinstance(rule.chunks, int) and len(parts) > 1:
            parts = _unfolded(name, parts, rule.chunks)
        found.append(_join(name, parts, rule.chunks, rule) if parts else None)
    return found


def join_field(name: str, slices: Sequence[Mapping[str, Any]], joins: Sequence[Joins], rows: int) -> Any:
    """Chunks joined, then rows."""
    rule = rule_of(name, slices, joins, len(slices) // rows)
    parts = [part for part in join_rows(name, slices, joins, rows) if part is not None]
    if rule.rows == "stack":
        return _join(name, [part[None] for part in parts], 0, rule)
    return _join(name, parts, rule.rows, rule)


def _unfolded(name: str, parts: list[Any], axis: int) -> list[Any]:
    first, second = [], []
    for part in parts:
        length = part.shape[axis]
        if length % 2:
            raise cannot(name, f"a part of {length} has no two halves")
        before = (slice(None),) * axis
        first.append(part[(*before, slice(0, length // 2))])
        second.append(part[(*before, slice(length // 2, length))])
    return first + second[::-1]


def _join(name: str, parts: list[Any], axis: Union[int, str], rule: FieldJoin) -> Any:
    first = parts[0]
    lib = _library(first)
    if any(part.dtype != first.dtype for part in parts):
        raise cannot(name, "their dtypes differ")
    if axis == "same":
        if any(part.shape != first.shape or raw_bytes(part) != raw_bytes(first) for part in parts[1:]):
            raise cannot(name, "every chunk of a row was to hold the same, and they differ")
        return first
    assert isinstance(axis, int)
    if rule.ends:
        return _join_ends(name, parts, axis)
    if axis >= first.ndim or any(part.ndim != first.ndim for part in parts):
        raise cannot(name, f"the shapes {[list(part.shape) for part in parts]} have no common axis {axis}")
    if len(parts) == 1:
        return first
    largest = [max(part.shape[i] for part in parts) for i in range(first.ndim)]
    even = [_padded(name, part, [*largest[:axis], part.shape[axis], *largest[axis + 1 :]], rule.pad) for part in parts]
    return lib.cat(even, axis) if lib.__name__ == "torch" else lib.concatenate(even, axis)


def _library(value: Any) -> Any:
    if hasattr(value, "is_floating_point"):
        import torch

        return torch
    import numpy

    return numpy


def raw_bytes(value: Any) -> bytes:
    """The elements of an array or tensor in row-major order."""
    if hasattr(value, "is_floating_point"):
        import torch

        return bytes(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return bytes(value.tobytes())


def _padded(name: str, part: Any, shape: list[int], pad: Union[int, float, None]) -> Any:
    """The array in the first corner of a larger one that is filled with `pad`."""
    if list(part.shape) == shape:
        return part
    if pad is None:
        raise cannot(name, f"one has the shape {list(part.shape)}, and another one is as large as {shape}")
    target = _library(part).full(shape, pad, dtype=part.dtype)
    target[tuple(slice(0, n) for n in part.shape)] = part
    return target


def _join_ends(name: str, parts: list[Any], axis: int) -> Any:
    lists = [part.tolist() for part in parts]
    if axis != 0 or any(part.ndim != 1 or not ends or ends[0] != 0 or type(ends[0]) is not int for part, ends in zip(parts, lists)):
        raise cannot(name, "it is to be running ends, whole numbers that begin with 0")
    joined = [0]
    for ends in lists:
        before = joined[-1]
        joined.extend(before + end for end in ends[1:])
    lib = _library(parts[0])
    try:
        return lib.asarray(joined, dtype=parts[0].dtype)
    except (OverflowError, RuntimeError, ValueError):
        raise cannot(name, f"the end {joined[-1]} is too large for {parts[0].dtype}") from None
