"""The consumer: one rank's view of the log, as an iterator of shares."""
from __future__ import annotations

import os
import time
from typing import Any, Callable, Iterator, Mapping

from ..errors import BatchWeaveError, invalid
from ..flow.threads import JOIN_S
from ..format.cursor import make_cursor, parse_cursor, translate_cursor
from ..format.manifest import Manifest
from ..format.stored_json import SAFE_INTEGER_MAX
from ..lifecycle.checkpoints import DEFAULT_GROUP, find_checkpoint, watch_starvation
from ..log.log import Log
from ..observe import rank_metrics
from ..pulse.pulse import Pulse
from .epochs import EpochOrder, EpochProjection, Last
from .mesh import Place
from .prefetch import Prefetch
from .projection import IterationPlan, Projection, RowsPerRank
from .reader import Slice, SliceReader
from .share import Share, share_of
from .waiting import LONG_WAIT_S, WAITS, describe_wait, reclaimed

_STARVATION_LOOK_S = 2.0


def start_position(start: Any, log: Log, manifest: Manifest, group: str = DEFAULT_GROUP) -> tuple[int, int]:
    """Row and iteration of "earliest", "latest", {"step": n}, {"row": n}, {"checkpoint": id} or a cursor. Refuses rows that are gone."""
    rows = log.spec.rows
    if start == "earliest":
        return manifest.trim * rows, 0
    if start == "latest":
        return manifest.end * rows, 0
    if isinstance(start, Mapping) and "batchweave" not in start and "checkpoint" in start:
        # A checkpoint that is live holds its rows, so it is never behind the trim.
        return find_checkpoint(manifest, start["checkpoint"], start.get("group", group))
    if isinstance(start, Mapping) and "batchweave" not in start and ("step" in start or "row" in start):
        for name in ("step", "row", "iteration"):
            value = start.get(name, 0)
            if type(value) is not int or not 0 <= value <= SAFE_INTEGER_MAX:
                raise invalid(f"start.{name} must be a whole number, not {value}.")
        row = start["step"] * rows if "step" in start else start["row"]
        position = (row, start.get("iteration", 0))
    else:
        cursor = parse_cursor(start)
        position = (cursor["row"], cursor["iteration"])
        if cursor["namespace"] != log.spec.uuid:
            translated = translate_cursor(cursor, log.spec.fork, rows)
            if translated is None:
                raise BatchWeaveError(
                    "WRONG_NAMESPACE",
                    f"The cursor belongs to namespace {cursor['namespace']}, and this one is {log.spec.uuid}. Open the "
                    'namespace the cursor was saved from, or start from "earliest" or a row of this one.',
                    {"found": cursor["namespace"], "expected": log.spec.uuid},
                )
            position = translated
    if position[0] < manifest.trim * rows:
        raise reclaimed(position[0], manifest, rows)
    if manifest.closed and position[0] > manifest.end * rows:
        raise _past_end(position[0], manifest, rows)
    return position


def _past_end(row: int, manifest: Manifest, rows: int) -> BatchWeaveError:
    """Of an open log one may wait for rows to come; of a closed one none will."""
    end = manifest.end
    left = f"its last row is {end * rows - 1} (step {end - 1})" if manifest.trim < end else "it holds no rows"
    return BatchWeaveError(
        "INVALID_ARGUMENT",
        f"Row {row} (step {row // rows}) will never exist: the log is closed and {left}. Start at or before row {end * rows}.",
        {"row": row, "end": end, "closed": True},
    )


def projection_of(
    log: Log, place: Place, policy: str = "per-rank", layout: str = "contiguous", rows_per_rank: RowsPerRank = 1, order: EpochOrder | None = None,
    last: Last = "drop",
) -> Projection:
    """What this rank gets of the log, or of epochs of it."""
    settings = (log.spec.rows, log.spec.chunks, place.data_ranks, place.d, place.chunk_ranks, place.c, policy, layout, rows_per_rank)
    return Projection(*settings) if order is None else EpochProjection(order, last, *settings)


