"""One lane of a source, from its reader through transforms into blocks. What it writes depends on the lane and the source alone."""
from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, NamedTuple

from ..errors import BatchWeaveError, invalid
from .block_rule import Block, BlockRule
from .fault import FaultTally, make_fault, stop_for
from .preparing import Piece
from .reader import Item
from .sample_writer import LaneAppender
from .source import Source
from .transform_pool import Job, Outcome, TransformPool

#: How often a loader that waits for a worker looks whether it is to stop.
_LOOK_S = 0.5
#: Blocks that a lane may be ahead of the log's end, where others hold it up.
_AHEAD_BLOCKS = 32


class _Slot(NamedTuple):
    #: The reader's position before the item.
    before: Any
    item: Item
    job: Job | None


class LaneLoader:
    """Loads one lane until it ends, is fenced, or is told to stop. A position is `[the reader's, pieces of the next sample passed]`."""

    def __init__(self, source: Source, lane: LaneAppender, pool: TransformPool, tally: FaultTally, in_flight_max: int) -> None:
        self._source = source
        self._lane = lane
        self._pool = pool
        self._tally = tally
        self._in_flight_max = max(1, in_flight_max)
        self._rule = BlockRule(source.name, source.block_samples, source.block_bytes)
        self.samples = 0
        #: Time until the reader gave its items.
        self.read_seconds = 0.0
        self.blocks = 0
        self._has_just_appended = False
        #: Where the log ends, as far as was seen: a lane so far ahead of that could only wait for others.
        self.end = 0
        self._ahead_max = max(_AHEAD_BLOCKS, 2 * lane.log.lanes)

    def run(self, stopping: threading.Event, releasing: threading.Event) -> bool:
        """True: the lane has ended, and its last block says so. `stopping`: at once; `releasing`: behind the block under way."""
        after, passed = self._lane.point.at or (None, 0)
        items = iter(self._source.reader.read(self._source.part(self._lane.point.lane), after))
        slots: deque[_Slot] = deque()
        before = after
        is_drained = False
        while not stopping.is_set() and not (releasing.is_set() and self._has_just_appended):
            if self._is_ahead:
                stopping.wait(_LOOK_S)
                if releasing.is_set():
                    return False
                continue
            self._has_just_appended = False
            while not is_drained and len(slots) < self._in_flight_max:
                begun = time.monotonic()
                item = next(items, None)
                self.read_seconds += time.monotonic() - begun
                if item is None:
                    is_drained = True
                    break
                slots.append(_Slot(before, item, None if item.error is not None else self._pool.submit(item.value, item.id)))
                before = item.after
            if not slots:
                self._lane.end(self._rule)
                return True
            if not self._finish(slots.popleft(), passed, stopping):
                return False
            passed = 0
        return False

    @property
    def _is_ahead(self) -> bool:
        return self._lane.next_step >= self.end + self._ahead_max

    def _finish(self, slot: _Slot, passed: int, stopping: threading.Event) -> bool:
        """False: told to stop."""
        item = slot.item
        if slot.job is None:
            self._leave_out(item.id, item.stage, item.error or "", 1, None, [item.after, 0])
            return True
        outcome = self._outcome(slot.job, item, stopping)
        if outcome is None:
            return False
        if outcome.error is not None:
            self._leave_out(item.id, "transform", outcome.error, outcome.attempts, None, [item.after, 0])
            return True
        pieces: list[Piece] = outcome.values
        for k, piece in enumerate(pieces, 1):
            if k <= passed:
                continue
            at = [item.after, 0] if k == len(pieces) else [slot.before, k]
            self._place(item.id, piece, outcome.attempts, at)
        return True

    def _outcome(self, job: Job, item: Item, stopping: threading.Event) -> Outcome | None:
        policy = self._source.policy
        delay = policy.retry_delay
        for attempt in range(1, policy.attempts + 1):
            while (outcome := job.wait(_LOOK_S)) is None:
                if stopping.is_set():
                    return None
            if outcome.error is None or attempt == policy.attempts:
                return outcome._replace(attempts=outcome.attempts + attempt - 1)
            time.sleep(delay)
            delay *= 2
            job = self._pool.submit(item.value, item.id)
        raise AssertionError

    def _place(self, id: str, piece: Piece, attempts: int, at: Any) -> None:
        name = id + piece.suffix
        if piece.sample is not None:
            self._tally.good()
            self.samples += 1
            self._append(self._rule.add(piece.sample._replace(id=name), at))
            return
        assert piece.fault is not None
        stage, reason, tokens = piece.fault
        if stage == "no-tokens":
            # The pipeline lacks a transform: no policy leaves that out.
            raise invalid(
                f"Source {self._source.name}: sample {name} has no tokens after its transforms: the last one must give a dict with tokens, or a "
                "PreparedSample.",
                source=self._source.name,
                id=name,
            )
        if stage == "length" and self._source.too_long == "stop":
            raise BatchWeaveError(
                "LIMIT",
                f"Source {self._source.name}: sample {name} is too long: {reason}. Say too_long=\"split\", \"truncate\" or \"skip\" in the source.",
                {"source": self._source.name, "id": name},
            )
        self._leave_out(name, stage, reason, attempts, tokens, at)

    def _leave_out(self, id: str, stage: str, reason: str, attempts: int, tokens: int | None, at: Any) -> None:
        fault = make_fault(self._source.name, id, stage, reason, attempts, tokens)
        if stage not in ("empty", "length") and not self._source.policy.is_skipped:
            raise stop_for(fault)
        self._tally.add(fault)
        self._append(self._rule.leave_out(fault, at))

    def _append(self, block: Block | None) -> None:
        if block:
            self._lane.append(block)
            self.blocks += 1
            self._has_just_appended = True
