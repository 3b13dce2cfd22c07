"""Reads slices: slice tables first (kept), then as few ranges as possible; every byte is checked before a rank sees it. Twin of
src/consumer/slice-reader.ts."""
from __future__ import annotations

import random
import threading
import time
from functools import partial
from typing import Any, Callable, Iterable, NamedTuple, Sequence, TypeVar, Union

from ..errors import BatchWeaveError, corrupt, is_error
from ..flow.once import Once
from ..format.batch import Footer, decode_footer, decode_slice
from ..format.keys import batch_key
from ..format.manifest import Manifest
from ..format.seal import SEALED, SealedTable, SliceEntry
from ..log.log import Log
from ..log.step_index import BatchPlace
from ..store.hedging import HedgedReads, Read
from .projection import Cell

T = TypeVar("T")

RANGE_BYTES_MAX = 64 * 1024 * 1024
_SHORT_READS_MAX = 4


class Slice(NamedTuple):
    """The bytes of one cell. They may be a view into a larger buffer: copy them to keep one slice of many for long."""

    step: int
    row: int
    chunk: int
    bytes: Any


class Slices(list[Slice]):
    """The slices of one share. `joined`: all their bytes, where they have one length and lie one after another, `gap` bytes apart."""

    __slots__ = ("joined", "gap")

    def __init__(self, slices: Iterable[Slice]) -> None:
        super().__init__(slices)
        self.joined: Any = None
        self.gap = 0


class _Extent(NamedTuple):
    """One object of a batch, and (position in the wanted cells, cell within the object) for each cell that is wanted of it."""

    place: BatchPlace
    number: int
    first_cell: int
    wanted: list[tuple[int, int]]


class _Range(NamedTuple):
    """One range read of one object, and (position in the wanted cells, entry) for what it brings."""

    place: BatchPlace
    key: str
    offset: int
    length: int
    wanted: list[tuple[int, SliceEntry]]


class Prepared(NamedTuple):
    """Where the cells are, and the memory that reading them takes."""

    cells: Sequence[Cell]
    ranges: list[_Range]
    bytes: int


