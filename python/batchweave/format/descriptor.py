"""Descriptors: what a manifest knows of a batch. Compact lists on the store, named tuples in memory."""
from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import BatchWeaveError, corrupt
from .stored_json import SAFE_INTEGER_MAX, as_id, as_integer, as_list, as_name, as_tuple, check_unknown

#: Extents of one batch at most.
EXTENTS_MAX = 1_000


class BatchName(NamedTuple):
    """Whose batch it is, and which: what its bytes are tied to."""

    producer: str
    epoch: int
    incarnation: str
    seq: int


class Extent(NamedTuple):
    """One object of a batch, in the order in which it is stored."""

    cells: int
    size: int
    #: Where its slice table begins.
    table: int
    #: CRC-32 of `[table, size - 8)`: ties the object to the commit.
    check: int


class Descriptor(NamedTuple):
    """A committed or staged batch."""

    producer: str
    epoch: int
    incarnation: str
    seq: int
    base: int
    attempt: int
    extents: tuple[Extent, ...] = ()
    #: Position in the namespace's origins when an ancestor holds the objects.
    origin: int | None = None
    #: Every slice of the batch is sealed and takes so many bytes.
    stride: int | None = None
    #: Trailing elements that this version does not know, kept.
    rest: tuple[Any, ...] = ()

    def stored(self) -> list[Any]:
        """The compact form."""
        items: list[Any] = [*self[:6], [list(extent) for extent in self.extents]]
        if self.origin is not None or self.stride is not None or self.rest:
            items.append(-1 if self.origin is None else self.origin)
        if self.stride is not None:
            items.append(self.stride)
        return [*items, *self.rest]


#: Both say whose batch it is.
Named = BatchName | Descriptor


def is_stride(value: Any) -> bool:
    """A stride holds a slice and its seal of 8 bytes; what is none is an element of a kind to come."""
    return type(value) is int and 8 < value <= SAFE_INTEGER_MAX


def decode_descriptor(value: Any, where: str) -> Descriptor:
    """Reads the compact form: [producer, epoch, incarnation, seq, base, attempt, extents, origin?, stride?, ...]"""
    d = as_list(value, where, "a descriptor")
    producer, epoch, incarnation, seq, base, attempt, listed = d[:7] if len(d) >= 7 else [*d, *[None] * (7 - len(d))]
    as_name(producer, where, "descriptor.producer")
    as_integer(epoch, where, "descriptor.epoch")
    as_integer(seq, where, "descriptor.seq")
    as_integer(base, where, "descriptor.base")
    as_integer(attempt, where, "descriptor.attempt")
    as_list(listed, where, "descriptor.extents")
    # A step that was trimmed before its fork was made has no extents and no incarnation: no reader looks it up.
    if listed or incarnation != "":
        as_id(incarnation, where, "descriptor.incarnation")
        if not 1 <= len(listed) <= EXTENTS_MAX:
            raise corrupt(where, f"a batch has {len(listed)} extents")
    extents = tuple([_decode_extent(extent, where) for extent in listed])
    if len(d) <= 7:
        return Descriptor(producer, epoch, incarnation, seq, base, attempt, extents)
    origin = None if d[7] == -1 else as_integer(d[7], where, "descriptor.origin")
    stride = d[8] if len(d) > 8 and is_stride(d[8]) else None
    rest = d[8:] if stride is None else d[9:]
    check_unknown(rest, where)
    return Descriptor(producer, epoch, incarnation, seq, base, attempt, extents, origin, stride, tuple(rest))


def _decode_extent(value: Any, where: str) -> Extent:
    if isinstance(value, dict):
        raise BatchWeaveError(
            "UNSUPPORTED_FORMAT",
            f"{where} references a batch by a kind of extent this BatchWeave does not know. Install a newer version.",
            {"key": where},
        )
    extent = Extent._make(as_tuple(value, 4, where, "extent"))
    for field, n in zip(Extent._fields, extent):
        as_integer(n, where, f"extent.{field}")
    return extent
