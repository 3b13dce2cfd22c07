"""A second read when the first takes unusually long; the first answer counts. Twin of src/store/decorate/hedging.ts.

A call in Python can only be left behind on a thread of its own. So reads of a store on another machine run on a pool, and the thread that waits
for one sends the second. A store on this machine (`is_near`) is read by the caller: a second read of the same disk would only take turns with
the first.
"""
from __future__ import annotations

import math
import threading
import time
from typing import Callable, Generic, TypeVar

from ..flow.threads import Pool

T = TypeVar("T")

_SAMPLES_MAX = 256
_SAMPLES_MIN = 20
_BURST_MAX = 10.0
_CLASS_MIN = 16
#: How soon a waiting thread looks again at a read that has not begun, whose class is unknown, or that there is no budget for.
_LOOK_S = 0.05


class _Durations:
    """Recent durations of reads of one size class."""

    def __init__(self) -> None:
        self._ring: list[float] = []
        self._added = 0
        #: None while too few were seen.
        self.late: float | None = None

    def add(self, seconds: float, late: float) -> None:
        """Called by many threads without a lock: a sample that gets lost among them does no harm."""
        added = self._added = self._added + 1
        if len(self._ring) < _SAMPLES_MAX:
            self._ring.append(seconds)
        else:
            self._ring[added % _SAMPLES_MAX] = seconds
        if added % _SAMPLES_MIN == 0:
            ordered = sorted(self._ring)
            self.late = ordered[min(len(ordered) - 1, math.floor(late * len(ordered)))]


class Hedger:
    """Knows how long reads take, and whether a second one may be afforded."""

    def __init__(self, percentile: float = 0.95, slack: float = 1.25, floor: float = 0.005, extra: float = 0.05):
        self._percentile = percentile
        self._slack = slack
        self._floor = floor
        self._extra = extra
        self._classes: dict[int, _Durations] = {}
        self._tokens = 1.0
        self._lock = threading.Lock()
        #: Second reads that were sent.
        self.sent = 0

    def late_after(self, length: int) -> float:
        """Seconds after which a read of so many bytes is late; infinity while too few were seen."""
        late = self._durations(length).late
        return math.inf if late is None else max(self._floor, late * self._slack)

    def note(self, length: int, seconds: float) -> None:
        """Counts a read. Reads of one size class (a doubling, from 64 KiB up) are comparable."""
        self._durations(length).add(seconds, self._percentile)
        with self._lock:
            self._tokens = min(_BURST_MAX, self._tokens + self._extra)

    def spend(self) -> bool:
        """Takes a second read out of the budget; False: it is used up."""
        with self._lock:
            if self._tokens < 1:
                return False
            self._tokens -= 1
            self.sent += 1
            return True

    def _durations(self, length: int) -> _Durations:
        kind = max(_CLASS_MIN, length.bit_length())
        return self._classes.get(kind) or self._classes.setdefault(kind, _Durations())


class Read(Generic[T]):
    """A read that was begun by HedgedReads. `result` may be asked for by several threads."""

    __slots__ = ("length", "begun", "attempts", "_call", "_reads", "_done", "_value", "_error")

    def __init__(self, reads: HedgedReads, length: int, call: Callable[[], T]) -> None:
        self.length = length
        #: None while it waits for a thread.
        self.begun: float | None = None
        #: How many were sent that have not answered.
        self.attempts = 1
        self._call: Callable[[], T] | None = call
        self._reads = reads
        self._done = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """One attempt."""
        call = self._call
        if call is None:
            return  # the other one has answered
        begun = time.monotonic()
        self.begun = self.begun or begun
        value = error = None
        try:
            value = call()
        except BaseException as failure:  # handed to the caller
            error = failure
        self._reads.hedger.note(self.length, time.monotonic() - begun)
        with self._reads.lock:
            self.attempts -= 1
            # The first that brings something counts, or the last that fails.
            if self._call is None or (error is not None and self.attempts > 0):
                return
            self._call = None
            self._value, self._error = value, error
        self._done.set()

    def result(self) -> T:
        """Waits, and sends the second read meanwhile if the first is late; raises what the read raised."""
        while not self._done.is_set():
            self._done.wait(self._reads.tend(self))
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class HedgedReads:
    """Reads of one consumer, at most so many in flight."""

    def __init__(self, in_flight_max: int) -> None:
        self._pool = Pool(in_flight_max, "range")
        self._side_pool = Pool(2 * in_flight_max, "side")
        self.hedger = Hedger()
        #: Guards the ends of reads.
        self.lock = threading.Lock()

    def begin(self, length: int, call: Callable[[], T], is_near: bool, is_small: bool = False) -> Read[T]:
        """Begins a read of so many bytes; where it is near, it is over when this returns. Small ones only delay others: they take no place
        among those that bring data."""
        read = Read(self, length, call)
        if is_near:
            read.run()
        else:
            (self._side_pool if is_small else self._pool).post(read.run)
        return read

    def tend(self, read: Read[T]) -> float | None:
        """Sends the second read if the first is late; gives the seconds until the next look, None where there is nothing to look for."""
        if read.begun is None:
            return _LOOK_S
        left = read.begun + self.hedger.late_after(read.length) - time.monotonic()
        if left > 0:
            return min(left, _LOOK_S)
        with self.lock:
            if read.attempts != 1:
                return None
            if not self.hedger.spend():
                return _LOOK_S
            read.attempts = 2
        self._side_pool.post(read.run)
        return None

    def close(self) -> None:
        """Ends the threads after what is in line."""
        self._pool.stop()
        self._side_pool.stop()

    def join(self, until: float) -> None:
        """Waits for them."""
        self._pool.join(until)
        self._side_pool.join(until)