class ReadStats:
    """What was read so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests = 0
        self.bytes = 0

    def add(self, n: int) -> None:
        with self._lock:
            self.requests += 1
            self.bytes += n


def plan_ranges(entries: Sequence[tuple[int, int]], bytes_max: int = RANGE_BYTES_MAX) -> list[tuple[int, int, list[int]]]:
    """Merges slices (offset, length) that touch each other into single reads: (offset, length, which of them)."""
    ranges: list[tuple[int, int, list[int]]] = []
    for i, (offset, length) in enumerate(entries):
        if ranges:
            at, size, wanted = ranges[-1]
            if at + size == offset and (length == 0 or size + length <= bytes_max):
                ranges[-1] = (at, size + length, wanted)
                wanted.append(i)
                continue
        ranges.append((offset, length, [i]))
    return ranges


class SliceReader:
    """Reads the slices of one namespace for one consumer, on many threads."""

    def __init__(self, log: Log, reads_in_flight_max: int = 16, footer_bytes_max: int = 16 * 1024 * 1024) -> None:
        self._log = log
        self._reads = HedgedReads(reads_in_flight_max)
        self._footers: Once[Read[Footer]] = Once(footer_bytes_max)
        self.stats = ReadStats()

    @property
    def hedged_reads(self) -> int:
        """Second reads that were sent."""
        return self._reads.hedger.sent

    def close(self) -> None:
        """Ends the reader's threads."""
        self._reads.close()

    def join(self, until: float) -> None:
        """Waits for them."""
        self._reads.join(until)

    def prepare(self, manifest: Manifest, cells: Sequence[Cell]) -> Prepared:
        """Finds out where the cells are: descriptors from the log, slice tables from the objects."""
        extents = self._extents(manifest, cells)
        tables = [self._begin_table(extent) for extent in extents]
        ranges = []
        memory = 0
        for extent, begun in zip(extents, tables):
            table = begun if isinstance(begun, SealedTable) else self._table(extent, begun)
            entries = [(at, table.entry(cell)) for at, cell in extent.wanted]
            for offset, length, members in plan_ranges([(entry.offset, entry.length) for _, entry in entries]):
                ranges.append(_Range(extent.place, table.where, offset, length, [entries[i] for i in members]))
                memory += length
            memory += sum(entry.raw_length for _, entry in entries if entry.encoding == 1)
        return Prepared(cells, ranges, memory)

    def fetch(self, prepared: Prepared) -> Slices:
        """Reads what was prepared, in the order of its cells."""
        slices = Slices([None] * len(prepared.cells))  # type: ignore[list-item]
        begun = [self._begin_read(r.place, r.key, r.offset, r.length, partial(_cut, r)) for r in prepared.ranges]
        for read in begun:
            data, found = read.result()
            for at, piece in found:
                slices[at] = Slice(*prepared.cells[at], piece)
        if len(begun) == 1:
            _, entry = prepared.ranges[0].wanted[0]
            if all(e.length == entry.length and e.encoding in (0, SEALED) for _, e in prepared.ranges[0].wanted):
                slices.joined, slices.gap = data, entry.length - entry.raw_length
        return slices

    def _extents(self, manifest: Manifest, cells: Sequence[Cell]) -> list[_Extent]:
        """The objects that hold the cells: those of a batch follow each other in row-major order."""
        found: dict[tuple[int, int], _Extent] = {}
        for at, (step, row, chunk) in enumerate(cells):
            place = self._log.locate(manifest, step)
            cell = row * self._log.spec.chunks + chunk
            first = 0
            for number, extent in enumerate(place.descriptor.extents):
                if cell < first + extent.cells:
                    found.setdefault((step, number), _Extent(place, number, first, [])).wanted.append((at, cell - first))
                    break
                first += extent.cells
            else:
                raise corrupt(batch_key(place.descriptor, 0), f"its extents hold {first} slices, and slice {cell} is wanted")
        return list(found.values())

    def _begin_table(self, extent: _Extent) -> Union[Read[Footer], SealedTable]:
        """One read, shared by all who want it and kept for the iterations that follow. Where the descriptor says where the sealed slices are, none."""
        place, number, first_cell, _ = extent
        if place.descriptor.stride is not None:
            return SealedTable(place.namespace, place.descriptor, number, first_cell)
        key = batch_key(place.descriptor, number)
        _, size, table, _ = place.descriptor.extents[number]

        def decode(data: Any) -> Footer:
            return decode_footer(data, key, place.namespace, place.descriptor, number, first_cell)

        def begin() -> tuple[Read[Footer], int]:
            return self._begin_read(place, key, table, size - table, decode, is_small=True), size - table

        return self._footers.get(_table_key(extent), begin)

    def _table(self, extent: _Extent, read: Read[Footer]) -> Footer:
        try:
            return read.result()
        except BaseException:
            self._footers.drop(_table_key(extent), read)
            raise

    def _begin_read(
        self, place: BatchPlace, key: str, offset: int, length: int, check: Callable[[Any], T], is_small: bool = False
    ) -> Read[T]:
        call = partial(self._read_checked, place, key, offset, length, check)
        return self._reads.begin(length, call, getattr(place.store, "is_near", False), is_small)

    def _read_checked(self, place: BatchPlace, key: str, offset: int, length: int, check: Callable[[Any], T]) -> T:
        """Bytes can also be damaged on their way: one more read before the object is called corrupt."""
        try:
            return check(self._read_whole(place, key, offset, length))
        except BatchWeaveError as error:
            if not is_error(error, "CORRUPT"):
                raise
        return check(self._read_whole(place, key, offset, length))

    def _read_whole(self, place: BatchPlace, key: str, offset: int, length: int) -> Any:
        """Exactly the range. A transfer that ended early is tried again; an object that ends early is corrupt."""
        if length == 0:
            return b""
        for attempt in range(1, _SHORT_READS_MAX + 1):
            data = place.store.get_range(key, offset, length)
            self.stats.add(len(data) if data is not None else 0)
            if data is None:
                raise BatchWeaveError(
                    "MISSING_OBJECT",
                    f"{key} is in the log and not in {place.store.uri}. Nothing may delete batches but the reclaimer: restore "
                    "it from a replica or a backup, and run `batchweave verify`.",
                    {"key": key, "uri": place.store.uri},
                )
            if len(data) == length:
                return data
            if attempt < _SHORT_READS_MAX:
                time.sleep(0.01 * 2**attempt * (0.5 + random.random()))
        what = f"{length} bytes are expected at offset {offset}, and only {len(data)} are there"
        raise corrupt(key, what, offset=offset, expected=length, found=len(data))


def _table_key(extent: _Extent) -> str:
    return f"{extent.place.namespace}/{batch_key(extent.place.descriptor, extent.number)}"


def _cut(r: _Range, data: Any) -> tuple[memoryview, list[tuple[int, Any]]]:
    """The bytes of a range read, and the slices in it with their positions, each checked."""
    view = memoryview(data)
    if view.readonly:
        # A share is the trainer's to change, from whatever store it came; only files give memory of one's own.
        view = memoryview(bytearray(view))
    found = []
    for at, entry in r.wanted:
        begin = entry.offset - r.offset
        found.append((at, decode_slice(view[begin : begin + entry.length], r.key, entry)))
    return view, found
