"""Daemon threads that take work from a queue: they never keep a trainer from exiting, and are started when first needed."""
from __future__ import annotations

import queue
import threading
from typing import Any, Callable, Generic, Sequence, TypeVar

T = TypeVar("T")


class Task(Generic[T]):
    """A call that runs in another thread."""

    __slots__ = ("_call", "_done", "value", "error")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self._done = threading.Event()
        self.value: T | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            assert self._call is not None
            self.value = self._call()
        except BaseException as error:  # handed to whoever waits
            self.error = error
        self._call = None
        self._done.set()

    def wait(self, timeout: float | None = None) -> bool:
        """False: it takes longer than that."""
        return self._done.wait(timeout)

    def result(self) -> T:
        """Waits; raises what the call raised."""
        self._done.wait()
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


class Pool:
    """At most `size` threads, started one by one as there is work for them."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._queue: queue.SimpleQueue[Task[Any] | None] = queue.SimpleQueue()
        self._threads = 0
        self._idle = 0
        self._lock = threading.Lock()

    def submit(self, call: Callable[[], T]) -> Task[T]:
        """Runs `call` in a thread of this pool, in the order of submission."""
        task = Task(call)
        self._queue.put(task)
        with self._lock:
            if self._idle < self._queue.qsize() and self._threads < self._size:
                self._threads += 1
                threading.Thread(target=self._work, name=f"batchweave-{self._name}", daemon=True).start()
        return task

    def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """All of them side by side, the first in this very thread. The calls must not wait for each other."""
        tasks = [self.submit(call) for call in calls[1:]]
        try:
            first = [calls[0]()] if calls else []
        finally:
            for task in tasks:
                task.wait()
        return first + [task.result() for task in tasks]

    def close(self) -> None:
        """Ends the threads after what is queued."""
        with self._lock:
            for _ in range(self._threads):
                self._queue.put(None)

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            task = self._queue.get()
            with self._lock:
                self._idle -= 1
            if task is None:
                return
            task.run()
            del task
