"""Follows the log and reads ahead on threads: iterations are planned in order, read side by side, handed out in order."""
from __future__ import annotations

import math
import random
import threading
import time
from collections import deque
from functools import partial
from typing import Any, Callable, TypeVar

from ..flow.threads import Pool, cores, join_threads, stop_at_exit
from ..format.manifest import Manifest
from ..log.log import Log
from ..store.hedging import NEAR_S, Reading
from .plans import Plans
from .projection import IterationPlan, Projection
from .reader import Prepared, Slice, SliceReader
from .slot import Slot
from .waiting import reclaimed, unless_reclaimed

T = TypeVar("T")

_STEPS_BEFORE_JUMP = 4
_POLL_DELAY_GROWTH = 1.5
_THREADS_MAX = 256
#: A trainer that has not asked for so long is busy: time to read ahead.
_ABSENT_S = 0.001
#: How often that is looked for: seldom while it asks for one share after another, since every look takes the interpreter's lock from it.
_LOOK_MIN_S = 0.002
_LOOK_MAX_S = 0.016
#: An iteration that takes longer than this is worth threads even from memory: most of it is then copying and checking, which go on
#: outside the interpreter's lock. Whoever waits is one of them. Seldom looked at again, because looking means to read some without.
_ALONE_S = 0.00009
_ALONE_AGAIN = 512
#: From a disk, half of it is the system's work.
_ALONE_FROM_DISK_S = 0.0002
#: More than a few would mostly hand the interpreter's lock to each other, also where there are more cores.
_NEAR_THREADS_MAX = 4
#: So many iterations for each of them are in line while a trainer asks for one after another: more would leave the processor's cache.
_NEAR_LINE = 4
_LATE_LOOK_MIN_S = 0.005
_LATE_LOOK_MAX_S = 0.05


class _Stopped(Exception):
    """The prefetch was stopped; never seen outside."""


