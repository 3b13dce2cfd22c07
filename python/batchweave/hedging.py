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


class _Durations:
    """Recent durations of reads of one size class."""

    def __init__(self) -> None:
        self._ring: list[float] = []
        self._added = 0
        self._sorted: list[float] = []

    def add(self, seconds: float) -> None:
        if len(self._ring) < _SAMPLES_MAX:
            self._ring.append(seconds)
        else:
            self._ring[self._added % _SAMPLES_MAX] = seconds
        self._added += 1
        if self._added % 16 == 0:
            self._sorted = sorted(self._ring)

    def percentile(self, share: float) -> float | None:
        if len(self._sorted) < _SAMPLES_MIN:
            return None
        return self._sorted[min(len(self._sorted) - 1, math.floor(share * len(self._sorted)))]


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
        self._classes: dict[int, _Durations] = {}
        self._tokens = 1.0
        self._lock = threading.Lock()
        #: Second reads that were sent.
        self.sent = 0

    def read(self, length: int, call: Callable[[], T]) -> T:
        """Runs `call`, perhaps twice. Reads of one size class (a doubling, from 64 KiB up) are comparable."""
        size_class = max(16, math.ceil(math.log2(length + 1)))
        with self._lock:
            self._tokens = min(_BURST_MAX, self._tokens + self._extra)
            durations = self._classes.setdefault(size_class, _Durations())
            typical, late = durations.percentile(0.5), durations.percentile(self._percentile)
        begun = time.monotonic()
        if typical is None or late is None or typical < 0.001:
            result = call()
        else:
            result = self._race(call, max(self._floor, late * self._slack))
        with self._lock:
            durations.add(time.monotonic() - begun)
        return result

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
