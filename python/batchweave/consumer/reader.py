"""Reading slices: descriptors from the log, slice tables from the objects, neighbours in one range read, every byte checked."""
from __future__ import annotations

import random
import threading
import time
from functools import partial
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Sequence, TypeVar

from ..errors import BatchWeaveError, corrupt, is_error
from ..flow.once import Once
from ..flow.threads import Pool
from ..format.batch import Footer, decode_footer, decode_slice
from ..format.keys import EXTENTS, batch_key, stride_of
from ..format.manifest import Manifest
from ..format.seal import SEALED, SealedTable, SliceEntry
from ..log.log import Log
from ..log.step_index import BatchPlace
from ..store.hedging import NEAR_S, Hedger, Reading
from ..store.held_reads import Held, HeldReads
from .projection import Cell
from .read_ahead import Ahead, Opened, ReadAhead
from .read_ahead import fetched_bytes as _fetched_bytes

T = TypeVar("T")

RANGE_BYTES_MAX = 64 * 1024 * 1024
#: An object up to this size, of which a good part is wanted, is read whole: one request instead of two.
_WHOLE_BYTES_MAX = 512 * 1024
_WASTE_BYTES_MAX = 32 * 1024
_SHORT_READS_MAX = 4
#: Larger ranges are read by `fetch`, which hands them memory only as far as the object reaches.
_AT_ONCE_BYTES_MAX = 16 * 1024 * 1024
_AT_ONCE_SAMPLES = 16
#: Fewer samples will do where all of them took that long.
_AT_ONCE_LONG_S = 0.0005
_OPENED_MAX = 8
#: How often it is looked where reads come from.
_LOOK_REQUESTS = 16


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


class _Part(NamedTuple):
    """What is wanted of one object: (position in the cells, entry), and the range reads that bring it; or all its bytes."""

    place: BatchPlace
    key: str
    wanted: list[tuple[int, SliceEntry]]
    ranges: list[tuple[int, int, list[int]]]
    body: Any


#: One range read of an open object: itself, its name, offset, length, and (position in the cells, entry) for what it brings.
_Span = tuple[Any, str, int, int, list[tuple[int, SliceEntry]]]


class _Unusual(Exception):
    """Not to be read at once; never seen outside."""


class Prepared(NamedTuple):
    """Where the cells are, and the memory that reading them takes. `held`: reads of open objects, where they are near; then there are no parts."""

    cells: Sequence[Cell]
    parts: list[_Part]
    bytes: int
    manifest: Manifest | None = None
    held: Held | None = None


