"""What the fields of slices are joined along (FORMAT.md 13): over the chunks of a row, over rows.

The maker of the slices writes it into their metadata. A reader never guesses an axis.
"""
from __future__ import annotations

import math
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Mapping, NamedTuple, Sequence, Union

from ..errors import BatchWeaveError, invalid
from .stored_json import SAFE_INTEGER_MAX, dump_json, load_json

#: Name of the rules in a slice's metadata.
JOINS = "batchweave.join"


class FieldJoin(NamedTuple):
    """How the parts of one field become one tensor.

    chunks:   over the chunks of a row: along this axis, in the order of the chunks; "same": every chunk holds it whole, taken once.
    rows:     over rows: along this axis; "stack": along a new one in front.
    fold:     each part is two halves along the chunks' axis: first halves in the order of the chunks, then second ones in reverse.
    ends:     running ends that begin with 0: a later part goes on from the last end before it.
    pad:      parts may differ along the other axes; the shorter ones end in this number.
    optional: a slice without it holds none of it.
    """

    chunks: Union[int, str]
    rows: Union[int, str]
    fold: bool = False
    ends: bool = False
    pad: Union[int, float, None] = None
    optional: bool = False


#: Rules by field; None where one is of a kind to come.
Joins = Mapping[str, Union[FieldJoin, None]]
_PADDED = ("U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F32", "F64")
_FLAGS = ("fold", "ends", "optional")
_SLOT_FIELDS = ("tokens", "input_ids", "labels", "position_ids", "segment_ids", "loss_mask")
_IMAGE_FIELDS = ("pixel_values", "image_bytes", "image_grid", "image_rank", "image_target")


def cannot(name: str, why: str) -> BatchWeaveError:
    """INVALID_ARGUMENT: a field that cannot be joined."""
    return invalid(
        f"The parts of {name} cannot be joined: {why}. share.per_row({name!r}) keeps rows apart, share.data slices; or write it with a rule: writer(pad={{{name!r}: 0}}) "
        "extends rows to the longest, and joins says along which axes."
    )


def encode_joins(joins: Mapping[str, Mapping[str, Any]], shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, str]) -> str:
    """The rules as they are written into metadata. Refuses what does not fit the tensors."""
    for name, value in joins.items():
        join = _rule(dict(value))
        if name not in shapes:
            raise cannot(name, "it is not among the tensors")
        if join is None:
            raise cannot(name, f"its rule is {value!r}, which no reader knows")
        for axis in (join.chunks, join.rows):
            if isinstance(axis, int) and axis >= len(shapes[name]):
                raise cannot(name, f"it has no axis {axis}")
        if join.pad and dtypes[name] not in _PADDED:
            raise cannot(name, f"{join.pad} cannot fill up {dtypes[name]}")
        if join.ends and (len(shapes[name]) != 1 or join.rows != 0):
            raise cannot(name, "running ends have the axis 0 alone")
    return dump_json({name: dict(value) for name, value in joins.items()}).decode()


def _rule(value: Any) -> FieldJoin | None:
    if not isinstance(value, dict) or not set(value) <= {"chunks", "rows", "pad", *_FLAGS}:
        return None
    chunks, rows, pad = value.get("chunks"), value.get("rows"), value.get("pad")
    is_known = (_is_axis(chunks) or chunks == "same") and (_is_axis(rows) or rows == "stack")
    if not is_known or not all(value.get(flag, True) is True for flag in _FLAGS):
        return None
    if "pad" in value and (isinstance(pad, bool) or not isinstance(pad, (int, float)) or not math.isfinite(pad)):
        return None
    return FieldJoin(chunks, rows, **{flag: flag in value for flag in _FLAGS}, pad=pad)  # type: ignore[arg-type]


def _is_axis(value: Any) -> bool:
    return type(value) is int and 0 <= value <= SAFE_INTEGER_MAX


def decode_joins(metadata: Mapping[str, str], where: str) -> Joins:
    """The rules of a slice's metadata by field."""
    text = metadata.get(JOINS)
    if text is not None:
        found = _read_rules(text)
        if found is None:
            raise BatchWeaveError("CORRUPT", f"{where} is corrupt: its {JOINS} is not rules by name.", {"key": where})
        return found
    # Slices of pipelines from before rules were written say what they are in other words.
    layout, length = metadata.get("layout", ""), metadata.get("seq_length", "")
    is_pipeline = "microbatches" in metadata and "sequences" in metadata and length.isascii() and length.isdigit()
    return pipeline_joins(layout, int(length)) if is_pipeline and layout in ("contiguous", "zigzag", "whole") else {}


@lru_cache(maxsize=256)
def _read_rules(text: str) -> Joins | None:
    try:
        rules = load_json(text.encode())
    except ValueError:
        return None
    return MappingProxyType({name: _rule(rule) for name, rule in rules.items()}) if isinstance(rules, dict) else None


@lru_cache(maxsize=16)
def pipeline_joins(layout: str, seq_length: int) -> Joins:
    """The rules of a pipeline's fields: see pipelineJoins in TypeScript."""
    is_cut = layout != "whole"
    slots = FieldJoin(2 if is_cut else 0, 0, fold=layout == "zigzag")
    once = FieldJoin("same" if is_cut else 0, 0)
    images = FieldJoin(0, 0, optional=True)
    ends = images._replace(ends=True)
    return MappingProxyType({
        **dict.fromkeys(_SLOT_FIELDS, slots),
        "cu_seqlens": once._replace(pad=seq_length),
        "max_seqlen": once,
        **dict.fromkeys(_IMAGE_FIELDS, images),
        "image_cu_seqlens": ends,
        "image_byte_ends": ends,
    })


def shape_rule(name: str, shape: Sequence[int], chunks: int) -> FieldJoin:
    """The rule of slices that say nothing: rows in front; chunks only where the shape leaves one axis."""
    rows: Union[int, str] = "stack" if len(shape) < 2 else 0
    if chunks == 1:
        return FieldJoin("same", rows)
    if len(shape) > 0 and all(n == 1 for n in shape[:-1]):
        return FieldJoin(len(shape) - 1, rows)
    raise cannot(name, f"its slices do not say along which axis chunks are joined, nor does the shape {list(shape)}")
