"""How long a small write takes on this store: the measure of every pace."""
from __future__ import annotations

import threading

#: Until anything is known: what S3 takes.
_DEFAULT_S = 0.1
# One that took long says little about the next: it counts for less.
_FASTER_WEIGHT = 0.5
_SLOWER_WEIGHT = 0.1
#: A write costs about so many times a read, where this process has not written yet.
_WRITES_PER_READ = 1.5


class RoundTrip:
    """A moving measure, fed by all code that reads and writes small objects anyway."""

    def __init__(self) -> None:
        self.seconds = _DEFAULT_S
        self._is_measured = False
        self._lock = threading.Lock()

    def learn(self, took: float) -> None:
        """A small write that was answered took so many seconds."""
        with self._lock:
            weight = _FASTER_WEIGHT if took < self.seconds else _SLOWER_WEIGHT
            self.seconds += (weight if self._is_measured else 1) * (took - self.seconds)
            self._is_measured = True

    def guess(self, took: float) -> None:
        """A small read: better than nothing before the first write."""
        with self._lock:
            if not self._is_measured:
                self.seconds = _WRITES_PER_READ * took
