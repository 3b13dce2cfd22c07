"""What many threads want and one of them fetches: the last few values by key, each loaded once however many ask for it at the same time."""
from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Callable, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Kept(NamedTuple):
    value: Any
    size: int


class Once(Generic[T]):
    """Keeps the values used last, up to a total size."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._size = 0
        self._values: OrderedDict[str, _Kept] = OrderedDict()
        self._loading: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def drop(self, key: str, value: T) -> None:
        """Forgets a value that turned out to be of no use, unless another one has taken its place."""
        with self._lock:
            if (found := self._values.get(key)) is not None and found.value is value:
                self._size -= self._values.pop(key).size

    def _put(self, key: str, value: T, size: int) -> None:
        with self._lock:
            before = self._values.pop(key, None)
            self._size += size - (before.size if before else 0)
            self._values[key] = _Kept(value, size)
            while self._size > self._size_max and len(self._values) > 1:
                self._size -= self._values.popitem(last=False)[1].size

    def get(self, key: str, load: Callable[[], tuple[T, int]]) -> T:
        """The value of a key; `load` gives it and its size. A failure is raised to the thread that loaded; the others try themselves."""
        while True:
            with self._lock:
                if (found := self._values.get(key)) is not None:
                    self._values.move_to_end(key)
                    value: T = found.value
                    return value
                if (turn := self._loading.get(key)) is None:
                    turn = self._loading[key] = threading.Lock()
                    turn.acquire()
                    break
            with turn:
                pass  # the thread that loads it has it now, or failed: look again
        try:
            value, size = load()
            self._put(key, value, size)
            return value
        finally:
            with self._lock:
                del self._loading[key]
            turn.release()
