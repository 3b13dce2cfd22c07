"""Follows the log and reads ahead on threads: iterations are planned in order, read side by side, handed out in order. Twin of
src/consumer/prefetch.ts."""
from __future__ import annotations

import random
import threading
import time
from collections import deque
from functools import partial
from typing import Any, Callable, Iterator

from ..flow.threads import Pool, join_threads, stop_at_exit
from ..format.manifest import Manifest
from ..log.log import Log
from .projection import IterationPlan, Projection
from .reader import Slice, SliceReader
from .waiting import reclaimed, unless_reclaimed

_STEPS_BEFORE_JUMP = 4
_POLL_DELAY_GROWTH = 1.5
#: Of a store on this machine threads use the processors, and more of them would mostly wait for the interpreter's lock.
_NEAR_THREADS_MAX = 4


class _Stopped(Exception):
    """The prefetch was stopped; never seen outside."""


class Slot:
    """An iteration that is being read or waits to be taken."""

    __slots__ = ("plan", "manifest", "bytes", "held_bytes", "admitted", "value", "error", "is_done")

    def __init__(self, plan: IterationPlan, manifest: Manifest) -> None:
        self.plan = plan
        self.manifest = manifest
        #: The memory that it takes; None while that is not known.
        self.bytes: int | None = None
        self.held_bytes = 0
        self.admitted = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None
        self.is_done = False


