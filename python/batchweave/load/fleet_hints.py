"""What processes of a fleet tell each other: which block a constructor waits for, and how many lanes each holds. Twin of src/plan/fleet/fleet-hints.ts.

Empty objects whose names say it all, beside the source logs. Nothing depends on a hint: it may be lost, late, or deleted by any process at any time. Words about
lanes held are told by source: only who loads the same source can take a lane that another gives up.
"""
from __future__ import annotations

import re
import time
from typing import Any, Callable, NamedTuple

from ..env.ids import random_id
from ..errors import BatchWeaveError
from ..store.object_store import open_store

_WORD = re.compile(r"([0-9]{1,15})-([0-9]{1,15})-([0-9a-v]{12})")
#: How long a constructor has waited when it says so.
_WAITED_S = 0.5
#: Between two words of one process about its lanes, more where they are many; and when their number has changed.
_TELL_MIN_S, _TELL_EACH_S, _CHANGED_MIN_S = 10.0, 0.1, 2.0
#: Words older than that are of the dead, and removed by their reader; clocks may be wrong by as much.
_STALE_MS = 300_000
_REMOVED_MAX = 100


class Want(NamedTuple):
    """A block that a constructor waits for, and since when by our clock."""

    block: int
    since: float


class _Word(NamedTuple):
    key: str
    number: int
    at_ms: int
    who: str


class FleetHints:
    """The hints of one source, as one process leaves and reads them."""

    def __init__(self, store: Any, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._wants = f"hint/want/{source}/"
        self._holds = f"hint/hold-of/{source}/"
        self._clock = clock
        self._id = random_id()
        self._seen: dict[str, float] = {}
        self._others: list[int] = []
        #: (key, when, lanes)
        self._told: tuple[str, float, int] | None = None

    def read(self, lanes: int) -> list[Want]:
        """What is wanted now. Tells others now and then that this process holds `lanes`."""
        try:
            wants, holds = self._list(self._wants), self._list(self._holds)
            self._others = [word.number for word in holds if word.who != self._id]
            self._tell(lanes)
        except BatchWeaveError:
            return []  # a store that fails fails its real users too, and loudly
        now = self._clock()
        self._seen = {word.key: self._seen.get(word.key, now - _WAITED_S) for word in wants}
        return [Want(word.number, self._seen[word.key]) for word in wants]

    def is_above_share(self, lanes: int) -> bool:
        """Whether a process with so many lanes holds clearly more than others."""
        if not self._others:
            return False
        mean = (sum(self._others) + lanes) / (len(self._others) + 1)
        return lanes > mean + 1 and lanes >= min(self._others) + 2

    def leave(self) -> None:
        """Takes back what this process said."""
        if self._told is None:
            return
        try:
            self._store.delete([self._told[0]])
        except BatchWeaveError:
            pass
        self._told = None

    def _list(self, prefix: str) -> list[_Word]:
        """A page: with more hints than that, some are not seen now. What is no hint, or old, has no business here, and is removed."""
        keys, _ = self._store.list(prefix)
        now_ms = time.time() * 1_000
        fresh, spent = [], []
        for key in keys:
            match = _WORD.fullmatch(key[len(prefix) :])
            if match and abs(now_ms - int(match[2])) <= _STALE_MS:
                fresh.append(_Word(key, int(match[1]), int(match[2]), match[3]))
            else:
                spent.append(key)
        if spent:
            self._store.delete(spent[:_REMOVED_MAX])
        return fresh

    def _tell(self, lanes: int) -> None:
        now, last = self._clock(), self._told
        least = _CHANGED_MIN_S if last is not None and last[2] != lanes else _TELL_MIN_S
        if last is not None and now < last[1] + max(least, _TELL_EACH_S * len(self._others)):
            return
        key = f"{self._holds}{lanes}-{int(time.time() * 1_000)}-{self._id}"
        self._told = (key, now, lanes)
        self._store.put(key, b"")
        if last is not None and last[0] != key:
            self._store.delete([last[0]])


def open_hints(place: str, source: str, **settings: Any) -> FleetHints:
    return FleetHints(open_store(place, **settings), source)
