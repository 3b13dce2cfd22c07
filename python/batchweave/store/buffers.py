"""Memory for range reads, used again once nobody looks at it any more.

Fresh memory for every megabyte read costs more than the read itself: it is cleared, mapped and unmapped page by page. A buffer that only this
pool still refers to (no slice, tensor or array is a view of it) is handed out again; CPython's reference count tells exactly.
"""
from __future__ import annotations

import ctypes
import sys
import threading

_GRAIN = 64 * 1024
#: Memory begins where a cache line does: the kernel's copy out of the page cache takes twice as long to most other addresses.
_LINE = 64
#: References that a buffer has when only the pool holds it: the pair in line, the loop's variable, and getrefcount's argument.
_UNUSED = 3
_SCAN_MAX = 256


class BufferPool:
    """Hands out writable memory. Keeps at most `bytes_max` of it alive when nobody uses it."""

    def __init__(self, bytes_max: int = 256 * 1024 * 1024) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        #: By capacity: (memory, where in it a cache line begins).
        self._buffers: dict[int, list[tuple[bytearray, int]]] = {}
        self._lock = threading.Lock()
        # Without the global lock counts are not exact; and elsewhere there are none.
        gil = getattr(sys, "_is_gil_enabled", lambda: True)()
        self._is_counting = sys.implementation.name == "cpython" and gil

    def take(self, length: int) -> memoryview:
        """Memory of exactly `length` bytes with any content."""
        if length < _GRAIN or not self._is_counting:
            return memoryview(bytearray(length))
        capacity = -(-length // _GRAIN) * _GRAIN
        with self._lock:
            known = self._buffers.setdefault(capacity, [])
            # The one used last first: it is still in the processor's cache, which makes a copy into it twice as fast.
            for i in range(len(known) - 1, max(-1, len(known) - 1 - _SCAN_MAX), -1):
                buffer, begin = known[i]
                if sys.getrefcount(buffer) == _UNUSED:
                    known.append(known.pop(i))
                    return memoryview(buffer)[begin : begin + length]
            buffer = bytearray(capacity + _LINE)
            begin = -ctypes.addressof(ctypes.c_char.from_buffer(buffer)) % _LINE
            self._make_room(capacity)
            if self._bytes + capacity <= self._bytes_max:
                self._bytes += capacity
                known.append((buffer, begin))
        return memoryview(buffer)[begin : begin + length]

    def _make_room(self, wanted: int) -> None:
        """Lets go of buffers of other sizes when this size is new: what is read changes as training goes on."""
        for capacity, known in list(self._buffers.items()):
            if self._bytes + wanted <= self._bytes_max:
                return
            if capacity == wanted:
                continue
            self._bytes -= capacity * len(known)
            del self._buffers[capacity]
