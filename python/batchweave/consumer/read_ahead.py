"""Telling the system what will be read from its disk soon, so that it is in memory when it is read.

A slice is known only from its batch's slice table, so there are two hints for a share: for the slice table, and, some shares later, when that
should have come, for the slices. Small objects are fetched whole, with one hint. One thread keeps a disk busy that way that eight waiting ones
would not.
"""
from __future__ import annotations

import sys
from collections import deque
from typing import Any, Callable, NamedTuple, Sequence

from ..format.manifest import Manifest
from ..log.step_index import BatchPlace
from .projection import Cell

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

#: How far ahead: so many bytes of shares, so many shares, and so many of their objects, which stay open meanwhile.
_BYTES = 32 * 1024 * 1024
_SHARES_MIN = 2
_SHARES_MAX = 16
_OBJECTS_MAX = 32


def fetched_bytes() -> int:
    """What this process had to wait for a disk for so far. Linux counts it in blocks of 512 bytes, others in other ways or not at all."""
    return 512 * resource.getrusage(resource.RUSAGE_SELF).ru_inblock if resource is not None and sys.platform == "linux" else 0


class Opened(NamedTuple):
    """An object of a share to come, and whether the system was told to fetch all of it or its slice table."""

    place: BatchPlace
    key: str
    object: Any
    is_whole: bool


class Ahead(NamedTuple):
    """A share to come. `spans`: what to read of which object, where that is known: (open object, its name, offset, length, what for)."""

    manifest: Manifest
    cells: Sequence[Cell]
    opened: dict[int, Opened]
    spans: Sequence[Any]


class ReadAhead:
    """Shares are announced in the order in which they will be read. `open_objects` opens a share's objects, by step, and has them fetched or their
    slice tables; `find_spans` tells from these what to read."""

    def __init__(
        self, open_objects: Callable[[Manifest, Sequence[Cell]], dict[int, Opened]], find_spans: Callable[[Ahead], Sequence[Any]]
    ) -> None:
        self._open_objects = open_objects
        self._find_spans = find_spans
        #: Those that nobody took any more, because reads became slow and go another way, make room for others.
        self._announced: deque[tuple[Manifest, Sequence[Cell]]] = deque(maxlen=_OBJECTS_MAX)
        self._opened: deque[Ahead] = deque()
        #: By the identity of their cells, which they hold.
        self._ready: dict[int, Ahead] = {}
        #: How many shares to announce ahead.
        self.shares = _SHARES_MIN

    def note(self, share_bytes: int, objects: int) -> None:
        """So large was a share, and so many objects it came from."""
        self.shares = max(_SHARES_MIN, min(_SHARES_MAX, _BYTES // max(1, share_bytes), _OBJECTS_MAX // objects))

    def announce(self, manifest: Manifest, cells: Sequence[Cell]) -> None:
        """This share is read soon."""
        self._announced.append((manifest, cells))

    def take(self, cells: Sequence[Cell]) -> Ahead | None:
        """What is known about a share that was announced. Gives the hints that are due first: several threads may, each takes what the others left."""
        try:
            while self._announced:
                self._open(*self._announced.popleft())
                while len(self._opened) > self.shares // 2:
                    self._fetch(self._opened.popleft())
        except IndexError:
            pass  # another thread was quicker
        return self._ready.pop(id(cells), None)

    def clear(self) -> None:
        """Nothing that was announced will be read."""
        self._announced.clear()
        self._opened.clear()
        self._ready.clear()

    def _open(self, manifest: Manifest, cells: Sequence[Cell]) -> None:
        try:
            share = Ahead(manifest, cells, self._open_objects(manifest, cells), ())
        except Exception:
            return  # only a hint: whoever reads the share finds out what is wrong with it
        if all(opened.is_whole for opened in share.opened.values()):
            self._keep(share)
        else:
            self._opened.append(share)

    def _fetch(self, share: Ahead) -> None:
        try:
            share = share._replace(spans=self._find_spans(share))
        except Exception:
            return
        for opened, _, offset, length, _ in share.spans:
            opened.hint(offset, length)
        self._keep(share)

    def _keep(self, share: Ahead) -> None:
        self._ready[id(share.cells)] = share
        kept = list(self._ready.values())
        excess = sum(len(other.opened) for other in kept) - _OBJECTS_MAX
        for oldest in kept:  # read some other way
            if excess <= 0:
                return
            self._ready.pop(id(oldest.cells), None)
            excess -= len(oldest.opened)