class Prefetch:
    """Reads ahead from a position until it is stopped, fails, or the closed log ends.

    `stride` and `offset` let the workers of a DataLoader share the iterations: this one reads those whose number, counted
    from the start, leaves `offset` when divided by `stride`. `finish` makes of the slices what is handed out, on the threads
    that read, and takes up to `copies` times their memory again.
    """

    def __init__(
        self, log: Log, reader: SliceReader, projection: Projection, row: int, iteration: int,
        bytes_max: int = 256 * 1024 * 1024, iterations_max: int = 32, loads_max: int = 16,
        poll_delay: float = 0.05, poll_delay_max: float = 1.0, stride: int = 1, offset: int = 0,
        finish: Callable[[IterationPlan, list[Slice]], Any] | None = None, copies: int = 0,
    ) -> None:
        self._log = log
        self._reader = reader
        self._projection = projection
        #: What nobody took to read; guarded by `changed`.
        self._plans = Plans(projection, row, iteration, stride, offset)
        reader.ahead.clear()
        self._bytes_max = bytes_max
        self._iterations_max = iterations_max
        self._poll_delay = poll_delay
        self._poll_delay_max = max(poll_delay, poll_delay_max)
        self._finish = finish
        self._copies = copies
        # More than there may be reads: while some read data, the others look up where the next data is. Where reads take
        # microseconds, threads would only wait for each other: one reads ahead, and whoever waits helps.
        self._pool = Pool(min(4 * loads_max, iterations_max), "load", self._threads_max)
        self._slots: deque[Slot] = deque()
        self._unadmitted: deque[Slot] = deque()
        self._awaited: Slot | None = None
        self._held_bytes = 0
        self._finish_s = 0.0
        self._cores = min(_NEAR_THREADS_MAX, loads_max, cores())
        self._taken = 0
        self._asked_at = time.monotonic()
        self._look_s = _LOOK_MIN_S
        self._is_stopped = False
        #: Guards everything here; told when the front may have changed.
        self.changed = threading.Condition()
        self._room = threading.Condition(self.changed._lock)  # type: ignore[attr-defined]
        self._is_planning = False
        #: The iteration whose steps are being waited for.
        self.wanted: IterationPlan | None = None
        #: Set when no iteration comes after those in line: rows left over, or what failed.
        self.leftover_rows: int | None = None
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._pump, name="batchweave-prefetch", daemon=True)
        stop_at_exit(self)
        self._thread.start()

    def _threads_max(self) -> int:
        if not self._is_near:
            return _THREADS_MAX
        threads = 1 if self._is_quick else self._cores
        return threads - 1 if self._is_attended else threads

    @property
    def _near_line(self) -> int:
        return min(self._iterations_max, _NEAR_LINE * self._cores)

    @property
    def _is_near(self) -> bool:
        """Reads take microseconds: threads are for using the processors, not for waiting."""
        return self._reader.is_near and self._finish_s < NEAR_S and not self._is_stopped

    @property
    def _is_attended(self) -> bool:
        """The trainer asks for one share after another: it plans and reads itself, and no more is read ahead than keeps the other
        threads busy. What is read further ahead has left the processor's cache when it is taken."""
        return time.monotonic() - self._asked_at <= _ABSENT_S and self._is_near

    @property
    def _is_quick(self) -> bool:
        """An iteration takes so little that two threads would mostly hand the interpreter's lock to each other."""
        alone_s = _ALONE_FROM_DISK_S if self._reader.is_from_disk else _ALONE_S
        return (self._reader.at_once_s < alone_s or self._cores == 1) and self._is_near

    def help(self) -> bool:
        """Does a piece of the work itself instead of waiting for it, where that is quicker. Call without the lock."""
        call = self._pool.steal() if self._is_near else None
        if call is None:
            self._pool.wake()  # what was left in line for this thread while it was quick is the others' now
            return False
        self._asked_at = math.inf
        call()
        self._asked_at = time.monotonic()
        return True

    def read_here(self) -> tuple[IterationPlan, Any] | None:
        """The next iteration, read by the caller itself where that is quicker than to wait for a thread and nothing is in line.
        None: take it from the line. Call without the lock."""
        if self._slots or not self._is_quick:
            return None
        with self.changed:
            if self._slots or self._is_planning or self.failure is not None or self.leftover_rows is not None:
                return None
            self._asked_at = math.inf
            plan = self._plan_next()
        is_read = False
        try:
            manifest = self._log.head.known
            if manifest is None or plan.first_step < manifest.trim or plan.last_step >= manifest.end:
                return None
            slices = self._reader.read_at_once(manifest, plan.cells)
            if slices is None:
                return None
            value = self._hand_over(plan, slices)
            self._asked_at = time.monotonic()
            is_read = True
            return plan, value
        finally:
            if not is_read:
                with self.changed:
                    self._unplan(plan)

    def plan_here(self) -> None:
        """Puts the next iterations in line without the planner, which would have to be woken, where threads are for using the processors
        and the log is known to hold them. Call with `changed` held."""
        if len(self._slots) > self._near_line - self._cores or self._is_planning or self._is_quick or not self._is_near:
            return
        manifest = self._log.head.known
        line = self._near_line
        while len(self._slots) < line and not self._is_full and self.failure is None and self.leftover_rows is None:
            try:
                plan = self._plan_next()
            except Exception:
                self._leave_planning()  # it surfaces after what is in line
                return
            if manifest is None or plan.first_step < manifest.trim or plan.last_step >= manifest.end:
                self._unplan(plan)
                return
            slot = Slot(plan, manifest)
            size = self._reader.bytes_at_once_max(manifest, plan.cells) * (1 + self._copies)
            if self._unadmitted or size == 0 or (self._held_bytes > 0 and self._held_bytes + size > self._bytes_max):
                self._line_up(slot)
                continue
            slot.held_bytes = size
            self._held_bytes += size
            self._slots.append(slot)
            self._pool.post(partial(self._read, slot))

    def _unplan(self, plan: IterationPlan) -> None:
        """It must be waited for, or something is wrong with it: the planner waits, tries again, and says what."""
        self._plans.put_back(plan)
        self._leave_planning()

    def _leave_planning(self) -> None:
        self._asked_at = -math.inf
        self._room.notify()

    def _line_up(self, slot: Slot) -> None:
        self._slots.append(slot)
        self._unadmitted.append(slot)
        self._pool.post(partial(self._prepare, slot))

    @property
    def front(self) -> Slot | None:
        """The first iteration in line; call with `changed` held."""
        return self._slots[0] if self._slots else None

    def want_more(self) -> None:
        """Nothing is in line and somebody waits: whoever plans looks again. Call with `changed` held."""
        self._room.notify()

    def take(self) -> None:
        """Takes the first iteration out; its bytes are the caller's from now on. Call with `changed` held."""
        self._asked_at = time.monotonic()
        self._held_bytes -= self._slots.popleft().held_bytes
        self._taken += 1
        if self._taken % _ALONE_AGAIN == 0:
            self._reader.at_once_s = 0.0
        was_full = self._is_full
        for slot in self._admit():
            self._pool.post(partial(self._fetch, slot))
        # Where reads are quick, waking the planner for every iteration would cost more than planning it: it is told when half a line is
        # gone, looks itself from then on, and `plan_here` plans meanwhile.
        if was_full or self._iterations_max - 2 * len(self._slots) in (0, 1) or not self._is_near:
            self._room.notify()

    def stop(self) -> None:
        """Ends the threads; reads that are under way finish unseen."""
        with self.changed:
            self._is_stopped = True
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
                    self._is_planning = False
                    # No further ahead than one that waits for room: what is prepared is held in memory too. Nobody tells when a
                    # trainer goes to work: that is looked for.
                    while (is_attended := self._is_attended) or len(self._slots) >= self._iterations_max or self._is_full:
                        self._wait(is_looking=is_attended)
                        self._look_s = min(2 * self._look_s, _LOOK_MAX_S) if is_attended else _LOOK_MIN_S
                    self._look_s = _LOOK_MIN_S
                    self._check()
                    self._is_planning = True
                    plan = self.wanted = self._plan_next()
                manifest = self._visible(plan)
                if manifest is None:
                    end = self._log.head.newest().end * self._projection.rows
                    with self.changed:
                        self.leftover_rows = max(0, end - plan.row)
                        self.changed.notify_all()
                        while self._pool.is_waiting:
                            self._wait(is_looking=True)
                    return
                slot = Slot(plan, manifest)
                with self.changed:
                    self._line_up(slot)
                    if len(self._slots) == 1:
                        self.changed.notify_all()
        except _Stopped:
            pass
        except BaseException as error:
            with self.changed:
                self.failure = error
                self.changed.notify_all()

    def _plan_next(self) -> IterationPlan:
        """Takes the next iteration that is this worker's; call with the lock held."""
        plan = self._plans.next()
        if self._reader.is_from_disk:
            self._announce()
        return plan

    def _announce(self) -> None:
        """Tells what comes after it."""
        ahead, manifest = self._reader.ahead, self._log.head.known
        if manifest is None:
            return
        try:
            for plan in self._plans.look(ahead.shares, manifest.end):
                ahead.announce(manifest, plan.cells)
        except Exception:
            pass  # it surfaces when it is the next one

    def _check(self) -> None:
        if self._is_stopped:
            raise _Stopped

    def _wait(self, timeout: float | None = None, is_looking: bool = False) -> None:
        self._check()
        if is_looking or self._pool.is_waiting:
            self._room.wait(self._look_s if timeout is None else min(timeout, self._look_s))
            self._pool.wake()
        else:
            look = self._look_for_late()
            self._room.wait(look if timeout is None else min(timeout, look or timeout))
        self._check()

    def _visible(self, plan: IterationPlan) -> Manifest | None:
        """A verified manifest in which all rows of the iteration are visible; None when the log is closed before them."""
        head = self._log.head
        delay, moves = self._poll_delay, 0
        manifest = head.newest()
        while True:
            if plan.first_step < manifest.trim:
                raise reclaimed(plan.row, manifest, self._projection.rows)
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
                while (left := until - time.monotonic()) > 0:
                    self._wait(left)
            delay = min(delay * _POLL_DELAY_GROWTH, self._poll_delay_max)

    @property
    def _is_full(self) -> bool:
        """One is prepared and finds no room; call with the lock held."""
        return bool(self._unadmitted) and self._unadmitted[0].prepared is not None

    def wait_front(self) -> None:
        """Waits for a change, and sends second reads for what is late meanwhile. Call with the lock held."""
        self._awaited = self._slots[0]
        if not self._awaited.is_done:  # or whoever finished it saw that nobody waited
            self.changed.wait(self._look_for_late())
        self._awaited = None

    def _look_for_late(self) -> float | None:
        """Sends a second read for every slot whose first is late, as far as the budget goes; gives the seconds until the next
        look, or None where there is nothing to look for. Call with the lock held."""
        if self._reader.is_near:
            return None
        now = time.monotonic()
        delay = None
        for slot in self._slots:
            reading = slot.reading
            if reading is None or slot.is_done:
                continue
            if reading.late_at > now:
                delay = min(delay or _LATE_LOOK_MAX_S, reading.late_at - now)
                continue
            ranges = sum(len(part.ranges) for part in slot.prepared.parts) if slot.prepared else 1
            if self._reader.hedger.spend(ranges):
                slot.reading = None
                slot.attempts += 1
                self._reader.post_second(partial(self._fetch if slot.is_prepared else self._prepare, slot, Reading(is_second=True)))
            else:
                delay = delay or _LATE_LOOK_MAX_S
        return None if delay is None else max(_LATE_LOOK_MIN_S, delay)

    def _begin(self, slot: Slot, second: Reading | None) -> Reading:
        if second is not None:
            return second
        with self.changed:
            slot.attempts = 1
            slot.reading = Reading()
            return slot.reading

    def _end(self, slot: Slot, error: BaseException | None, is_over: bool) -> bool:
        """Whether this attempt is the one that counts: the first that brings something, or the last that fails. Call with the
        lock held."""
        if is_over:
            return False
        slot.attempts -= 1
        if error is not None and slot.attempts > 0:
            return False
        slot.reading = None
        slot.error = error
        return True

    def _read(self, slot: Slot) -> None:
        """`_prepare` and `_fetch` in one, for a slot that was admitted by the size of its objects; any other way out leads to them."""
        slices = None
        try:
            slices = None if self._is_stopped else self._reader.read_at_once(slot.manifest, slot.plan.cells, is_bounded=True)
            if slices is not None:
                slot.value = self._hand_over(slot.plan, slices)
        except BaseException as error:
            slot.error = error
        if slices is None and slot.error is None:
            with self.changed:
                self._held_bytes -= slot.held_bytes
                slot.held_bytes = 0
                before = sum(other.plan.iteration < slot.plan.iteration for other in self._unadmitted)
                self._unadmitted.insert(before, slot)
            self._prepare(slot)
            return
        self._finish_slot(slot)

    def _finish_slot(self, slot: Slot) -> None:
        # Without the lock, at which threads that finish a share every few microseconds would wait for each other.
        slot.is_done = True
        if self._awaited is slot:
            with self.changed:
                self.changed.notify_all()
        if isinstance(slot.error, KeyboardInterrupt):
            raise slot.error  # it came while the main thread helped

    def _prepare(self, slot: Slot, second: Reading | None = None) -> None:
        prepared = failure = None
        reading = self._begin(slot, second)
        try:
            prepared = self._guard(slot, lambda m: self._reader.prepare(m, slot.plan.cells, reading))
        except BaseException as error:
            failure = error
        with self.changed:
            if not self._end(slot, failure, slot.is_prepared):
                return
            slot.is_prepared = True
            # One that failed takes part in the order like any other, with nothing to read.
            slot.prepared = prepared or Prepared((), [], 0)
            admitted = [] if self._is_stopped else self._admit()
        for other in admitted:
            if other is not slot:
                self._pool.post(partial(self._fetch, other))
        if slot in admitted:
            self._fetch(slot)

    def _admit(self) -> list[Slot]:
        """Those that may be read now; call with the lock held. Slots are admitted in the order of their iterations, so the
        bytes that are held belong to iterations that are taken before the next one; when none are held, or it is the first in line, it
        goes on however large it is. So it cannot get stuck."""
        admitted = []
        while self._unadmitted and (prepared := self._unadmitted[0].prepared) is not None:
            size = prepared.bytes * (1 + self._copies)
            if self._held_bytes > 0 and self._held_bytes + size > self._bytes_max and self._unadmitted[0] is not self._slots[0]:
                break
            slot = self._unadmitted.popleft()
            slot.held_bytes = size
            self._held_bytes += size
            admitted.append(slot)
        return admitted

    def _fetch(self, slot: Slot, second: Reading | None = None) -> None:
        prepared = slot.prepared
        if slot.error is None and not self._is_stopped and prepared is not None:
            reading = self._begin(slot, second)
            slices: list[Slice] = []
            failure = None
            try:
                slices = self._guard(slot, lambda m: self._reader.fetch(prepared, reading))
            except BaseException as error:
                failure = error
            with self.changed:
                if not self._end(slot, failure, slot.is_claimed):
                    return
                slot.is_claimed = True
            if failure is None:
                try:
                    slot.value = self._hand_over(slot.plan, slices)
                except BaseException as error:
                    slot.error = error
        elif second is not None:
            return
        slot.prepared = None
        self._finish_slot(slot)

    def _hand_over(self, plan: IterationPlan, slices: list[Slice]) -> Any:
        if self._finish is None:
            return slices
        begun = time.monotonic()
        value = self._finish(plan, slices)
        self._finish_s = time.monotonic() - begun
        return value

    def _guard(self, slot: Slot, call: Callable[[Manifest], T]) -> T:
        return unless_reclaimed(self._log, slot.plan, slot.manifest, call)
