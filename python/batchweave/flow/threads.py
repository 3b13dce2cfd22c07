"""Daemon threads that take work from a queue: a call that hangs never keeps a trainer from exiting, and they are started when first needed.

The interpreter ends daemon threads wherever they are, and one that is inside torch then takes the whole process along ("terminate called
without an active exception"). So all of ours are asked to end, and waited for, before it comes to that.
"""
from __future__ import annotations

import atexit
import os
import queue
import threading
import time
import weakref
from collections import deque
from typing import Any, Callable, Generic, Protocol, Sequence, TypeVar

T = TypeVar("T")

#: How long a close waits for the threads it ends. A store that hangs for longer is left behind.
JOIN_S = 5.0


class Ends(Protocol):
    """Has threads: `stop` asks them to end, `join` waits for them until a moment of the monotonic clock."""

    def stop(self) -> None: ...

    def join(self, until: float) -> None: ...


#: Those whose threads hand work to pools, and the pools.
_owners: weakref.WeakSet[Ends] = weakref.WeakSet()
_pools: weakref.WeakSet[Ends] = weakref.WeakSet()


def stop_at_exit(owner: Ends) -> None:
    """Has its threads ended with the process, if no call does before."""
    _owners.add(owner)


def join_threads(threads: Sequence[threading.Thread], until: float) -> None:
    """Waits for threads, but for the one that asks."""
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, until - time.monotonic()))


@atexit.register
def _end_all() -> None:
    until = time.monotonic() + JOIN_S
    for group in (list(_owners), list(_pools)):
        for owner in group:
            owner.stop()
        for owner in group:
            owner.join(until)


def _begin_in_child() -> None:
    """The threads stayed in the parent, and some may have held the locks that stopping them takes."""
    global _owners, _pools
    _owners, _pools = weakref.WeakSet(), weakref.WeakSet()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)


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
        except BaseException as error:  # handed to the caller that waits
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
    """At most `size` threads, started one by one as there is work for them.

    A thread that is done takes the next call from the line itself, so calls that are short do not wake a thread each.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._line: deque[Callable[[], Any]] = deque()
        self._wakes: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._active = 0
        self._lock = threading.Lock()

    def post(self, call: Callable[[], Any]) -> None:
        """Runs `call`, which must not raise, in a thread of this pool; in the order of posting."""
        with self._lock:
            self._line.append(call)
            self._wake()

    def submit(self, call: Callable[[], T]) -> Task[T]:
        """Runs `call` in a thread of this pool, in the order of submission."""
        task = Task(call)
        self.post(task.run)
        return task

    def stop(self) -> None:
        """Ends the threads after what is in line."""
        with self._lock:
            if self._line:
                self._line.append(self._end)
                return
        self._end()

    def drop(self) -> None:
        """Ends the threads; what is in line is not run. Not where a caller waits for it."""
        with self._lock:
            self._line.clear()
        self._end()

    def join(self, until: float) -> None:
        """Waits for threads that were told to end."""
        join_threads(self._threads, until)

    def _end(self) -> None:
        with self._lock:
            for _ in self._threads:
                self._wakes.put(None)

    def _wake(self) -> None:
        """One more thread for what is in line, if there may be one. Call with the lock held."""
        if not self._line or self._active >= self._size:
            return
        if self._active == len(self._threads):
            if not self._threads:
                _pools.add(self)
            thread = threading.Thread(target=self._work, name=f"batchweave-{self._name}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._active += 1
        self._wakes.put(self._line.popleft())

    def _work(self) -> None:
        while (call := self._wakes.get()) is not None:
            while call is not None:
                call()
                with self._lock:
                    if self._line:
                        call = self._line.popleft()
                    else:
                        call = None
                        self._active -= 1
