"""A second read when the first takes unusually long; the first answer counts."""
from __future__ import annotations

import math
import threading
import time
from typing import Callable, TypeVar

from .threads import Pool, Task

T = TypeVar("T")

_SAMPLES_MAX = 256
_SAMPLES_MIN = 20
_BURST_MAX = 10.0
_CLASS_MIN = 16
#: Small reads that take less come from memory or a disk of this machine: other threads would cost more than they save.
NEAR_S = 0.001


class _Durations:
    """Recent durations of reads of one size class."""

    def __init__(self) -> None:
        self._ring: list[float] = []
        self._added = 0
        #: The median and what is late; None while too few were seen.
        self.typical: float | None = None
        self.late: float | None = None

    def add(self, seconds: float, late: float) -> None:
        """Called by many threads without a lock: a sample that gets lost among them does no harm."""
        if len(self._ring) < _SAMPLES_MAX:
            self._ring.append(seconds)
        else:
            self._ring[self._added % _SAMPLES_MAX] = seconds
        self._added += 1
        if self._added % _SAMPLES_MIN == 0:
            ordered = sorted(self._ring)
            self.typical = ordered[len(ordered) // 2]
            self.late = ordered[min(len(ordered) - 1, math.floor(late * len(ordered)))]


class Hedger:
    """Decides when a read is late and whether a second one may be afforded.

    A read whose class usually takes less than a millisecond (a local disk) is not hedged: handing it to another thread would
    cost more than it can save.
    """

    def __init__(self, pool: Pool, percentile: float = 0.95, slack: float = 1.25, floor: float = 0.005, extra: float = 0.05):
        self._pool = pool
        self._percentile = percentile
        self._slack = slack
        self._floor = floor
        self._extra = extra
        self._small = _Durations()
        self._classes: dict[int, _Durations] = {_CLASS_MIN: self._small}
        self._tokens = 1.0
        self._lock = threading.Lock()
        #: Second reads that were sent.
        self.sent = 0

    def read(self, length: int, call: Callable[[], T]) -> T:
        """Runs `call`, perhaps twice. Reads of one size class (a doubling, from 64 KiB up) are comparable."""
        durations = self._durations(length)
        begun = time.monotonic()
        if durations.typical is None or durations.late is None or durations.typical < NEAR_S:
            result = call()
        else:
            result = self._race(call, max(self._floor, durations.late * self._slack))
        durations.add(time.monotonic() - begun, self._percentile)
        self._tokens = min(_BURST_MAX, self._tokens + self._extra)
        return result

    def note(self, length: int, seconds: float) -> None:
        """Counts a read that was made without being asked for here."""
        self._durations(length).add(seconds, self._percentile)

    def _durations(self, length: int) -> _Durations:
        kind = max(_CLASS_MIN, length.bit_length())
        return self._classes.get(kind) or self._classes.setdefault(kind, _Durations())

    @property
    def typical(self) -> float | None:
        """How long a small read takes; None while too few were seen."""
        return self._small.typical

    def _race(self, call: Callable[[], T], delay: float) -> T:
        answered = threading.Event()

        def told() -> T:
            try:
                return call()
            finally:
                answered.set()

        primary: Task[T] = self._pool.submit(told)
        if primary.wait(delay) or not self._spend():
            return primary.result()
        second: Task[T] = self._pool.submit(told)
        answered.wait()
        while True:
            for task, other in ((primary, second), (second, primary)):
                if task.wait(0) and (task.error is None or other.wait(0)):
                    return task.result() if task.error is None or other.error is not None else other.result()
            # One of the two failed, or is about to be done: wait for it or the other.
            if not primary.wait(0.001):
                second.wait(0.001)

    def _spend(self) -> bool:
        with self._lock:
            if self._tokens < 1:
                return False
            self._tokens -= 1
            self.sent += 1
            return True