class Prefetch:
    """Reads ahead from a position until it is stopped, fails, or the closed log ends.

    `stride` and `offset` let the workers of a DataLoader share the iterations: this one reads those whose number, counted
    from the start, leaves `offset` when divided by `stride`. `finish` makes of the slices what is handed out, on the threads
    that read, and takes up to `copies` times their memory again.
    """

    def __init__(
        self, log: Log, reader: SliceReader, projection: Projection, row: int, iteration: int,
        finish: Callable[[IterationPlan, list[Slice]], Any],
        bytes_max: int = 256 * 1024 * 1024, iterations_max: int = 32,
        poll_delay: float = 0.05, poll_delay_max: float = 1.0, stride: int = 1, offset: int = 0, copies: int = 0,
    ) -> None:
        self._log = log
        self._reader = reader
        self._projection = projection
        self._plans = planned(projection, row, iteration, stride, offset)
        self._finish = finish
        self._copies = copies
        self._bytes_max = bytes_max
        self._iterations_max = iterations_max
        self._poll_delay = poll_delay
        self._poll_delay_max = max(poll_delay, poll_delay_max)
        is_near = getattr(log.store, "is_near", False)
        self._pool = Pool(min(iterations_max, _NEAR_THREADS_MAX) if is_near else iterations_max, "load")
        self._slots: deque[Slot] = deque()
        #: Those among them that may not read yet.
        self._unadmitted: deque[Slot] = deque()
        self._held_bytes = 0
        self._is_stopped = False
        #: Guards everything here; told when what comes next may have changed.
        self.changed = threading.Condition()
        self._room = threading.Condition(self.changed._lock)  # type: ignore[attr-defined]
        #: The iteration whose steps are being waited for.
        self.wanted: IterationPlan | None = None
        #: Set when no iteration comes after those in line: rows left over, or what failed.
        self.leftover_rows: int | None = None
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._pump, name="batchweave-prefetch", daemon=True)
        stop_at_exit(self)
        self._thread.start()

    @property
    def front(self) -> Slot | None:
        """The first iteration in line; call with `changed` held."""
        return self._slots[0] if self._slots else None

    def take(self) -> None:
        """Takes the first iteration out; its bytes are the caller's from now on. Call with `changed` held."""
        self._held_bytes -= self._slots.popleft().held_bytes
        self._admit()
        # Not at every iteration: a thread that wakes takes the interpreter's lock from the trainer, which waits for it.
        if 4 * len(self._slots) <= 3 * self._iterations_max:
            self._room.notify()

    def stop(self) -> None:
        """Ends the threads; reads that are under way finish unseen."""
        with self.changed:
            self._is_stopped = True
            for slot in self._unadmitted:
                slot.admitted.set()
            self.changed.notify_all()
            self._room.notify_all()
        self._pool.drop()

    def join(self, until: float) -> None:
        """Waits for the threads, which were told to end."""
        join_threads([self._thread], until)
        self._pool.join(until)

    def _pump(self) -> None:
        """A failure is kept and surfaces after the iterations before it were taken."""
        try:
            while True:
                with self.changed:
                    self._check()
                    while len(self._slots) >= self._iterations_max:
                        self._room.wait()
                        self._check()
                plan = self.wanted = next(self._plans)
                manifest = self._visible(plan)
                if manifest is None:
                    break
                slot = Slot(plan, manifest)
                with self.changed:
                    self._check()
                    self._slots.append(slot)
                    self._unadmitted.append(slot)
                    if len(self._slots) == 1:
                        self.changed.notify_all()
                self._pool.post(partial(self._load, slot))
            end = self._projection.end_row(self._log.head.newest().end)
            with self.changed:
                self.leftover_rows = max(0, end - plan.row)
                self.changed.notify_all()
        except _Stopped:
            pass
        except BaseException as error:
            with self.changed:
                self.failure = error
                self.changed.notify_all()

    def _check(self) -> None:
        if self._is_stopped:
            raise _Stopped

    def _visible(self, plan: IterationPlan) -> Manifest | None:
        """A verified manifest in which all rows of the iteration are visible; None when the log is closed before them."""
        head = self._log.head
        delay, moves = self._poll_delay, 0
        manifest = head.newest()
        while True:
            if plan.first_step < manifest.trim:
                raise reclaimed(plan.first_row(self._projection.rows), manifest, self._projection.rows)
            if plan.last_step < manifest.end:
                return manifest
            if manifest.closed:
                return None
            following = head.advance() if moves < _STEPS_BEFORE_JUMP else head.jump()
            if following.version > manifest.version:
                manifest = following
                moves += 1
                delay = self._poll_delay
                continue
            moves = 0
            until = time.monotonic() + delay * (0.5 + random.random())
            with self.changed:
                self._check()
                while (left := until - time.monotonic()) > 0:
                    self._room.wait(left)
                    self._check()
            delay = min(delay * _POLL_DELAY_GROWTH, self._poll_delay_max)

    def _load(self, slot: Slot) -> None:
        """Reads one iteration. Threads take iterations in order, so the first in line always has one."""
        try:
            if not self._is_stopped:
                prepared = self._guard(slot, lambda manifest: self._reader.prepare(manifest, slot.plan.cells))
                with self.changed:
                    slot.bytes = prepared.bytes * (1 + self._copies)
                    self._admit()
                slot.admitted.wait()
            if not self._is_stopped:
                slices = self._guard(slot, lambda _: self._reader.fetch(prepared))
                slot.value = self._finish(slot.plan, slices)
        except BaseException as error:
            slot.error = error
        with self.changed:
            slot.is_done = True
            if not slot.admitted.is_set():
                self._unadmitted.remove(slot)
                self._admit()
            if self._slots and self._slots[0] is slot:
                self.changed.notify_all()

    def _admit(self) -> None:
        """Lets read what there is room for; call with the lock held. Slots are admitted in the order of their iterations, so the bytes that
        are held belong to iterations that are taken before the next one; when none are held it goes on however large it is. So it cannot get
        stuck."""
        while self._unadmitted and (size := self._unadmitted[0].bytes) is not None:
            if self._held_bytes > 0 and self._held_bytes + size > self._bytes_max:
                return
            slot = self._unadmitted.popleft()
            slot.held_bytes = size
            self._held_bytes += size
            slot.admitted.set()

    def _guard(self, slot: Slot, call: Callable[[Manifest], Any]) -> Any:
        return unless_reclaimed(self._log, slot.plan, slot.manifest, call)


def planned(projection: Projection, row: int, iteration: int, stride: int, offset: int) -> Iterator[IterationPlan]:
    """Of all iterations from a position on, those whose number, counted from there, leaves `offset` when divided by `stride`."""
    skip = offset
    while True:
        plan = projection.plan(row, iteration)
        row, iteration = plan.next_row, plan.iteration + 1
        if skip == 0:
            skip = stride
            yield plan
        skip -= 1
