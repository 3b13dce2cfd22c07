"""When a read is late, so that a second one is worth sending; whoever waits for it takes the first answer."""
from __future__ import annotations

import math
import threading

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
        ring = self._ring
        added = self._added = self._added + 1
        if len(ring) < _SAMPLES_MAX:
            ring.append(seconds)
        else:
            ring[added % _SAMPLES_MAX] = seconds
        # Sorting takes longer than a read from memory does: the more is known, the less often.
        if added % _SAMPLES_MIN == 0 and (added < _SAMPLES_MAX or added % (4 * _SAMPLES_MIN) == 0):
            ordered = sorted(ring)
            self.typical = ordered[len(ordered) // 2]
            self.late = ordered[min(len(ordered) - 1, math.floor(late * len(ordered)))]


class Reading:
    """One attempt to read something; says from when on it is late. A second attempt does not queue behind the first ones."""

    __slots__ = ("late_at", "is_second")

    def __init__(self, is_second: bool = False) -> None:
        self.late_at = math.inf
        self.is_second = is_second


class Hedger:
    """Knows how long reads take, and whether a second one may be afforded.

    A read whose class usually takes less than a millisecond (a local disk) is never late: handing it to another thread would
    cost more than it can save. Nothing here waits: an extra thread per read, only to be able to leave it behind, would cost every
    read what the few late ones gain.
    """

    def __init__(self, percentile: float = 0.95, slack: float = 1.25, floor: float = 0.005, extra: float = 0.05):
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

    def late_after(self, length: int) -> float:
        """Seconds after which a read of so many bytes is late; infinity while too few were seen."""
        durations = self._durations(length)
        if durations.typical is None or durations.late is None or durations.typical < NEAR_S:
            return math.inf
        return max(self._floor, durations.late * self._slack)

    def note(self, length: int, seconds: float) -> None:
        """Counts a read. Reads of one size class (a doubling, from 64 KiB up) are comparable."""
        self._durations(length).add(seconds, self._percentile)
        if self._tokens < _BURST_MAX:
            self._tokens += self._extra

    def spend(self, reads: int = 1) -> bool:
        """Takes so many second reads out of the budget; False: it is used up. It may be overdrawn, and is then paid back first."""
        with self._lock:
            if self._tokens < 1:
                return False
            self._tokens -= reads
            self.sent += reads
            return True

    @property
    def typical(self) -> float | None:
        """How long a small read takes; None while too few were seen."""
        return self._small.typical

    def _durations(self, length: int) -> _Durations:
        kind = length.bit_length()
        if kind <= _CLASS_MIN:
            return self._small
        return self._classes.get(kind) or self._classes.setdefault(kind, _Durations())