class ReadStats:
    """What was read so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests = 0
        self.bytes = 0

    def add(self, n: int, requests: int = 1) -> None:
        with self._lock:
            self.requests += requests
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


def _cut(
    view: memoryview, offset: int, wanted: Sequence[tuple[int, SliceEntry]], key: str, cells: Sequence[Cell], slices: Slices
) -> None:
    """Puts the slices of one range read, which began at `offset`, into their places, each checked."""
    count = len(wanted)
    are_alike = count == len(slices)
    for at, entry in wanted:
        begin = entry[0] - offset
        stored = view if count == 1 else view[begin : begin + entry[1]]
        step, row, chunk = cells[at]
        slices[at] = Slice(step, row, chunk, decode_slice(stored, key, entry))
        are_alike = are_alike and entry[4] in (0, SEALED) and entry[1] * count == len(view)
    if are_alike:
        slices.joined, slices.gap = view, entry[1] - entry[3]


def _is_worth_whole(size: int, wanted: int, cells: int) -> bool:
    """Whether an object is better read whole, where so many of its cells are wanted."""
    return size <= min(_WHOLE_BYTES_MAX, 2 * size * wanted // max(1, cells) + _WASTE_BYTES_MAX)


class SliceReader:
    """Reads slices of one namespace, side by side, with hedging and checks."""

    def __init__(self, log: Log, reads_in_flight_max: int = 16, footer_bytes_max: int = 16 * 1024 * 1024) -> None:
        self._log = log
        self._pool = Pool(reads_in_flight_max, "range")
        self._seconds = Pool(2 * reads_in_flight_max, "second")
        self._gate = threading.Semaphore(reads_in_flight_max)
        #: How long reads take, and when a second one is worth it; whoever waits for a share sends it, by `post_second`.
        self.hedger = Hedger()
        self.post_second = self._seconds.post
        self._is_near: bool = getattr(log.store, "is_near", False)
        self._footers: Once[tuple[Footer, Any]] = Once(footer_bytes_max)
        self._open_object: Callable[[str], Any] | None = getattr(log.store, "open", None)
        #: The object opened last, with its descriptor and footer: the next iteration often wants other rows of the same batch. Whoever
        #: lets go of it last closes it.
        self._kept: tuple[Any, Footer | SealedTable, Any] | None = None
        self._held = HeldReads(self._close_idle)
        #: How long `read_at_once` takes where nothing disturbs it: the lower quartile of the last few; 0 before.
        self.at_once_s = 0.0
        self._at_once: list[float] = []
        #: Whether most of what was read lately had to come from a disk. `ahead` is then to be told what comes next.
        self.is_from_disk = False
        self._looked = (0, _fetched_bytes(), 0)
        self.ahead = ReadAhead(self._open_ahead, self._find_spans)
        #: Whether a slice was seen that takes more memory than its object does.
        self._is_encoded = False
        self.stats = ReadStats()

    @property
    def is_near(self) -> bool:
        """Reads take microseconds, as those of a file do unless it is on another machine or a slow disk."""
        typical = self.hedger.typical
        return self._is_near if typical is None else typical < NEAR_S

    @property
    def hedged_reads(self) -> int:
        """Second reads that were sent."""
        return self.hedger.sent

    def close(self) -> None:
        """Ends the reader's threads."""
        self._pool.stop()
        self._seconds.stop()
        self._close_idle()

    def join(self, until: float) -> None:
        """Waits for them."""
        self._pool.join(until)
        self._seconds.join(until)

    def _close_idle(self) -> None:
        self._kept = None
        self.ahead.clear()

    def prepare(self, manifest: Manifest, cells: Sequence[Cell], reading: Reading) -> Prepared:
        """Finds out where the cells are: descriptors from the log, slice tables from the objects."""
        room = self._held.room if self.is_near and not reading.is_second else 0
        if room > 0:
            try:
                spans = self._spans_ahead(cells) or list(self._spans(manifest, cells, min(room, _OPENED_MAX)))
                memory = sum(span[3] for span in spans) + sum(e.raw_length for span in spans for _, e in span[4] if e.encoding == 1)
                return Prepared(cells, [], memory, manifest, self._held.hold(spans))
            except (BatchWeaveError, _Unusual):
                pass  # what follows finds out what is wrong, tries again, and tells
        return self._prepare_parts(manifest, cells, reading)

    def _prepare_parts(self, manifest: Manifest, cells: Sequence[Cell], reading: Reading) -> Prepared:
        by_step: dict[int, list[int]] = {}
        for at, cell in enumerate(cells):
            by_step.setdefault(cell.step, []).append(at)
        wanted: list[tuple[BatchPlace, int, int, list[tuple[int, int]]]] = []
        for step, positions in by_step.items():
            wanted += self._extents(self._log.locate(manifest, step), cells, positions)
        footers = self._run_all([partial(self._footer, w[0], w[1], w[2], len(w[3]), reading) for w in wanted])
        parts = []
        memory = 0
        for (place, number, _, members), (footer, body) in zip(wanted, footers):
            entries = [(at, footer.entry(cell)) for at, cell in members]
            ranges = plan_ranges([(e.offset, e.length) for _, e in entries])
            parts.append(_Part(place, batch_key(place.descriptor, number), entries, ranges, body))
            memory += len(body) if body is not None else sum(length for _, length, _ in ranges)
            memory += sum(e.raw_length for _, e in entries if e.encoding == 1)
        return Prepared(cells, parts, memory)

    def fetch(self, prepared: Prepared, reading: Reading) -> list[Slice]:
        """Reads what was prepared, in the order of its cells."""
        slices = Slices([None] * len(prepared.cells))  # type: ignore[list-item]
        if prepared.held is not None and prepared.manifest is not None:
            begun = time.monotonic()
            try:
                if spans := prepared.held.take():
                    total = self._read_all(spans, prepared.cells, slices)
                    self.hedger.note(total, time.monotonic() - begun)
                    return slices
            except BatchWeaveError:
                pass
            prepared = self._prepare_parts(prepared.manifest, prepared.cells, reading)

        def read(part: _Part, offset: int, length: int, members: list[int]) -> None:
            def cut(data: Any) -> None:
                _cut(memoryview(data), offset, [part.wanted[i] for i in members], part.key, prepared.cells, slices)

            if part.body is not None:
                try:
                    cut(part.body[offset : offset + length])
                    return
                except BatchWeaveError as error:
                    if not is_error(error, "CORRUPT"):
                        raise
            self._read_checked(part.place, part.key, offset, length, cut, reading)

        self._run_all([partial(read, part, *r) for part in prepared.parts for r in part.ranges])
        return slices

    def bytes_at_once_max(self, manifest: Manifest, cells: Sequence[Cell]) -> int:
        """What `read_at_once` can need for these cells at most, known before anything is read: the size of their objects. 0: unknown."""
        if self._open_object is None or self._is_encoded:
            return 0
        try:
            steps = range(cells[0].step, cells[-1].step + 1)
            return sum(extent[1] for step in steps for extent in self._log.locate(manifest, step).descriptor[EXTENTS])
        except BatchWeaveError:
            return 0

    def read_at_once(self, manifest: Manifest, cells: Sequence[Cell], is_bounded: bool = False) -> Slices | None:
        """`prepare` and `fetch` in one, in this thread, where objects can be opened: each is opened once.

        None where anything is out of the ordinary, a failure included: `prepare` and `fetch` find out what, try again, and tell.
        So is a slice that takes more memory than its object does, where that is the bound.
        """
        begun = time.monotonic()
        slices = Slices([None] * len(cells))  # type: ignore[list-item]
        try:
            total = self._read_all(self._spans_ahead(cells) or self._spans(manifest, cells, None, is_bounded), cells, slices)
        except (BatchWeaveError, _Unusual):
            return None
        spent = time.monotonic() - begun
        self.hedger.note(total, spent)
        self._look_for_disk()
        self.ahead.note(total, cells[-1].step - cells[0].step + 1)
        if is_bounded:
            return slices  # on several threads, which says little about one
        samples = self._at_once
        samples.append(spent)
        if len(samples) >= _AT_ONCE_SAMPLES or (len(samples) >= _AT_ONCE_SAMPLES // 4 and min(samples) > _AT_ONCE_LONG_S):
            self.at_once_s = sorted(samples)[len(samples) // 4]
            samples.clear()
        return slices

    def _look_for_disk(self) -> None:
        """Every few reads: how much of it the system fetched from a disk. Called by many threads without a lock: one that looks twice does no harm."""
        requests, fetched, read = self._looked
        if self.stats.requests < requests + _LOOK_REQUESTS:
            return
        now = self.stats.requests, _fetched_bytes(), self.stats.bytes
        is_from_disk = 2 * (now[1] - fetched) > now[2] - read
        if is_from_disk != self.is_from_disk:
            self.is_from_disk = is_from_disk
            self.at_once_s = 0.0  # of another kind of reads
        self._looked = now

    def _spans_ahead(self, cells: Sequence[Cell]) -> Sequence[_Span] | None:
        """What to read for these cells, where it was announced that they would be wanted."""
        share = self.ahead.take(cells) if self.is_from_disk else None
        return share and (share.spans or self._find_spans(share))

    def _find_spans(self, share: Ahead) -> Sequence[_Span]:
        return list(self._spans(share.manifest, share.cells, None, True, share.opened))

    def _open_ahead(self, manifest: Manifest, cells: Sequence[Cell]) -> dict[int, Opened]:
        """Has the objects of a share fetched, whole or their slice tables, and keeps them open by step, unless they are too many for that."""
        found = {}
        first, last = cells[0].step, cells[-1].step
        is_kept = last - first < _OPENED_MAX
        for step in range(first, last + 1):
            place = self._log.locate(manifest, step)
            key, opened = self._open(place)
            count, size, table, _ = place.descriptor[EXTENTS][0]
            is_whole = _is_worth_whole(size, len(cells) if first == last else 1, count)
            start = 0 if is_whole else table
            if is_whole or stride_of(place.descriptor) is None:
                opened.hint(start, size - start)
            if is_kept:
                found[step] = Opened(place, key, opened, is_whole)
        if not is_kept:
            raise _Unusual
        return found

    def _spans(
        self, manifest: Manifest, cells: Sequence[Cell], objects_max: int | None = None, is_bounded: bool = False,
        opened_ahead: dict[int, Opened] | None = None,
    ) -> Iterator[_Span]:
        """What to read of which object, one after another; neighbours in one read. Raises _Unusual, or what failed."""
        chunks = self._log.spec.chunks
        count = len(cells)
        first = objects = 0
        last_step = None
        while first < count:
            step, row, chunk = cells[first]
            if step != last_step:
                objects += 1
                if objects_max is not None and objects > objects_max:
                    raise _Unusual
                last_step = step
                ahead = opened_ahead.get(step) if opened_ahead else None
                footer, opened = self._keep(ahead.place if ahead else self._log.locate(manifest, step), ahead)
            entry = footer.entry(row * chunks + chunk)
            offset, length, encoding = entry.offset, entry.length, entry.encoding
            if encoding == 1 and is_bounded:
                self._is_encoded = True
                raise _Unusual
            wanted = [(first, entry)]
            first += 1
            while first < count and cells[first].step == step:
                entry = footer.entry(cells[first].row * chunks + cells[first].chunk)
                if entry.offset != offset + length or length + entry.length > _AT_ONCE_BYTES_MAX or entry.encoding != encoding:
                    break
                wanted.append((first, entry))
                length += entry.length
                first += 1
            if length > _AT_ONCE_BYTES_MAX:
                raise _Unusual
            yield opened, footer.where, offset, length, wanted

    def _open(self, place: BatchPlace) -> tuple[str, Any]:
        """The key of a batch that is one object of this namespace, and that object."""
        if self._open_object is None or self._held.is_scarce or len(place.descriptor[EXTENTS]) != 1 or place.store is not self._log.store:
            raise _Unusual
        key = batch_key(place.descriptor, 0)
        opened = self._open_object(key)
        if opened is None:
            raise _Unusual
        return key, opened

    def _keep(self, place: BatchPlace, ahead: Opened | None = None) -> tuple[Footer | SealedTable, Any]:
        """The slice table of such a batch, and its object, open."""
        descriptor = place.descriptor
        kept = self._kept
        if kept is not None and kept[0] is descriptor:
            return kept[1], kept[2]
        key, opened = (ahead.key, ahead.object) if ahead is not None else self._open(place)
        if stride_of(descriptor) is not None:
            self._kept = descriptor, SealedTable(place.namespace, descriptor, 0, 0), opened
            return self._kept[1], opened
        _, size, table, _ = descriptor[EXTENTS][0]
        begun = time.monotonic()
        data = opened.read_small(table, size - table)
        self.hedger.note(size - table, time.monotonic() - begun)
        self.stats.add(len(data))
        self._kept = descriptor, decode_footer(data, key, place.namespace, descriptor, 0, 0), opened
        return self._kept[1], opened

    def _read_all(self, spans: Iterable[_Span], cells: Sequence[Cell], slices: Slices) -> int:
        total = requests = 0
        for opened, where, offset, length, wanted in spans:
            data = opened.read(offset, length)
            total += length
            requests += 1
            _cut(data, offset, wanted, where, cells, slices)
        self.stats.add(total, requests)
        return total

    def _run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        return [call() for call in calls] if self.is_near else self._pool.run_all(calls)

    def _extents(
        self, place: BatchPlace, cells: Sequence[Cell], positions: list[int]
    ) -> list[tuple[BatchPlace, int, int, list[tuple[int, int]]]]:
        """(place, extent, its first cell, [(position, cell within the extent)]) for the cells of one batch."""
        found: dict[int, tuple[BatchPlace, int, int, list[tuple[int, int]]]] = {}
        for at in positions:
            cell = cells[at].row * self._log.spec.chunks + cells[at].chunk
            first = 0
            for number, extent in enumerate(place.descriptor[EXTENTS]):
                if cell < first + extent[0]:
                    found.setdefault(number, (place, number, first, []))[3].append((at, cell - first))
                    break
                first += extent[0]
            else:
                key = batch_key(place.descriptor, 0)
                raise corrupt(key, f"its extents hold {first} slices, and slice {cell} is wanted")
        return list(found.values())

    def _footer(self, place: BatchPlace, number: int, first_cell: int, wanted: int, reading: Reading) -> tuple[Footer | SealedTable, Any]:
        """The end of an object, and all its bytes where it was read whole. One read, shared by everybody who wants it and
        kept for the iterations that follow."""
        if stride_of(place.descriptor) is not None:
            return SealedTable(place.namespace, place.descriptor, number, first_cell), None
        key = batch_key(place.descriptor, number)
        cache_key = f"{place.namespace}/{key}"
        load = partial(self._read_footer, place, key, number, first_cell, wanted, reading)
        if not reading.is_second:
            reading.late_at = time.monotonic() + self.hedger.late_after(1)  # somebody else's late read delays this one too
            return self._footers.get(cache_key, load)
        found = self._footers.peek(cache_key)
        if found is None:
            found, size = load()
            self._footers.put(cache_key, found, size)
        return found

    def _read_footer(
        self, place: BatchPlace, key: str, number: int, first_cell: int, wanted: int, reading: Reading
    ) -> tuple[tuple[Footer, Any], int]:
        cells, size, table, _ = place.descriptor[EXTENTS][number]
        is_whole = not self.is_near and _is_worth_whole(size, wanted, cells)
        start = 0 if is_whole else table

        def decode(data: Any) -> tuple[Footer, Any]:
            view = memoryview(data)
            end = view[table - start :]
            footer = decode_footer(end, key, place.namespace, place.descriptor, number, first_cell)
            return footer, view if is_whole else None

        # A slice table is small and only delays: it does not take the place of a read that brings data.
        return self._read_checked(place, key, start, size - start, decode, reading, is_data=is_whole), size - start

    def _read_checked(
        self, place: BatchPlace, key: str, offset: int, length: int, check: Callable[[Any], T], reading: Reading,
        is_data: bool = True,
    ) -> T:
        """Bytes can also be damaged on their way: one more read before the object is called corrupt."""
        try:
            return check(self._read_whole(place, key, offset, length, reading, is_data))
        except BatchWeaveError as error:
            if not is_error(error, "CORRUPT"):
                raise
        return check(self._read_whole(place, key, offset, length, reading, is_data))

    def _read_whole(self, place: BatchPlace, key: str, offset: int, length: int, reading: Reading, is_data: bool) -> Any:
        """Exactly the range. A transfer that ended early is tried again; an object that ends early is corrupt."""
        if length == 0:
            return b""
        for attempt in range(1, _SHORT_READS_MAX + 1):
            if is_data and not reading.is_second and not self.is_near:
                with self._gate:
                    data = self._get_range(place, key, offset, length, reading)
            else:
                data = self._get_range(place, key, offset, length, reading)
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

    def _get_range(self, place: BatchPlace, key: str, offset: int, length: int, reading: Reading) -> Any:
        begun = time.monotonic()
        # With several reads under way, the one that began last tells when all of them should be done.
        reading.late_at = begun + self.hedger.late_after(length)
        data = place.store.get_range(key, offset, length)
        self.hedger.note(length, time.monotonic() - begun)
        self.stats.add(len(data) if data is not None else 0)
        return data
