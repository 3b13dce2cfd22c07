"""Objects that stay open until they are read: no more than so many, and none while the process is out of file descriptors."""
from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any, Callable, Sequence

#: Of one reader; those that it opens to read ahead from a disk come on top (read_ahead.py), as many again.
HELD_OBJECTS_MAX = 32
#: Longer than a call that was refused a descriptor waits for one: none of ours is to be in its way.
_SCARCE_S = 60.0

_keepers: weakref.WeakSet[HeldReads] = weakref.WeakSet()
_keepers_lock = threading.Lock()


def _begin_in_child() -> None:
    """What the parent's readers hold is theirs, and another of its threads may have had one of the locks."""
    global _keepers, _keepers_lock
    _keepers, _keepers_lock = weakref.WeakSet(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)


def let_go_of_all() -> None:
    """Descriptors ran out: whoever keeps objects open in this process closes those that are not being read."""
    with _keepers_lock:
        keepers = list(_keepers)
    for keeper in keepers:
        keeper.let_go()


class Held:
    """Reads of open objects, for whoever takes them first: the reader, or one who lets go of them."""

    __slots__ = ("objects", "_spans", "__weakref__")

    def __init__(self, spans: Sequence[Any]) -> None:
        self.objects = len({id(span[0]) for span in spans})
        self._spans = [spans]

    def take(self) -> Sequence[Any]:
        """The reads; nothing where they were taken before. Whoever lets go of them last closes the objects."""
        try:
            spans = self._spans.pop()
        except IndexError:
            return ()
        self.objects = 0
        return spans


class HeldReads:
    """What one reader holds. `also`: closes what else it keeps open."""

    def __init__(self, also: Callable[[], None]) -> None:
        self._held: weakref.WeakSet[Held] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._scarce_until = 0.0
        self._also = weakref.WeakMethod(also)
        with _keepers_lock:
            _keepers.add(self)

    @property
    def is_scarce(self) -> bool:
        """Nothing is to be kept open now."""
        return self._scarce_until > 0.0 and time.monotonic() < self._scarce_until

    @property
    def room(self) -> int:
        """How many more objects may be held."""
        with self._lock:
            return HELD_OBJECTS_MAX - sum(held.objects for held in self._held)

    def hold(self, spans: Sequence[Any]) -> Held:
        """Keeps the objects of `spans` open until they are taken, or for as long as there are descriptors."""
        held = Held(spans)
        with self._lock:
            self._held.add(held)
        return held

    def let_go(self) -> None:
        """Closes all that is not being read, and keeps nothing open for a while."""
        self._scarce_until = time.monotonic() + _SCARCE_S
        also = self._also()
        if also is not None:
            also()
        with self._lock:
            held = list(self._held)
        for one in held:
            one.take()
