"""Sealed slices (FORMAT.md 11): each has its checksum beside it, tied to its place, so that a rank that knows where it lies reads it
alone, without the slice table."""
from __future__ import annotations

import struct
from typing import Any, NamedTuple, Sequence

from ..errors import corrupt
from .checksum import crc32
from .descriptor import Descriptor, Named
from .keys import batch_key

SEAL_BYTES = 8
SEALED = 2
#: Shorter slices are not worth eight bytes each.
_SEALED_BYTES_MIN = 4_096
_SEAL = struct.Struct("<II")


class SliceEntry(NamedTuple):
    """One entry of the slice table."""

    offset: int
    length: int
    crc: int
    raw_length: int
    encoding: int
    #: Where at least 0: the slice is checked by its seal, which must say this, and not by `crc`.
    owner: int = -1


def owner_crc(namespace: str, d: Named, cell: int) -> int:
    """CRC-32 of the text that says whose slice it is: another batch's, or another place's, is noticed."""
    return crc32(f"{namespace}/{d.producer}-{d.epoch}-{d.seq}-{d.incarnation}/{cell}".encode())


def stride_for(slices: Sequence[Any], bytes_max: int) -> int | None:
    """What each slice takes in its object, if they are to be sealed: all have one length."""
    length = len(slices[0]) if slices else 0
    is_uniform = all(len(piece) == length for piece in slices)
    return length + SEAL_BYTES if is_uniform and _SEALED_BYTES_MIN <= length <= bytes_max - SEAL_BYTES else None


def make_seal(namespace: str, d: Named, cell: int, crc: int) -> bytes:
    """What is stored behind a slice whose CRC-32 is `crc`."""
    # In this order: a CRC-32 over some bytes and then their own CRC-32 is the same whatever the bytes are, and the table's runs over both.
    return _SEAL.pack(owner_crc(namespace, d, cell), crc)


def open_sealed(stored: Any, where: str, owner: int) -> Any:
    """The slice in its stored bytes, checked by its seal alone."""
    length = len(stored) - SEAL_BYTES
    found_owner, crc = _SEAL.unpack_from(stored, length)
    if found_owner != owner:
        raise corrupt(where, "what lies at the place of a slice is not that slice of this batch")
    piece = memoryview(stored)[:length]
    found = crc32(piece)
    if found != crc:
        raise corrupt(where, "a slice does not match its checksum", expected=crc, found=found)
    return piece


class SealedTable:
    """Stands in for the slice table of an extent whose slices are sealed and of one length: nothing is read."""

    __slots__ = ("where", "_namespace", "_descriptor", "_first_cell", "_stride", "_end")

    def __init__(self, namespace: str, descriptor: Descriptor, extent: int, first_cell: int) -> None:
        self.where = batch_key(descriptor, extent)
        self._namespace = namespace
        self._descriptor = descriptor
        self._first_cell = first_cell
        self._stride = descriptor.stride or 0
        self._end = descriptor.extents[extent].table

    def entry(self, i: int) -> SliceEntry:
        """Entry of the i-th slice of this extent."""
        offset = i * self._stride
        if offset + self._stride > self._end:
            raise corrupt(self.where, f"slices of {self._stride} bytes do not fit before its table")
        owner = owner_crc(self._namespace, self._descriptor, self._first_cell + i)
        return SliceEntry(offset, self._stride, 0, self._stride - SEAL_BYTES, SEALED, owner)