class Consumer:
    """Yields the shares of one rank in order, the same iterations on every rank, until a closed log has too few rows.

    A failed `next` changes nothing: calling it again tries again from the same iteration. `finish` is called with every share on
    the threads that read ahead; `finish_copies` says how often it copies the bytes, so that prefetch_bytes_max holds. `pulse`: leave hints of
    life beside the log, for `batchweave top`; needs the right to write, and does without where it is missing.
    """

    def __init__(
        self,
        log: Log,
        place: Place,
        start: Any = "earliest",
        policy: str = "per-rank",
        layout: str = "contiguous",
        rows_per_rank: RowsPerRank = 1,
        group: str = DEFAULT_GROUP,
        wait_timeout: float = 600.0,
        prefetch_bytes_max: int = 256 * 1024 * 1024,
        prefetch_iterations_max: int = 32,
        reads_in_flight_max: int = 16,
        poll_delay: float = 0.05,
        poll_delay_max: float = 1.0,
        stride: int = 1,
        offset: int = 0,
        finish: Callable[[Share[Any]], Any] | None = None,
        finish_copies: int = 0,
        pulse: bool = False,
        order: EpochOrder | None = None,
        last: Last = "drop",
    ) -> None:
        for name, value, least in (
            ("wait_timeout", wait_timeout, 0),
            ("prefetch_bytes_max", prefetch_bytes_max, 1),
            ("prefetch_iterations_max", prefetch_iterations_max, 1),
            ("reads_in_flight_max", reads_in_flight_max, 1),
        ):
            if not isinstance(value, (int, float)) or not value >= least:
                raise invalid(f"{name} must be a number of at least {least}, not {value}.")
        self.place = place
        self._log = log
        self._group = group
        self._wait_timeout = wait_timeout
        self._order = order
        self._is_ragged = last == "ragged"
        self.projection = projection_of(log, place, policy, layout, rows_per_rank, order, last)
        # What is at the end, and which checkpoints are live, only the newest version says.
        newest = start == "latest" or (isinstance(start, Mapping) and "checkpoint" in start)
        manifest = log.head.jump() if newest else log.head.recent()
        self._row, self._iteration = start_position(start, log, manifest, group) if order is None else order.position(start)
        # A start that the policy cannot go on from is refused here, not at the first share.
        self.projection.plan(self._row, self._iteration)
        self.reader = SliceReader(log, reads_in_flight_max)
        self._prefetch: Prefetch | None = None
        self._limits: dict[str, Any] = {
            "bytes_max": prefetch_bytes_max,
            "iterations_max": prefetch_iterations_max,
            "poll_delay": poll_delay,
            "poll_delay_max": poll_delay_max,
            "copies": finish_copies,
        }
        self._finish = finish
        self._stride = stride
        self._offset = offset
        self._is_closed = False
        self._pid = os.getpid()
        #: At the end of a closed log: how many rows were too few for one more iteration.
        self.leftover_rows: int | None = None
        #: Exposed data wait: seconds that `next` blocked, over all and the last time.
        self.waited = 0.0
        self.last_wait = 0.0
        self._waiting_since: float | None = None
        self._has_pulse = pulse
        self._pulse: Pulse | None = None
        self.labels = {"namespace": log.place.uri, "role": "rank", "rank": str(place.rank), "group": group}
        self._is_watched = rank_metrics.watch(self)

    @property
    def cursor(self) -> dict[str, Any]:
        """Where the next share begins: `share.next` of the last one, or the start."""
        if self._order is not None:
            return self._order.state(self._row, self._iteration)
        return make_cursor(self._log.spec.uuid, self._row, self._iteration)

    def __iter__(self) -> Iterator[Share[Any]]:
        return self

    def __next__(self) -> Share[Any]:
        if self._is_closed or self.leftover_rows is not None:
            raise StopIteration
        if self._pid != os.getpid():
            raise invalid(
                "This reader was opened by the process that this one was forked from, and its threads stayed there. Open a dataset or "
                "a consumer of its own in each process, from the same cursor if they are to go on from there."
            )
        begun = time.monotonic()
        self._waiting_since = begun
        if self._has_pulse and self._pulse is None:
            name = f"{self._group[:50]}-{self.place.rank}"
            self._pulse = Pulse(self._log.store, self._log.spec.uuid, "rank", name, self.facts, self.place.world_size)
        if self._prefetch is None:
            self._prefetch = Prefetch(
                self._log, self.reader, self.projection, self._row, self._iteration, self._make_share,
                **self._limits, stride=self._stride, offset=self._offset,
            )
        prefetch = self._prefetch
        try:
            taken = self._wait_front(prefetch, begun)
        except BaseException:
            prefetch.stop()
            self._prefetch = None
            self._waiting_since = None
            raise
        if taken is None:
            self.leftover_rows = prefetch.leftover_rows or 0
            self.close()
            raise StopIteration
        plan, share = taken
        self._advance(plan.next_row, plan.iteration + 1)
        self.last_wait = time.monotonic() - begun
        self.waited += self.last_wait
        self._waiting_since = None
        if self._is_watched:
            rank_metrics.handed_out(self, plan.iteration, share.nbytes, self.last_wait)
        found: Share[Any] = share
        return found

    def _make_share(self, plan: IterationPlan, slices: list[Slice]) -> Share[Any]:
        """Runs on the threads that read ahead."""
        share = share_of(plan, slices, self._log.spec.uuid, self._order, self._is_ragged)
        if self._finish is not None:
            self._finish(share)
        return share

    def _advance(self, row: int, iteration: int) -> None:
        # A prefetch that starts again after a failure begins at this worker's own next iteration.
        self._offset = 0
        for _ in range(self._stride - 1):
            row, iteration = self.projection.plan(row, iteration).next_row, iteration + 1
        self._row, self._iteration = row, iteration

    def _wait_front(self, prefetch: Prefetch, begun: float) -> tuple[IterationPlan, Any] | None:
        """The first iteration, read and taken out of the line; None at the end of a closed log."""
        tell_after = LONG_WAIT_S
        with prefetch.changed:
            while True:
                slot = prefetch.front
                if slot is not None:
                    while not slot.is_done:
                        prefetch.changed.wait()
                    if slot.error is not None:
                        raise slot.error
                    prefetch.take()
                    return slot.plan, slot.value
                if prefetch.failure is not None:
                    raise prefetch.failure
                if prefetch.leftover_rows is not None:
                    return None
                waited = time.monotonic() - begun
                wanted, manifest = prefetch.wanted, self._log.head.known
                if wanted is not None and manifest is not None:
                    if waited >= self._wait_timeout:
                        raise describe_wait(self._log, manifest, wanted, waited)
                    if waited >= tell_after:
                        tell_after *= 2
                        WAITS.warning("Still waiting. %s", describe_wait(self._log, manifest, wanted, waited).message)
                    if wanted.last_step >= manifest.end and manifest.max_lag is not None:
                        prefetch.changed.release()
                        try:
                            watch_starvation(self._log, wanted.last_step, waited, self._group)
                        finally:
                            prefetch.changed.acquire()
                prefetch.changed.wait(min(max(0.001, min(self._wait_timeout, tell_after) - waited), _STARVATION_LOOK_S))

    @property
    def waiting(self) -> float:
        """Seconds for which `next` has blocked by now; 0 while the loop computes."""
        since = self._waiting_since
        return 0.0 if since is None else time.monotonic() - since

    def facts(self) -> dict[str, Any]:
        """How this rank fares, for its pulse."""
        rows = self._log.spec.rows
        known = self._log.head.known
        end = known.end if known is not None else 0
        # Of epochs, as if the log had gone on: what is read is spread over it.
        step = (self._row if self._order is None else self._order.first + min(self._row, self._order.end) % self._order.rows) // rows
        return {
            "group": self._group,
            "rank": self.place.rank,
            "worldSize": self.place.world_size,
            "iteration": self._iteration,
            "step": step,
            "lagSteps": max(0, end - step),
            "waitedMs": round(1_000 * (self.waited + self.waiting)),
            "waitingMs": round(1_000 * self.waiting),
            "readBytes": self.reader.stats.bytes,
            "requests": self.reader.stats.requests,
            "client": "python",
        }

    def close(self) -> None:
        """Ends the threads and waits for them. What is in flight finishes unseen; what takes longer than a few seconds is left behind."""
        self._is_closed = True
        if self._is_watched:
            rank_metrics.forget(self)
        if self._pid != os.getpid():
            self._prefetch = None  # whatever its locks were when this process was forked, no thread here can wait for them
            return
        until = time.monotonic() + JOIN_S
        if self._pulse is not None:
            self._pulse.stop()
        if self._prefetch is not None:
            self._prefetch.stop()
            # First those that hand work to the reader's: what they wait for must still be done.
            self._prefetch.join(until)
            self._prefetch = None
        self.reader.close()
        self.reader.join(until)
        if self._pulse is not None:
            self._pulse.join(until)
            self._pulse = None

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
